"""Correlations against scipy, and their intervals against resampling and ranking in plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.errors import UserError
from mallang.evaluation.correlation import correlation_scores, pearson, ranks
from mallang.evaluation.score import SEED

stats = pytest.importorskip("scipy.stats")  # scikit-learn brings it
numbers = st.lists(st.tuples(st.integers(0, 5), st.integers(-3, 3)), min_size=2, max_size=30)


@given(numbers)
@settings(deadline=None, max_examples=60)
def test_they_are_those_of_scipy(pairs):
    x, y = np.array(pairs, dtype=float).T
    ones = np.ones(len(x))
    groups = [np.unique(each, return_inverse=True)[1] for each in (x, y)]
    assert ranks(groups[0], ones) == pytest.approx(stats.rankdata(x))
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        assert pearson(x, y, ones) == 0
        return
    assert pearson(x, y, ones) == pytest.approx(stats.pearsonr(x, y).statistic)
    found = pearson(*(ranks(group, ones) for group in groups), ones)
    assert found == pytest.approx(stats.spearmanr(x, y).statistic)


@given(numbers, st.integers(0, 100))
@settings(deadline=None, max_examples=60)
def test_numbers_that_occur_several_times_have_the_ranks_of_copies(pairs, seed):
    x = np.array(pairs, dtype=float)[:, 0]
    times = np.random.default_rng(seed).integers(0, 4, len(x))
    times[0] += 1
    found = ranks(np.unique(x, return_inverse=True)[1], times.astype(float))
    assert np.repeat(found, times) == pytest.approx(stats.rankdata(np.repeat(x, times)))


def test_scores_and_intervals():
    random = np.random.default_rng(2)
    golds = np.round(random.random(40) * 5, 1)
    outputs = golds + random.normal(size=40)
    scores = correlation_scores(outputs, golds.tolist())
    generator, drawn = np.random.default_rng(SEED), []
    for _ in range(1000):
        chosen = generator.integers(0, 40, size=40)
        pair = outputs[chosen], golds[chosen]
        drawn.append((stats.pearsonr(*pair).statistic, stats.spearmanr(*pair).statistic))
    for column, name in enumerate(("Pearson", "Spearman")):
        ordered = sorted(100 * value[column] for value in drawn)
        assert (scores[name].low, scores[name].high) == pytest.approx((ordered[25], ordered[974]))
        assert scores[name].low < scores[name].value < scores[name].high
    assert scores["Pearson"].value == pytest.approx(100 * stats.pearsonr(outputs, golds).statistic)
    assert scores["Spearman"].value == pytest.approx(100 * stats.spearmanr(outputs, golds).statistic)


def test_constants_and_too_few_numbers():
    assert correlation_scores([1.0, 1.0, 1.0], [1.0, 2.0, 3.0])["Spearman"].value == 0
    with pytest.raises(UserError, match="two texts"):
        correlation_scores([1.0], [1.0])
    with pytest.raises(UserError, match="2 numbers, but 3"):
        correlation_scores([1.0, 2.0], [1.0, 2.0, 3.0])
