"""The benchmark of word vectors: what it trains and scores, without timing it."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # the benchmarks are not installed
from benchmarks import word_vectors_speed
from benchmarks.contest import Outcome

LINES = ["the king rules the land", "the queen rules the land", "a dog barks at the cat"] * 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text("".join(f"{line}\n" for line in LINES), "utf-8")
    return tmp_path


def test_the_text_is_lower_cased_and_has_no_unknown_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mallang.data import corpus

    class Opened:
        def split(self, name: str) -> list[tuple[str]]:
            assert name == "train"
            return [("The <unk> King",), ("",), ("rules",)]

    monkeypatch.setattr(corpus, "open_corpus", lambda *_: Opened())
    assert word_vectors_speed.write_text("any", tmp_path / "text.txt") == 3
    assert (tmp_path / "text.txt").read_text("utf-8") == "the king\nrules\n"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_entrants_have_their_options(folder: Path, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_vectors_speed.os, "cpu_count", lambda: 16)
    found = word_vectors_speed.entrants_of(folder, device, 2, 3)
    for entrant in found:
        inspect.signature(getattr(word_vectors_speed, entrant.place.partition(":")[2])).bind(**entrant.options)
    assert len({entrant.label for entrant in found}) == len(found)
    assert len(found) == (3 if device == "cpu" else 4)


def test_a_turn_trains_and_its_vectors_are_kept_for_the_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_vectors_speed.os, "sched_setaffinity", lambda *_: None)
    label = word_vectors_speed.OURS["cpu"]
    turn = word_vectors_speed.Ours(str(folder), label, 3, 2, "cpu")
    words = sum(len(line.split()) for line in LINES)
    tenth = sum(len(line.split()) for line in LINES[: len(LINES) // 10])
    assert [turn() for _ in range(4)] == [tenth, tenth, 3 * words, 3 * words]
    assert turn.peak() > 2**20
    name = word_vectors_speed.file_name(label)
    first, second = (np.load(folder / f"{name}-{seed}.npy") for seed in (1, 2))
    assert first.shape == second.shape == (len(turn.vocabulary), word_vectors_speed.DIM)
    assert not np.array_equal(first, second)
    assert (folder / f"{name}.words").read_text("utf-8").split() == list(turn.vocabulary.tokens)


def test_gensim_trains_on_the_same_words(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gensim")
    monkeypatch.setattr(word_vectors_speed.os, "sched_setaffinity", lambda *_: None)
    ours = word_vectors_speed.Ours(str(folder), "ours", 1, 1, "cpu")
    theirs = word_vectors_speed.Theirs(str(folder), "theirs", 1, 1, 1, from_file=False)
    for _ in range(3):
        theirs()
    assert theirs.peak() > 2**20
    words = (folder / "theirs.words").read_text("utf-8").split()
    assert sorted(words) == sorted(ours.vocabulary.tokens[4:])
    assert np.load(folder / "theirs-1.npy").shape == (len(words), word_vectors_speed.DIM)


def test_a_score_is_the_mean_over_seeds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mallang.tasks import word_lists

    (folder / "x.words").write_text("a\nb\nc\n", "utf-8")
    np.save(folder / "x-1.npy", np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]))
    np.save(folder / "x-2.npy", np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1]]))
    rows = [("a", "B", 9.0), ("a", "c", 1.0), ("a", "unseen", 5.0)]
    monkeypatch.setattr(word_lists, "similarity_lists", lambda: iter([("ws-353-all", rows), ("other", rows)]))
    assert word_vectors_speed.scores_of(folder, "x", 1) == {"ws-353-all": 100.0, "men-tr-3k": 0.0}
    assert word_vectors_speed.scores_of(folder, "x", 2)["ws-353-all"] == 0.0


def test_a_ratio_is_to_the_faster_form_of_gensim_on_two_cores() -> None:
    rates = {
        "mallang, GPU": 60.0,
        "gensim, 2 cores": 5.0,
        "gensim, 2 cores, corpus_file": 6.0,
        "gensim, 16 cores": 20.0,
    }
    rows = word_vectors_speed.rows_of({label: Outcome(rate, 2**20, "") for label, rate in rates.items()})
    assert [ratio for *_, ratio in rows] == [10.0, 0.83, 1.0, 3.33]
    assert word_vectors_speed.rows_of({"mallang, GPU": Outcome(1.0, 0, "")})[0][3] == "?"
