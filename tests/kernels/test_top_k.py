"""Stable top-k finds what a stable sort of the whole table finds, by blocks or at once."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.kernels import top_k as module
from mallang.kernels.top_k import top_k, top_k_sums

few_values = st.sampled_from([-math.inf, -2.0, -1.0, 0.0, 1.0])


@st.composite
def tables(draw: st.DrawFn) -> torch.Tensor:
    width = draw(st.integers(1, 40))
    rows = draw(st.lists(st.lists(few_values, min_size=width, max_size=width), min_size=1, max_size=4))
    return torch.tensor(rows)


@given(scores=tables(), data=st.data())
@settings(deadline=None)
def test_the_best_where_many_are_equal(scores: torch.Tensor, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, scores.shape[1]))
    values, places = top_k(scores, count)
    for row, row_values, row_places in zip(scores.tolist(), values.tolist(), places.tolist(), strict=True):
        expected = sorted(range(len(row)), key=lambda place: (-row[place], place))[:count]
        assert row_places == expected
        assert row_values == [row[place] for place in expected]


@given(scores=tables(), data=st.data(), block=st.integers(1, 6))
@settings(deadline=None)
def test_looking_into_blocks_finds_the_same(scores: torch.Tensor, data: st.DataObject, block: int) -> None:
    """Long rows are searched block by block, short ones sorted: whichever way, the same places."""
    count = data.draw(st.integers(1, scores.shape[1]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", 1000)
        expected = top_k(scores, count)
        patch.setattr(module, "SHORT", data.draw(st.sampled_from([0, 64])))
        patch.setattr(module, "BLOCK", block)
        if scores.shape[1] >= 4 * block * count:
            for found, value in zip(top_k(scores, count), expected, strict=True):
                assert torch.equal(found, value)


@given(scores=tables(), data=st.data(), block=st.sampled_from([1, 2, 5, 64]))
@settings(deadline=None)
def test_the_best_sums_are_those_of_the_whole_table(scores: torch.Tensor, data: st.DataObject, block: int) -> None:
    """Ties go to the earlier row and the lower place; NaN never wins."""
    rows, size = scores.shape
    totals = torch.tensor([data.draw(st.lists(few_values, min_size=rows, max_size=rows))], dtype=torch.float64)
    broken = scores.clone()
    if data.draw(st.booleans()):
        broken[0] = math.nan
        scores[0] = -math.inf
    count = data.draw(st.integers(1, min(rows * size, 6)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        values, places = top_k_sums(totals, broken, count)
    table = (totals[0, :, None] + scores).flatten().tolist()
    expected = sorted(range(len(table)), key=lambda place: (-table[place], place))[:count]
    assert values[0].tolist() == [table[place] for place in expected]
    assert places[0].tolist() == expected


@pytest.mark.parametrize("places", [64 * 9, 64 * 9 + 1, 64 * 9 + 63])
@pytest.mark.parametrize("width", [1, 3])
def test_the_last_place_is_found_once(width: int, places: int) -> None:
    """The last block of a row may be short: what would lie beyond it is no place, least of all its last one again."""
    scores = torch.linspace(-9.0, -8.0, places).repeat(width, 1)
    scores[:, -1] = 0.0
    totals = -torch.arange(width, dtype=torch.float64)[None] / 4
    values, found = top_k_sums(totals, scores, 2)
    expected = [places - 1, 2 * places - 1] if width > 1 else [places - 1, places - 2]
    assert found.tolist() == [expected]
    assert values[0].tolist() == [0.0, -0.25] if width > 1 else values[0, 0] == 0.0
    assert top_k(scores, 2)[1].tolist() == [[places - 1, places - 2]] * width


def test_rows_are_sorted_only_where_the_best_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError

    scores = torch.arange(100.0)[None]
    tied = torch.cat([scores, scores[:, -1:]], dim=1)
    monkeypatch.setattr(torch.Tensor, "sort", refuse)
    assert top_k(scores, 2)[1].tolist() == [[99, 98]]
    assert top_k(tied, 1)[1].tolist() == [[99]]
    with pytest.raises(AssertionError):
        top_k(tied, 2)
