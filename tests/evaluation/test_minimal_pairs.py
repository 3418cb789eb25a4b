"""Which of two texts a model prefers: counted by hand, ties wrong."""

from __future__ import annotations

import math

import pytest

from mallang.errors import UserError
from mallang.evaluation.minimal_pairs import Preference, accuracy


def prefer(better: float, worse: float) -> Preference:
    return Preference("a dog barks", "a dog bark", better, worse)


@pytest.mark.parametrize(
    ("better", "worse", "right", "margin"),
    [(-1.0, -2.0, True, 1.0), (-2.0, -1.0, False, -1.0), (-1.5, -1.5, False, 0.0), (-math.inf, -math.inf, False, 0.0)],
)
def test_a_pair_is_right_where_the_better_text_is_more_probable(
    better: float, worse: float, right: bool, margin: float
) -> None:
    """Who always says the same of both texts prefers none: that is wrong, or it would be right everywhere."""
    assert prefer(better, worse).is_right is right
    assert prefer(better, worse).margin == margin


def test_the_accuracy_is_the_share_of_right_pairs() -> None:
    score = accuracy(
        [prefer(-1.0, -2.0), prefer(-2.0, -1.0), prefer(-1.0, -1.0), prefer(-3.0, -4.0)], by="token", name="agreement"
    )
    assert score.value == 50.0 and score.name == "agreement"
    assert "by:token" in score.signature and "ties:wrong" in score.signature
    assert accuracy([prefer(-1.0, -1.0)] * 5).value == 0.0
    with pytest.raises(UserError, match="no pairs"):
        accuracy([])
