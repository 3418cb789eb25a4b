"""The files that a run was trained on are found from another folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from mallang.data.corpus import Config, open_corpus
from mallang.runs.data_places import located, places_of


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the training; the current one is another."""
    for name in ("home", "here"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("MALLANG_DATA", raising=False)
    return tmp_path / "home"


def places(home: Path) -> list[Path]:
    return places_of(home / "runs" / "x", {"trained_in": {"folder": str(home), "from_run": "../.."}})


def test_files_among_several_corpora(home: Path) -> None:
    for name in ("my.tsv", "more.ko", "more.en", "miniworld.tsv"):
        (home / name).write_text("하나\tone\n", "utf-8")
    data = Config(corpora={"miniworld": 1.0, "my.tsv": 2.0, "./my.tsv": 1.0, "more": 0.5}, domains={"my.tsv": "own"})
    found = located(data, places(home))
    assert found.corpora == {"miniworld": 1.0, f"{home}/my.tsv": 2.0, f"{home}/./my.tsv": 1.0, f"{home}/more": 0.5}
    assert found.domains == {f"{home}/my.tsv": "own"}
    own = located(Config(corpora={"miniworld": 1.0, "my.tsv": 2.0}), places(home))
    assert ("하나", "one") in open_corpus(own, ("source", "target")).split("train")


def test_names_of_corpora_and_files_found_nowhere_stay(home: Path) -> None:
    data = Config(corpora={"miniworld": 1.0, "tatoeba-kor-eng": 2.0, "lost.tsv": 1.0})
    (home / "tatoeba-kor-eng.tsv").write_text("하나\tone\n", "utf-8")
    assert located(data, places(home)) == data


@pytest.mark.parametrize("copy", ["train.tsv.bak", "train.tsv.gz"])
def test_a_copy_is_not_taken_for_the_file(home: Path, copy: str) -> None:
    beside, current = home, Path.cwd()
    (beside / copy).write_text("old", "utf-8")
    (current / "train.tsv").write_text("하나\tone\n", "utf-8")
    assert located(Config(train="train.tsv"), places(home)).train == "train.tsv", "as it lies here"
    (current / "train.tsv").rename(current / copy)
    (beside / "train.tsv").write_text("하나\tone\n", "utf-8")
    assert located(Config(train="train.tsv"), [current, beside]).train == f"{beside}/train.tsv"


def test_a_stem_is_found_where_no_place_has_the_file_itself(home: Path) -> None:
    for name in ("train.ko", "train.en"):
        (home / name).write_text("하나\n", "utf-8")
    assert located(Config(train="train"), places(home)).train == f"{home}/train"
    assert located(Config(train=["train.ko", "train.en"]), places(home)).train == [
        f"{home}/train.ko",
        f"{home}/train.en",
    ]
