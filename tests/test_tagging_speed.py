"""The benchmark of tagging: what it times, without timing it."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # the benchmarks are not installed
from benchmarks import tagging_speed
from benchmarks.contest import Outcome

from mallang.evaluation.spans import read_spans

TAGS = ["I-PER", "I-PER", "O", "I-LOC", "B-LOC", "I-ORG", "O", "B-MISC", "I-MISC", "I-PER"]


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiny CoNLL-2003."""
    (tmp_path / "conll2003").mkdir()
    sentence = "".join(f"w{number} NN I-NP {tag}\n" for number, tag in enumerate(TAGS))
    for name in ("eng.train", "eng.testb"):
        content = f"-DOCSTART- -X- O O\n\n{sentence}\n{sentence}\nEU NNP I-NP I-ORG\n"
        (tmp_path / "conll2003" / name).write_text(content)
    monkeypatch.setenv("MALLANG_DATA", str(tmp_path))
    monkeypatch.setattr(tagging_speed, "TRAINING", 1)


def test_a_turn_tags_every_sentence(corpus: None) -> None:
    assert tagging_speed.conll("train", 2) == [([f"w{number}" for number in range(10)], TAGS)] * 2
    assert tagging_speed.ours(sentences=3, device="cpu", threads=1)() == 3
    for entrant in tagging_speed.entrants_of(3, "cpu", 1):
        inspect.signature(getattr(tagging_speed, entrant.place.partition(":")[2])).bind(**entrant.options)


def test_flair_is_trained_on_the_same_spans() -> None:
    assert tagging_speed.spans_of(TAGS) == read_spans(TAGS)


def test_a_ratio_is_that_of_mallang_to_the_others() -> None:
    outcomes = {"flair": Outcome(10.0, 2**20, ""), "mallang": Outcome(35.0, 2**21, "")}
    assert tagging_speed.rows_of(outcomes) == [("flair", 10.0, 1.0, 3.5), ("mallang", 35.0, 2.0, 1.0)]
