"""Two processes, started as a person starts them, do what one process with twice the accumulation does."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest
from safetensors.torch import load_file

from commands.running import TINY, Ended, environment, mallang, metrics, scratch, start_cold, write_corpus

RECIPE = (
    "train", "transformer", *TINY, "model.dropout=0.2", "train.steps=12", "train.log_every=1", "train.validate_every=6",
    "train.workers=0",
)  # fmt: skip
RUN = Path("runs", "transformer")


def torchrun(*arguments: str, cwd: Path) -> Ended:
    """`torchrun --nproc-per-node 2 -m mallang …` to its end."""
    folder = Path(tempfile.mkdtemp(dir=scratch()))
    for name in ("in", "out", "err"):
        folder.joinpath(name).touch()
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "mallang"]
    return start_cold([*launcher, *arguments], cwd, environment(cwd, {}), folder).wait()


def test_two_processes_equal_one(tmp_path: Path) -> None:
    """The loss and the gradient's length at every step, dropout on; validation; the weights at the end."""
    one, two = tmp_path / "one", tmp_path / "two"
    for home in (one, two):
        home.mkdir()
        write_corpus(home)
    assert mallang(*RECIPE, "train.accumulation=2", cwd=one).code == 0
    ended = torchrun(*RECIPE, cwd=two)
    assert ended.code == 0, ended.err
    expected, found = metrics(one / RUN), metrics(two / RUN)
    assert [(entry["kind"], entry["step"]) for entry in found] == [(entry["kind"], entry["step"]) for entry in expected]
    assert sum(entry["kind"] == "train" for entry in found) == 12
    for left, right in zip(found, expected, strict=True):
        assert left.keys() == right.keys()
        for key in left.keys() - {"kind"}:
            assert left[key] == pytest.approx(right[key], abs=1e-6, rel=1e-6), (key, left["step"])
    there = load_file(two / RUN / "model.safetensors")
    for name, weight in load_file(one / RUN / "model.safetensors").items():
        # Adam divides by tiny second moments, which makes the last bits of a gradient count.
        assert there[name].sub(weight).abs().max() < 1e-4, name
