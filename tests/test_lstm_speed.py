"""The benchmark of recurrent language models at a shape that takes no time."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # the benchmarks are not installed
from benchmarks import lstm_speed
from benchmarks.contest import Entrant, Outcome

TINY = lstm_speed.Shape(layers=2, dim=8, words=40, rows=3, time=6)


@pytest.mark.parametrize("entrant", lstm_speed.entrants_of(TINY, 2, "cpu"), ids=lambda each: each.label)
def test_everyone_trains(entrant: Entrant) -> None:
    function = getattr(lstm_speed, entrant.place.partition(":")[2])
    inspect.signature(function).bind(**entrant.options)
    assert function(**entrant.options)() == 2 * 3 * 6


def test_on_a_gpu_the_bare_loop_is_a_graph_too() -> None:
    (entrant,) = [each for each in lstm_speed.entrants_of(TINY, 2, "cuda") if each.label == lstm_speed.BARE_GRAPH]
    inspect.signature(lstm_speed.bare).bind(**entrant.options)
    rates = {lstm_speed.BARE: 5.0, lstm_speed.BARE_GRAPH: 10.0, "rnn_lm": 15.0}
    rows = lstm_speed.rows_of({label: Outcome(rate, 2**20, "") for label, rate in rates.items()})
    assert [ratio for *_, ratio in rows] == [0.5, 1.0, 1.5]


def test_a_ratio_is_to_the_bare_loop() -> None:
    rows = lstm_speed.rows_of({lstm_speed.BARE: Outcome(10.0, 2**20, ""), "rnn_lm": Outcome(15.0, 2**21, "")})
    assert rows == [(lstm_speed.BARE, 10.0, 1.0, 1.0), ("rnn_lm", 15.0, 2.0, 1.5)]
