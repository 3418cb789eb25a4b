"""One tiny trained run for all tests of the commands that use a run; who changes it takes a copy."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from commands.running import TINY, clauses, mallang, write_corpus

LANGUAGE = (
    "model.size=tiny", "model.layers=1", "model.max_length=48", "text.vocabulary=120", "task.layout=stream",
    "task.context=48", "task.order=shuffled", "data.train=train.txt", "data.valid=valid.txt", "data.test=valid.txt",
    "train.batch_tokens=240", "train.steps=160", "train.validate_every=none", "optimizer.learning_rate=0.01",
    "schedule.warmup=20",
)  # fmt: skip
"""A language model that trains in seconds."""


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run, `runs/transformer` below the folder that its corpus lies in."""
    home = tmp_path_factory.mktemp("trained")
    write_corpus(home)
    ended = mallang("train", "transformer", *TINY, "train.steps=160", "train.validate_every=80", cwd=home)
    assert ended.code == 0, ended.err
    return home / "runs" / "transformer"


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of the trained run, with the files it was trained on, to do anything with."""
    shutil.copytree(trained.parent.parent, tmp_path / "home")
    return tmp_path / "home" / "runs" / "transformer"


@pytest.fixture(scope="session")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished language model that has learned from a stream of Korean lines."""
    home, draw = tmp_path_factory.mktemp("writer"), random.Random(1)
    for name, count in (("train.txt", 300), ("valid.txt", 20)):
        lines = (clauses(draw, draw.randint(1, 2))[0] for _ in range(count))
        home.joinpath(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    ended = mallang("train", "gpt", *LANGUAGE, cwd=home)
    assert ended.code == 0, ended.err
    return home / "runs" / "gpt"
