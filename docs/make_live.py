"""Write docs/live/korean-to-english.html: a small Transformer of miniworld in a page that runs it.

    python docs/make_live.py            # the model that the page holds, in the page as it is now
    python docs/make_live.py --train    # a new model: some minutes on one core

The model is the recipe transformer-miniworld made smaller, so that the file stays below the size that a repository
should hold of one file.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).parent / "live" / "korean-to-english.html"
RECIPE = ("transformer-miniworld", "model.dim=96", "model.hidden_dim=144", "train.epochs=3")
EXAMPLES = (
    "유나는 지난주에 배를 탔다.",
    "그 농부는 배가 아프다.",
    "민수는 사과를 먹지 않았다.",
    "어제 학생이 학교에서 책을 읽었다.",
)
NAME = "Korean → English"


def renewed(page: str) -> str:
    """The page as it would be written now, with the model that it holds."""
    from mallang.inspection.live import whole_page

    parts = {name: re.findall(rf'id="{name}">(.*?)</script>', page, re.DOTALL)[0] for name in ("header", "weights")}
    return whole_page(parts)


def train() -> None:
    """Train the model anew and write its page."""
    from mallang import load
    from mallang.inspection.live import write_live_page

    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "mallang", "train", *RECIPE, "--name", "small", "--device", "cpu"]
        subprocess.run(command, cwd=folder, check=True)
        write_live_page(PAGE, load(Path(folder) / "runs" / "small", device="cpu"), NAME, EXAMPLES)


if __name__ == "__main__":
    if "--train" in sys.argv:
        train()
    else:
        PAGE.write_text(renewed(PAGE.read_text("utf-8")), "utf-8", newline="\n")
    sys.stdout.write(f"{PAGE}: {PAGE.stat().st_size:,} bytes\n")
