from __future__ import annotations

import math

import pytest

from contracts.toy_models import tiny_vocabulary
from mallang.decoding.contract import Config, Hypothesis
from mallang.decoding.ranking import hypothesis, penalty, ranked
from mallang.errors import UserError


def test_length_penalties() -> None:
    assert penalty(7, Config(length_penalty="average")) == 7
    assert penalty(7, Config(length_penalty="gnmt")) == pytest.approx(2**0.6)
    assert penalty(1, Config(length_penalty="gnmt")) == 1
    assert penalty(7, Config(length_penalty="gnmt", alpha=0.0)) == 1
    assert penalty(7, Config(length_penalty="none")) == 1


def test_a_hypothesis_from_generated_tokens() -> None:
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
    with pytest.raises(UserError, match="no output has a finite score"):
        hypothesis(labels, scores, tiny_vocabulary(2), Config())


def test_ranked_keeps_equals_in_order() -> None:
    many = [Hypothesis((number,), -1.0, value, True, (-1.0,)) for number, value in enumerate([-2.0, -1.0, -2.0, -1.0])]
    assert [one.tokens[0] for one in ranked(many)] == [1, 3, 0, 2]
