"""`mallang demo`: the command that it prints at its end works as it is printed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mallang.commands.demo import as_typed


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A command called mallang in the folder of an environment, and the folder above it as the current one."""
    path = tmp_path / "my env" / "bin" / "mallang"
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n", "utf-8")
    path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    return path


def test_a_command_on_the_path_is_called_by_its_name(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(script.parent))
    monkeypatch.setattr(sys, "argv", [str(script), "demo"])
    assert as_typed() == "mallang"


def test_a_command_elsewhere_is_called_by_its_place(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    for given in ("my env/bin/mallang", str(script)):
        monkeypatch.setattr(sys, "argv", [given, "demo"])
        assert as_typed() == "'my env/bin/mallang'"
    monkeypatch.chdir("/")
    monkeypatch.setattr(sys, "argv", [str(script), "demo"])
    assert as_typed().strip("'") == str(script).lstrip("/")


def test_a_module_is_called_as_one(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(script.with_name("__main__.py")), "demo"])
    assert as_typed() == f"{sys.executable} -m mallang"
