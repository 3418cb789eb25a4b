"""The parts of the benchmark of n-grams that need nobody else's programs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are not installed
from benchmarks import ngram_speed  # noqa: E402
from benchmarks.contest import Outcome, high_water  # noqa: E402

TEXT = "a b c\nb c\n\na a b\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("train.txt", "test.txt"):
        (tmp_path / name).write_text(TEXT, "utf-8")
    return tmp_path


def test_text_is_read_with_both_ends_of_every_line(folder: Path) -> None:
    ids, places, words = ngram_speed.read_text(folder / "train.txt")
    assert " ".join(words[number] for number in ids) == "<s> a b c </s> <s> b c </s> <s> </s> <s> a a b </s>"
    assert places.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 0, 1, 0, 1, 2, 3, 4]


def test_all_of_ours_take_their_turns(folder: Path) -> None:
    assert ngram_speed.ours(str(folder))() == 8  # words, as lmplz counts them
    (folder / "ours.arpa").rename(folder / "model.arpa")
    for entrant in (ngram_speed.score_ids, ngram_speed.score_strings):
        assert entrant(str(folder), times=3)() == 3 * 12  # words and ends


def test_whole_commands_write_the_same_model(folder: Path) -> None:
    text = "".join(f"w{one} w{two} w{(one * two) % 7}\n" for one in range(9) for two in range(9))
    (folder / "train.txt").write_text(text, "utf-8")
    ngram_speed.ours(str(folder))()
    turn = ngram_speed.our_commands(str(folder))
    assert turn() == len(text.split()) and turn.peak() > 2**24  # type: ignore[attr-defined]
    written = [(folder / f"{name}.arpa").read_text("utf-8").splitlines() for name in ("ours", "commands")]
    assert sorted(filter(None, written[0])) == sorted(line for line in written[1] if line and line[0] != "#")


def test_a_program_that_fails_is_named(folder: Path) -> None:
    with pytest.raises(RuntimeError, match="false ended with code 1"):
        ngram_speed.theirs(str(folder), "false")()


def test_who_takes_part_and_how_they_compare(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entrants = ngram_speed.entrants_of(folder, "no-such-program", times=1)
    assert [entrant.label for entrant in entrants[ngram_speed.ESTIMATION]] == [
        "mallang", "mallang train and export",
    ]  # fmt: skip
    assert "--lmplz" in capsys.readouterr().out
    outcomes = {"mallang": Outcome(30.0, 2**20, "x"), "peer": Outcome(20.0, 2**21, "y")}
    assert ngram_speed.rows_of(outcomes, "peer") == [("mallang", 30.0, 1.0, 1.5, "x"), ("peer", 20.0, 2.0, 1.0, "y")]
    assert ngram_speed.rows_of(outcomes, "none")[0][3] == "?"


def test_a_process_knows_the_most_memory_it_had() -> None:
    assert high_water("self") > 2**20
    assert high_water(2**30) == 0
