"""`mallang inspect --tree`: the search as a picture, a page or numbers, and what is refused beside it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from commands.running import mallang

SENTENCE, OTHER = "민수는 물을 산다.", "지호는 책을 본다."


def test_a_page_goes_into_the_run_and_pages_of_several_texts_into_a_folder(run: Path, tmp_path: Path) -> None:
    one = mallang("inspect", run, SENTENCE, "--tree", cwd=run.parent)
    assert (one.code, one.err) == (0, "") and one.out == f"{run / 'search-tree.html'}\n"
    assert SENTENCE in (run / "search-tree.html").read_text("utf-8")
    two = mallang("inspect", run, SENTENCE, OTHER, "--tree", "--out", "trees", "-q", cwd=tmp_path)
    assert (two.code, two.out, two.err) == (0, "", "")
    assert sorted(path.name for path in (tmp_path / "trees").iterdir()) == ["1-tree.html", "2-tree.html"]


@pytest.mark.parametrize("method", ["greedy", "beam", "best-first"])
def test_the_numbers_are_those_of_the_output_that_translate_prints(trained: Path, tmp_path: Path, method: str) -> None:
    search = ("--search", f"method={method}")
    ended = mallang("inspect", trained, SENTENCE, "--tree", "--json", "--out", "tree.svg", *search, cwd=tmp_path)
    assert ended.code == 0, ended.err
    tree = json.loads(ended.out)
    made = json.loads(mallang("translate", trained, SENTENCE, "--json", *search, cwd=tmp_path).out)
    place, said = tree["outputs"][0], []
    assert tree["nodes"][place]["total"] == pytest.approx(made["score"], abs=1e-3)
    while tree["nodes"][place]["parent"] is not None:
        said.append(tree["nodes"][place]["token"])
        place = tree["nodes"][place]["parent"]
    assert said[::-1] == [*made["tokens"], "</s>"]
    assert (tree["format"], tree["method"], tree["input"]) == ("mallang-search-tree/1", method, SENTENCE)
    assert "<svg" in (tmp_path / "tree.svg").read_text("utf-8")


@pytest.mark.parametrize("way", [(), ("--tree",)])
def test_a_text_that_is_too_long_is_told(trained: Path, tmp_path: Path, way: tuple[str, ...]) -> None:
    ended = mallang("inspect", trained, " ".join([SENTENCE] * 20), *way, "--out", "page.html", cwd=tmp_path)
    assert ended.code == 2 and "Traceback" not in ended.err
    assert "but the model reads fewer than" in ended.err and "give it sentence by sentence" in ended.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--layer", "decoder.0.cross"], ["--layer has no effect on a search tree"]),
        (["--words"], ["--words has no effect"]),
        (["--out", "tree.doc"], ["tree.doc names no kind of picture"]),
        (["--search", "method=sampling"], ["method sampling has no search tree", "best-first"]),
        (["--search", "coverage=0.2"], ["coverage has no search tree"]),
        ([OTHER, "--out", "tree.html"], ["one search tree cannot show 2 texts", "--out FOLDER"]),
    ],
)
def test_mistakes_get_one_message(trained: Path, tmp_path: Path, options: list[str], words: list[str]) -> None:
    ended = mallang("inspect", trained, SENTENCE, "--tree", *options, cwd=tmp_path)
    assert ended.code == 2 and "Traceback" not in ended.err
    for word in words:
        assert word in ended.err
    assert list(tmp_path.iterdir()) == []


def test_a_run_of_a_task_without_search_is_told_so(writer: Path, tmp_path: Path) -> None:
    run = tmp_path / "backward"
    shutil.copytree(writer, run)
    info = json.loads((run / "run.json").read_text("utf-8"))
    recipe = (run / "recipe.toml").read_text("utf-8").replace('"language_modeling"', '"backward_language_modeling"')
    recipe = recipe.replace('layout = "stream"', 'layout = "sentences"').replace("\ncontext = 48\n", "\n")
    recipe = recipe.replace('order = "shuffled"', 'order = "sequential"')
    (run / "recipe.toml").write_text(recipe, "utf-8")
    (run / "run.json").write_text(json.dumps({**info, "task": "backward_language_modeling"}), "utf-8")
    ended = mallang("inspect", run, SENTENCE, "--tree", cwd=tmp_path)
    assert ended.code == 2 and "a run for backward language modeling" in ended.err, ended.err
    assert "searches for no output" in ended.err and "at once" not in ended.err
