from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.toy_models import tiny_vocabulary
from mallang.decoding import ranking
from mallang.decoding.contract import Config, Hypothesis
from mallang.decoding.ranking import best, best_sums, hypothesis, penalty, ranked
from mallang.errors import UserError
from mallang.layers import native

few_values = st.sampled_from([-math.inf, -2.0, -1.0, 0.0, 1.0])


@st.composite
def tables(draw: st.DrawFn) -> torch.Tensor:
    width = draw(st.integers(1, 40))
    rows = draw(st.lists(st.lists(few_values, min_size=width, max_size=width), min_size=1, max_size=4))
    return torch.tensor(rows)


@pytest.fixture(params=["kernels", "torch"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With kernels of our own, where this machine has them, and without."""
    if request.param == "torch":
        monkeypatch.setattr(native, "library", lambda: None)


@pytest.mark.usefixtures("either_way")
@given(scores=tables(), data=st.data())
@settings(deadline=None)
def test_the_best_where_many_are_equal(scores: torch.Tensor, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, scores.shape[1]))
    values, places = best(scores, count)
    for row, row_values, row_places in zip(scores.tolist(), values.tolist(), places.tolist(), strict=True):
        expected = sorted(range(len(row)), key=lambda place: (-row[place], place))[:count]
        assert row_places == expected
        assert row_values == [row[place] for place in expected]


@pytest.mark.usefixtures("either_way")
@given(scores=tables(), data=st.data(), block=st.integers(1, 6))
@settings(deadline=None)
def test_looking_into_blocks_finds_the_same(scores: torch.Tensor, data: st.DataObject, block: int) -> None:
    """Long rows are searched block by block, short ones sorted: whichever way, the same places."""
    count = data.draw(st.integers(1, scores.shape[1]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "BLOCK", 1000)
        expected = best(scores, count)
        patch.setattr(ranking, "SHORT", data.draw(st.sampled_from([0, 64])))
        patch.setattr(ranking, "BLOCK", block)
        if scores.shape[1] >= 4 * block * count:
            for found, value in zip(best(scores, count), expected, strict=True):
                assert torch.equal(found, value)


@pytest.mark.usefixtures("either_way")
@given(scores=tables(), data=st.data(), block=st.sampled_from([1, 2, 5, 64]))
@settings(deadline=None)
def test_the_best_sums_are_those_of_the_whole_table(scores: torch.Tensor, data: st.DataObject, block: int) -> None:
    """Ties go to the earlier row and the lower place; what is not a number never wins."""
    rows, size = scores.shape
    totals = torch.tensor([data.draw(st.lists(few_values, min_size=rows, max_size=rows))], dtype=torch.float64)
    broken = scores.clone()
    if data.draw(st.booleans()):
        broken[0] = math.nan
        scores[0] = -math.inf
    count = data.draw(st.integers(1, min(rows * size, 6)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "BLOCK", block)
        values, places = best_sums(totals, broken, count)
    table = (totals[0, :, None] + scores).flatten().tolist()
    expected = sorted(range(len(table)), key=lambda place: (-table[place], place))[:count]
    assert values[0].tolist() == [table[place] for place in expected]
    assert places[0].tolist() == expected


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("places", [64 * 9, 64 * 9 + 1, 64 * 9 + 63])
@pytest.mark.parametrize("width", [1, 3])
def test_the_last_place_is_found_once(width: int, places: int) -> None:
    """The last block of a row may be short: what would lie beyond it is no place, least of all its last one again."""
    scores = torch.linspace(-9.0, -8.0, places).repeat(width, 1)
    scores[:, -1] = 0.0
    totals = -torch.arange(width, dtype=torch.float64)[None] / 4
    values, found = best_sums(totals, scores, 2)
    expected = [places - 1, 2 * places - 1] if width > 1 else [places - 1, places - 2]
    assert found.tolist() == [expected]
    assert values[0].tolist() == [0.0, -0.25] if width > 1 else values[0, 0] == 0.0
    assert best(scores, 2)[1].tolist() == [[places - 1, places - 2]] * width


def test_rows_are_sorted_only_where_the_best_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError

    scores = torch.arange(100.0)[None]
    tied = torch.cat([scores, scores[:, -1:]], dim=1)
    monkeypatch.setattr(torch.Tensor, "sort", refuse)
    assert best(scores, 2)[1].tolist() == [[99, 98]]
    assert best(tied, 1)[1].tolist() == [[99]]
    with pytest.raises(AssertionError):
        best(tied, 2)


def test_length_penalties() -> None:
    assert penalty(7, Config(length_penalty="average")) == 7
    assert penalty(7, Config(length_penalty="gnmt")) == pytest.approx(2**0.6)
    assert penalty(1, Config(length_penalty="gnmt")) == 1
    assert penalty(7, Config(length_penalty="gnmt", alpha=0.0)) == 1
    assert penalty(7, Config(length_penalty="none")) == 1


def test_a_hypothesis_from_what_was_said() -> None:
    vocabulary = tiny_vocabulary(2)
    ended = hypothesis([4, 5, 3, 0, 0], [-1.0, -2.0, -3.0, 0.0, 0.0], vocabulary, Config())
    assert ended == Hypothesis((4, 5), -6.0, -2.0, True, (-1.0, -2.0, -3.0))
    cut = hypothesis([4, 5], [-1.0, -2.0], vocabulary, Config(length_penalty="none"))
    assert cut == Hypothesis((4, 5), -3.0, -3.0, False, (-1.0, -2.0))
    empty = hypothesis([3], [-0.5], vocabulary, Config())
    assert empty == Hypothesis((), -0.5, -0.5, True, (-0.5,))


@pytest.mark.parametrize(
    ("labels", "scores"),
    [([], []), ([0], [0.0]), ([4], [math.nan]), ([4], [-math.inf]), ([4, 0, 0], [-1.0, -math.inf, 0.0])],
)
def test_what_has_no_probability_is_no_output(labels: list[int], scores: list[float]) -> None:
    with pytest.raises(UserError, match="no output a probability"):
        hypothesis(labels, scores, tiny_vocabulary(2), Config())


def test_ranked_keeps_equals_in_order() -> None:
    many = [Hypothesis((number,), -1.0, value, True, (-1.0,)) for number, value in enumerate([-2.0, -1.0, -2.0, -1.0])]
    assert [one.tokens[0] for one in ranked(many)] == [1, 3, 0, 2]
