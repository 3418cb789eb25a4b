"""Word by word from the command line: a lexicon of one's own, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands.running import mallang, write_corpus

FILES = ("data.train=train.tsv", "data.valid=valid.tsv", "data.test=valid.tsv")
WORDS = "민수는 Minsu\n지호는 Jiho\n책을 books\n물을 water\n본다 sees\n먹는다 eats\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write_corpus(tmp_path, rows=40)
    (tmp_path / "words.txt").write_text(WORDS, "utf-8")
    return tmp_path


def test_a_lexicon_of_ones_own_translates(home: Path) -> None:
    ended = mallang("train", "lexicon-miniworld", *FILES, "model.file=words.txt", cwd=home)
    assert ended.code == 0, ended.err
    ended = mallang("translate", "runs/lexicon-miniworld", "지호는 책을 본다.", cwd=home)
    assert (ended.code, ended.out) == (0, "Jiho books sees.\n")
    ended = mallang("evaluate", "runs/lexicon-miniworld", "-q", cwd=home)
    assert ended.code == 0 and "exact match" in ended.out


def test_bad_input_is_one_message(home: Path) -> None:
    (home / "words.txt").write_text(f"{WORDS}산다\n", "utf-8")
    for overrides, told in (
        (["model.file=words.txt"], ["a line must hold a source word", "words.txt, line 7"]),
        (["model.file=none.txt"], ["there is no lexicon none.txt"]),
        (
            ["train.steps=9", "optimizer.learning_rate=1"],
            ["no effect: train.steps = 9, optimizer.learning_rate = 1", "leave it out"],
        ),
    ):
        ended = mallang("train", "lexicon-miniworld", *FILES, *overrides, cwd=home)
        assert ended.code == 2 and "Traceback" not in ended.err, ended.err
        assert all(part in ended.err for part in told), ended.err
