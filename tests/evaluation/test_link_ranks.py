"""Filtered ranks against the definition."""

from __future__ import annotations

import numpy as np
import pytest

from mallang.evaluation.link_ranks import filtered_rank, link_scores


def test_ranks_by_hand() -> None:
    scores = np.array([5.0, 4.0, 4.0, 4.0, 1.0])
    assert filtered_rank(scores, 0, []) == (1.0, 5)
    assert filtered_rank(scores, 2, []) == (3.0, 5), "one is better, three share ranks 2, 3 and 4"
    assert filtered_rank(scores, 2, [0, 1, 2]) == (1.5, 3), "other known answers are left out, the answer itself is not"
    assert filtered_rank(np.zeros(9), 4, [])[0] == 5.0, "one score for everything gains nothing"


def test_scores_of_ranks() -> None:
    found = {score.name: score for score in link_scores(np.array([1.0, 2.0, 4.0, 20.0]), "x")}
    assert found["MRR"].value == pytest.approx(100 * (1 + 1 / 2 + 1 / 4 + 1 / 20) / 4)
    assert [found[f"hits@{k}"].value for k in (1, 3, 10)] == [25.0, 50.0, 75.0]
    assert found["mean rank"].value == 6.75
    low, high = found["MRR"].low, found["MRR"].high
    assert low is not None and high is not None and low < found["MRR"].value < high
