"""One tiny trained run for all tests of the commands that use a run; who changes it takes a copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from commands.running import TINY, mallang, write_corpus


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
