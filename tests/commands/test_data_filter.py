"""`mallang data filter`: what is kept, what is reported, and what is refused before any work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands.running import mallang

PAGES = [("a page about ships", 5), ("an empty page", 1), ("a page about pears", 3)]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    lines = [json.dumps({"text": text, "karma": karma}) for text, karma in PAGES]
    (tmp_path / "pages.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    (tmp_path / "good.txt").write_text("a page about ships\na page about apples\n" * 5, "utf-8")
    return tmp_path


def test_by_a_number_and_by_a_classifier(home: Path) -> None:
    ended = mallang("data", "filter", "pages.jsonl", "kept.jsonl", "--minimum", "karma=3", cwd=home)
    assert ended.code == 0, ended.err
    assert ended.out == "3 read, 2 kept (66.7%)\n  dropped: 1 with karma below 3; the first is number 2\n"
    lines = (home / "pages.jsonl").read_text("utf-8").splitlines()
    assert (home / "kept.jsonl").read_text("utf-8").splitlines() == [lines[0], lines[2]]
    ended = mallang(
        "data", "filter", "pages.jsonl", "best.jsonl", "--like", "good.txt", "--keep", "0.34", "--json", cwd=home
    )
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["kept"] == 1 and "ships" in (home / "best.jsonl").read_text("utf-8")
    ended = mallang("data", "filter", "pages.jsonl", "best.jsonl", "--minimum", "karma=3", cwd=home)
    assert ended.code == 2 and "best.jsonl is there already" in ended.err, ended.err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("pages.jsonl", "o"), "nothing says what to keep"),
        (("pages.jsonl", "o", "--minimum", "karma"), "not a column and a number"),
        (("pages.jsonl", "o", "--minimum", "karma=3", "--keep", "0.5"), "--keep has no effect without a classifier"),
        (("pages.jsonl", "o", "--like", "good.txt"), "a score alone keeps nothing"),
        (("pages.jsonl", "o", "--like", "none.txt", "--keep", "0.5"), "there is no file none.txt"),
        (("page.jsonl", "o", "--minimum", "karma=3"), "there is no file page.jsonl"),
        (("pages.jsonl", "-", "--minimum", "karma=3"), "give the name of a file"),
        (("pages.jsonl", "o", "--like", "good.txt", "--keep", "0.5", "--seed", "4"), "--seed 4 has no effect"),
        (("pages.jsonl", "o", "--minimum", "karma=3", "--seed", "4"), "--seed 4 has no effect"),
        (("pages.jsonl", "nowhere/o", "--minimum", "karma=3"), "nowhere/o cannot be written"),
    ],
)
def test_bad_input(home: Path, given: tuple[str, ...], message: str) -> None:
    ended = mallang("data", "filter", *given, cwd=home)
    assert ended.code == 2 and message in ended.err and "Traceback" not in ended.err, ended.err
    assert not (home / "o").exists() and not (home / "-").exists()
