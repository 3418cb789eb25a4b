"""The benchmark of kernels names kernels that there are, and every kernel has a line."""

import re
from pathlib import Path

from benchmarks.ablation import LINES

from mallang.kernels import dispatch

KERNELS = Path(__file__).parents[1] / "src" / "mallang" / "kernels"
NAMES = {
    name
    for path in KERNELS.glob("*.py")
    for name in re.findall(r"(?:is_off|is_left_out|tried_once)\(\"([a-z0-9-]+)\"\)", path.read_text("utf-8"))
}


def test_every_kernel_has_an_end_to_end_line():
    measured = {kernel for line in LINES.values() for kernel in line.kernels}
    assert len(NAMES) > 15 and measured == NAMES == set(dispatch.NAMES)


def test_lines_are_of_one_device():
    for name, line in LINES.items():
        assert line.options["device"] == {"gpu": "cuda", "cpu": "cpu"}[name.split("-")[0]], name
