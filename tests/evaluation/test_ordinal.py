"""Ordered classes against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from mallang.evaluation.ordinal import ordinal_scores, quadratic_kappa, values_of

some = settings(deadline=None, max_examples=25)


@given(st.integers(2, 40), st.integers(2, 6), st.integers(0, 1000))
@some
def test_scores_are_those_of_scikit_learn(items, classes, seed):
    random = np.random.default_rng(seed)
    golds = random.integers(0, classes, items)
    outputs = np.clip(golds + random.integers(-1, 2, items), 0, classes - 1)
    names = tuple(str(number + 1) for number in range(classes))
    found = ordinal_scores(outputs, golds, names)
    assert found["MAE"].value == pytest.approx(metrics.mean_absolute_error(golds, outputs))
    if len({*golds, *outputs}) > 1:
        theirs = metrics.cohen_kappa_score(golds, outputs, labels=range(classes), weights="quadratic")
        assert found["quadratic kappa"].value == pytest.approx(100 * theirs)
    for score in found.values():
        assert score.low <= score.value + 1e-9 and score.value - 1e-9 <= score.high and score.count == items


def test_numbers_are_a_scale_and_names_are_ranks():
    assert values_of(("1", "2", "7"))[0].tolist() == [1, 2, 7] and values_of(("low", "high"))[0].tolist() == [0, 1]
    scores = [
        ordinal_scores(np.array([2]), np.array([0]), names)["MAE"] for names in (("1", "2", "7"), ("a", "b", "c"))
    ]
    assert [score.value for score in scores] == [6, 2]
    assert [score.signature.rpartition("|")[2] for score in scores] == ["distance:values", "distance:ranks"]
    assert values_of(("1", "nan"))[1] == "ranks"


def test_one_class_alone_is_agreed_on():
    assert quadratic_kappa(np.array([[[5.0, 0.0], [0.0, 0.0]]]))[0] == 100
