"""The report on a machine, and on machines that lack something."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch

from mallang.commands import doctor


def test_the_report_says_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    doctor.command(json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["devices"]["torch"] == torch.__version__
    assert found["packages"]["numpy"] == metadata.version("numpy")
    assert set(found["packages"]) >= {"torch", "numpy", "safetensors", "tokenizers", "pydantic", "typer", "rich"}
    assert set(found["extras"]) >= {"plots", "data", "track"}
    assert found["machine"]["cores"] >= 1
    assert found["machine"]["memory"].endswith("GiB")


def test_people_get_the_same_report(capsys: pytest.CaptureFixture[str]) -> None:
    doctor.command()
    shown = capsys.readouterr().out
    assert f"torch          {torch.__version__}" in shown
    assert "GiB free" in shown
    doctor.command(verbose=True)
    assert "pytest" in capsys.readouterr().out
    assert "pytest" not in shown


def test_quiet_prints_only_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.delenv("MALLANG_DATA", raising=False)
    monkeypatch.setenv("MALLANG_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    doctor.command(quiet=True)
    assert capsys.readouterr().out == ""
    monkeypatch.setenv("MALLANG_DATA", str(tmp_path / "nowhere"))
    doctor.command(quiet=True)
    assert capsys.readouterr().out == f"problem: MALLANG_DATA names {tmp_path / 'nowhere'}, which is not a folder\n"


def test_a_missing_extra_comes_with_its_install_line() -> None:
    assert doctor.extra("plots", ["no-such-package"]) == (
        "not installed; adds figures as PNG and SVG files: pip install -e '.[plots]'"
    )
    assert doctor.extra("new", ["no-such-package"]).startswith("not installed; adds no-such-package: ")
    assert doctor.extra("plots", ["numpy"]) == f"numpy {metadata.version('numpy')}"


def test_a_missing_package_is_a_problem() -> None:
    problems: list[str] = []
    assert doctor.packages(["numpy", "no-such-package"], problems)["no-such-package"] == "missing"
    assert problems == ["no-such-package is missing: pip install no-such-package"]


def test_a_device_that_is_not_there_is_a_problem() -> None:
    problems: list[str] = []
    doctor.devices("cuda:99", problems)
    assert len(problems) == 1 and problems[0].startswith("cuda:99 does not work: ")
    doctor.devices("nonsense", problems)
    assert len(problems) == 2 and problems[1].startswith("nonsense does not work: ")


def test_a_folder_that_refuses_is_a_problem(tmp_path: Path) -> None:
    problems: list[str] = []
    assert doctor.room(tmp_path / "new" / "deeper", problems).startswith(f"{tmp_path / 'new' / 'deeper'}, ")
    assert problems == []
    (tmp_path / "file").touch()
    assert "not writable" in doctor.room(tmp_path / "file", problems)
    assert problems == [f"{tmp_path / 'file'} cannot be written to"]


def test_it_works_without_torch(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('there is no torch here')\n")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    left = subprocess.run(
        [sys.executable, "-m", "mallang", "doctor", "--json"], env=environment, capture_output=True, text=True
    )
    assert left.returncode == 0
    found = json.loads(left.stdout)
    assert found["devices"] == {"torch": "missing"}
    assert "torch cannot be imported (there is no torch here): pip install torch" in found["problems"]
