from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.toy_models import tiny_vocabulary
from mallang.decoding import ranking
from mallang.decoding.contract import Config, Hypothesis
from mallang.decoding.ranking import best, hypothesis, penalty, ranked
from mallang.errors import UserError

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
    values, places = best(scores, count)
    for row, row_values, row_places in zip(scores.tolist(), values.tolist(), places.tolist(), strict=True):
        expected = sorted(range(len(row)), key=lambda place: (-row[place], place))[:count]
        assert row_places == expected
        assert row_values == [row[place] for place in expected]


@given(scores=tables(), data=st.data())
@settings(deadline=None)
def test_the_second_pass_alone_finds_the_same(scores: torch.Tensor, data: st.DataObject) -> None:
    """On a GPU it is always taken, tie or no tie."""
    count = data.draw(st.integers(1, scores.shape[1]))
    threshold = scores.sort(dim=1, descending=True).values[:, count - 1 : count]
    places = ranking._first_of_equals(scores, threshold, count)
    assert places.sort(dim=1).values.tolist() == best(scores, count)[1].sort(dim=1).values.tolist()


def test_the_second_pass_is_taken_only_where_a_tie_straddles(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(ranking, "_first_of_equals", refuse)
    scores = torch.tensor([[3.0, 3.0, 2.0, 1.0, 1.0]])
    assert best(scores, 2)[1].tolist() == [[0, 1]]
    assert best(scores, 3)[1].tolist() == [[0, 1, 2]]
    assert best(scores, 5)[1].tolist() == [[0, 1, 2, 3, 4]]
    with pytest.raises(AssertionError):
        best(scores, 1)
    with pytest.raises(AssertionError):
        best(scores, 4)


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


@pytest.mark.parametrize(("labels", "scores"), [([], []), ([0], [0.0]), ([4], [math.nan]), ([4], [-math.inf])])
def test_what_has_no_probability_is_no_output(labels: list[int], scores: list[float]) -> None:
    with pytest.raises(UserError, match="no output a probability"):
        hypothesis(labels, scores, tiny_vocabulary(2), Config())


def test_ranked_keeps_equals_in_order() -> None:
    many = [Hypothesis((number,), -1.0, value, True, (-1.0,)) for number, value in enumerate([-2.0, -1.0, -2.0, -1.0])]
    assert [one.tokens[0] for one in ranked(many)] == [1, 3, 0, 2]
