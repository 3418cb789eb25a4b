"""`mallang export`: a folder to take away, and what is said where there can be none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from commands.running import environment, mallang

pytest.importorskip("ctranslate2")
SENTENCE = "민수는 물을 산다."


def test_an_exported_run_says_what_the_run_says(trained: Path, tmp_path: Path) -> None:
    ended = mallang("export", trained, "--to", "ctranslate2", "--output", "out", cwd=tmp_path)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("out  ") and "python out/translate.py" in ended.out
    said = subprocess.run(
        [sys.executable, "out/translate.py", SENTENCE], cwd=tmp_path, env=environment(tmp_path, {}),
        capture_output=True, text=True, encoding="utf-8", check=True,
    )  # fmt: skip
    assert said.stdout == "Minsu buys water.\n"
    again = mallang("export", trained, "--to", "ctranslate2", "--output", "out", cwd=tmp_path)
    assert again.code == 2 and "out is there already" in again.err and "--output" in again.err


def test_the_folder_is_in_the_run_if_none_is_named(run: Path) -> None:
    ended = mallang("export", run, "--to", "ctranslate2", "--int8", "-q", cwd=run)
    assert (ended.code, ended.out) == (0, "")
    assert (run / "ctranslate2" / "model.bin").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--to", "onnx", "--int8"], ["--int8 has no effect on --to onnx"]),
        (["--to", "tflite"], ["tflite", "ctranslate2"]),
        ([], ["--to"]),
    ],
    ids=["int8", "unknown", "missing"],
)
def test_what_cannot_be_is_refused(arguments: list[str], words: list[str], trained: Path, tmp_path: Path) -> None:
    ended = mallang("export", trained, *arguments, cwd=tmp_path)
    assert ended.code == 2 and "Traceback" not in ended.err
    assert all(word in ended.err for word in words), ended.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("kind", "package"), [("ctranslate2", "ctranslate2"), ("onnx", "onnxscript")])
def test_a_missing_package_comes_with_its_install_line(kind: str, package: str, trained: Path, tmp_path: Path) -> None:
    ended = mallang("export", trained, "--to", kind, "--output", "out", cwd=tmp_path, missing=[package])
    assert ended.code == 2 and package in ended.err
    assert "pip install -e '.[export]'" in ended.err
    assert not (tmp_path / "out").exists()
