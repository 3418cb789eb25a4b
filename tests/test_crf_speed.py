"""The benchmark of the CRF: what it times, without timing it."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # the benchmarks are not installed
from benchmarks import crf_speed
from benchmarks.contest import Outcome


@pytest.mark.parametrize("work", crf_speed.WORK)
def test_a_turn_is_all_words_of_its_batches(work: str) -> None:
    lengths = crf_speed.emissions_of(3, "cpu")[3]
    assert crf_speed.ours(work, tags=3, times=2, device="cpu")() == 2 * sum(lengths)
    for entrant in crf_speed.entrants_of(work, 3, 2, "cpu", 1):
        inspect.signature(getattr(crf_speed, entrant.place.partition(":")[2])).bind(**entrant.options)


def test_a_ratio_is_to_the_peer() -> None:
    outcomes = {crf_speed.PEER: Outcome(10.0, 2**20, ""), "mallang": Outcome(25.0, 2**21, "")}
    assert crf_speed.rows_of(outcomes) == [(crf_speed.PEER, 10.0, 1.0, 1.0), ("mallang", 25.0, 2.0, 2.5)]
    assert crf_speed.rows_of({"mallang": Outcome(25.0, 2**21, "")})[0][3] == "?"
