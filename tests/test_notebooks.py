"""The notebooks of the tutorial run from top to bottom, in both languages with the same code; what they show is markup
without a script of theirs."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from mallang import find, recipe
from mallang.training.train import Options, train

FOLDER = Path(__file__).parents[1] / "docs" / "tutorial"
NOTEBOOKS = sorted(path for path in FOLDER.glob("*.ipynb") if not path.stem.endswith(".ko"))
FEW = (
    "train.epochs=none", "train.steps=3", "train.validate_every=none", "train.workers=0", "model.size=tiny",
    "decoding.max_length=6",
)  # fmt: skip
LINES = ("나는 물을 마신다.", "그는 책을 읽는다.", "유나는 지난주에 배를 탔다.", "그녀는 학교에 간다.")
WITHOUT_RUN = "attention-by-hand"


def cells(path: Path, kind: str) -> list[str]:
    """The sources of the cells of a kind."""
    found = json.loads(path.read_text("utf-8"))
    assert found["nbformat"] == 4
    return ["".join(cell["source"]) for cell in found["cells"] if cell["cell_type"] == kind]


def run_cell(code: str, space: dict[str, Any]) -> Any:
    """Run a cell as a notebook does; the value of its last line, if that is an expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), space)
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), space)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs that the notebooks load, trained for a moment."""
    folder = tmp_path_factory.mktemp("notebooks")
    (folder / "text.txt").write_text("\n".join(LINES * 100), "utf-8")
    (folder / "pairs.tsv").write_text("".join(f"{line}\t{line}\n" for line in LINES * 4), "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MALLANG_CACHE", str(folder / "cache"))
        patch.setattr(find, "PLUGINS", {})
        for name, file in (("transformer-miniworld", "pairs.tsv"), ("rnn-lm-miniworld", "text.txt")):
            data = [f"data.{split}={folder / file}" for split in ("train", "valid", "test")]
            built = recipe.read(name, [*FEW, *data]).build()
            train(built, Options(folder=folder / "runs" / name, device="cpu", quiet=True))
    return folder


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(home)
    space: dict[str, Any] = {"__name__": "__main__"}
    shown = [run_cell(code, space) for code in cells(path, "code")]
    markup = [each._repr_html_() for each in shown if hasattr(each, "_repr_html_")]
    assert len(markup) >= 2 and capsys.readouterr().out
    assert all(not re.search(r"<script|\son\w+=", each.split("<iframe")[0]) for each in markup)
    assert any("<iframe" in each for each in markup) != (path.stem == WITHOUT_RUN)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_both_languages_have_the_same_code_and_no_outputs(path: Path) -> None:
    korean = path.with_name(f"{path.stem}.ko.ipynb")
    assert cells(path, "code") == cells(korean, "code")
    assert len(cells(path, "markdown")) == len(cells(korean, "markdown"))
    assert all(re.search("[가-힣]", text) for text in cells(korean, "markdown"))
    for each in (path, korean):
        found = json.loads(each.read_text("utf-8"))["cells"]
        assert all(cell["cell_type"] != "code" or not cell["outputs"] for cell in found)
        for link in re.findall(r"\]\(([^)\s]+)\)", "".join(cells(each, "markdown"))):
            assert (FOLDER / link).exists(), link


def test_there_are_three() -> None:
    assert len(NOTEBOOKS) == 3
