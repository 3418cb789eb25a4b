"""The benchmark of recurrent models at a shape that takes no time."""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # the benchmarks are not installed
from benchmarks import recurrent_entrants, recurrent_speed
from benchmarks.contest import Entrant, Outcome
from benchmarks.shape import BASE, SMALL, Shape

TINY = Shape(layers=1, dim=8, hidden_dim=16, heads=2, words=40, dropout=0.1, sentences=3, source=5, target=6)


@pytest.mark.parametrize("entrant", recurrent_speed.entrants_of(TINY, 2, "cpu"), ids=lambda each: each.label)
def test_everyone_trains(entrant: Entrant) -> None:
    function = entrant.place.partition(":")[2]
    turn = getattr(recurrent_entrants, function)(**entrant.options)
    assert turn() == 2 * 3 * 6


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_entrant_names_a_function_and_its_options(device: str) -> None:
    entrants = recurrent_speed.entrants_of(TINY, 2, device)
    assert set(recurrent_speed.BESIDE) | set(recurrent_speed.BESIDE.values()) <= {each.label for each in entrants}
    for each in entrants:
        module, _, function = each.place.partition(":")
        inspect.signature(getattr(import_module(module), function)).bind(**each.options)


@pytest.mark.parametrize("shape", [SMALL, BASE])
def test_convs2s_has_as_many_parameters_as_the_transformer(shape: Shape) -> None:
    models = recurrent_speed.models_of(shape, 2)
    count = {
        label: sum(each.numel() for each in recurrent_entrants.build(*models[label], words=100).parameters())
        for label in ("transformer", "convs2s")
    }
    assert count["convs2s"] == pytest.approx(count["transformer"], rel=0.08)


def test_a_ratio_is_to_the_best_form_of_the_other() -> None:
    rates = {
        "transformer": 10.0, "transformer compiled": 20.0, "convs2s": 15.0, "bare LSTM loop": 1.0,
        "bare LSTM loop as a CUDA graph": 4.0, "luong": 3.0,
    }  # fmt: skip
    rows = recurrent_speed.rows_of({label: Outcome(rate, 2**20, "") for label, rate in rates.items()})
    ratios = {label: ratio for label, _, _, _, ratio in rows}
    assert ratios == {
        "transformer": "", "transformer compiled": "", "convs2s": 0.75, "bare LSTM loop": "", "luong": 0.75,
        "bare LSTM loop as a CUDA graph": "",
    }  # fmt: skip
