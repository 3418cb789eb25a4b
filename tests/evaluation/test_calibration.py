"""Calibration against scikit-learn, explicit loops, and a search over temperatures."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from mallang.errors import UserError
from mallang.evaluation.calibration import (
    between,
    calibration_scores,
    fit_ordinal_temperature,
    fit_temperature,
    log_softmax,
    ordinal_log_probs,
    reliability,
    risk_coverage,
)

some = settings(deadline=None, max_examples=25)


def make(items: int, classes: int, seed: int, scale: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    golds = random.integers(0, classes, items)
    return scale * (random.normal(size=(items, classes)) + 1.2 * np.eye(classes)[golds]), golds


def nll(logits: np.ndarray, golds: np.ndarray) -> float:
    return -float(log_softmax(logits)[np.arange(len(golds)), golds].mean())


@given(st.integers(2, 60), st.integers(2, 5), st.integers(0, 1000))
@settings(deadline=None, max_examples=10)
def test_scores_are_those_of_explicit_loops(items, classes, seed):
    logits, golds = make(items, classes, seed)
    exps = np.exp(logits)
    probabilities = exps / exps.sum(axis=1, keepdims=True)
    scores = calibration_scores(logits, golds)
    expected = metrics.log_loss(golds, probabilities, labels=range(classes))
    assert scores["NLL"].value == pytest.approx(expected)
    brier = np.mean([sum((p - (label == gold)) ** 2 for label, p in enumerate(row))
                     for row, gold in zip(probabilities, golds, strict=True)])  # fmt: skip
    assert scores["Brier"].value == pytest.approx(brier)
    rows = sorted(((row.max(), row.argmax() == gold) for row, gold in zip(probabilities, golds, strict=True)),
                  key=lambda row: row[0])  # fmt: skip
    size, larger = divmod(items, min(15, items))
    error = start = 0
    for number in range(min(15, items)):
        part = rows[start : start + size + (number < larger)]
        start += len(part)
        error += abs(sum(row[0] for row in part) - sum(row[1] for row in part))
    assert start == items and scores["ECE"].value == pytest.approx(100 * error / items)
    assert scores["ECE"].signature == "bins:15|mass:equal" and scores["ECE"].low is None
    assert scores["NLL"].low <= scores["NLL"].value <= scores["NLL"].high


def test_bins_have_equal_mass_and_all_texts():
    logits, golds = make(152, 4, 1)
    bins = reliability(logits, golds)
    assert [each.count for each in bins] == [11] * 2 + [10] * 13
    assert all(one.high <= two.low for one, two in itertools.pairwise(bins))
    assert all(each.low <= each.confidence <= each.high for each in bins)
    right = sum(each.accuracy * each.count for each in bins)
    assert right == pytest.approx((logits.argmax(axis=1) == golds).sum())
    assert len(reliability(logits[:4], golds[:4])) == 4 and len(reliability(logits, golds, bins=3)) == 3


def test_a_calibrated_classifier_has_a_small_error_and_an_overconfident_one_a_large():
    random = np.random.default_rng(5)
    logits = 2 * random.normal(size=(20_000, 3))
    golds = (logits + random.gumbel(size=logits.shape)).argmax(axis=1)  # labels drawn from these probabilities
    assert calibration_scores(logits, golds)["ECE"].value < 2
    assert calibration_scores(4 * logits, golds)["ECE"].value > 10
    assert fit_temperature(logits, golds) == pytest.approx(1, abs=0.03)
    assert fit_temperature(4 * logits, golds) == pytest.approx(4, abs=0.12)


@given(st.integers(5, 60), st.integers(2, 5), st.integers(0, 1000), st.sampled_from([0.1, 1.0, 10.0]))
@some
def test_the_temperature_is_the_best_of_a_search(items, classes, seed, scale):
    logits, golds = make(items, classes, seed, scale)
    found = fit_temperature(logits, golds)
    grid = np.geomspace(0.01, 100, 400)
    best = min(nll(logits / temperature, golds) for temperature in grid)
    assert nll(logits / found, golds) <= best + 1e-9
    assert 0.0099 < found < 101


def test_temperatures_end_where_every_label_is_right_or_impossible():
    logits = np.array([[3.0, 0, -np.inf], [0, 3, 1]])
    assert fit_temperature(logits, np.array([0, 1])) == pytest.approx(0.01)
    assert fit_temperature(logits, np.array([1, 0])) == pytest.approx(100)


def test_log_probabilities_are_logits_too():
    logits, golds = make(30, 3, 7)
    one, two = calibration_scores(logits, golds), calibration_scores(log_softmax(logits) + 5, golds)
    assert all(one[name].value == pytest.approx(two[name].value) for name in one)
    assert calibration_scores(logits.astype(np.float32), golds)["NLL"].value == pytest.approx(one["NLL"].value)


def test_risk_grows_with_coverage():
    logits, golds = make(50, 3, 2)
    coverage, risk = risk_coverage(logits, golds)
    order = sorted(range(50), key=lambda item: -log_softmax(logits)[item].max())
    for count in range(1, 51):
        wrong = sum(logits[item].argmax() != golds[item] for item in order[:count])
        assert coverage[count - 1] == pytest.approx(count / 50) and risk[count - 1] == pytest.approx(wrong / count)


def test_what_has_no_score():
    with pytest.raises(UserError, match="not all among 2 classes"):
        fit_temperature(np.zeros((2, 2)), np.array([0, 2]))
    with pytest.raises(UserError, match="no texts"):
        reliability(np.zeros((0, 2)), np.zeros(0, dtype=int))


def ordered(items: int, thresholds: int, seed: int, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Logits of lying above each threshold, falling, and classes that are drawn around them."""
    random = np.random.default_rng(seed)
    steps = np.sort(random.normal(size=thresholds))[::-1]
    logits = random.normal(size=(items, 1)) * 2 + steps
    golds = (logits[:, 0] - steps[0] + random.normal(size=items) > -steps[:, None]).sum(axis=0)
    return scale * logits, golds


def test_ordinal_probabilities_are_differences_of_logistic_functions():
    logits, _ = ordered(20, 4, 3)
    above = 1 / (1 + np.exp(-logits))
    for row, own in zip(above, np.exp(ordinal_log_probs(logits)), strict=True):
        bounds = [1.0, *row, 0.0]
        assert own == pytest.approx([high - low for high, low in itertools.pairwise(bounds)])
        assert own.sum() == pytest.approx(1)
    assert between(np.array([41.0]), np.array([40.0]))[0] == pytest.approx(np.exp(-40) - np.exp(-41), rel=1e-9)
    assert np.isfinite(ordinal_log_probs(np.array([[900.0, 800.0]]))).all()


@given(st.integers(5, 60), st.integers(1, 4), st.integers(0, 1000), st.sampled_from([0.2, 1.0, 8.0]))
@some
def test_the_ordinal_temperature_is_the_best_of_a_search(items, thresholds, seed, scale):
    logits, golds = ordered(items, thresholds, seed, scale)

    def nll_at(temperature):
        return -float(ordinal_log_probs(logits / temperature)[np.arange(items), golds].mean())

    found = fit_ordinal_temperature(logits, golds)
    assert nll_at(found) <= min(nll_at(temperature) for temperature in np.geomspace(0.01, 100, 200)) + 1e-9


def test_two_ordered_classes_have_the_temperature_of_two_classes():
    logits, golds = make(80, 2, 9)
    one = (logits[:, 1] - logits[:, 0])[:, None]
    assert fit_ordinal_temperature(one, golds) == pytest.approx(fit_temperature(logits, golds), rel=1e-6)


def test_reliability_of_other_decisions_than_the_most_probable():
    logits, golds = make(40, 3, 6)
    outputs = np.random.default_rng(0).integers(0, 3, 40)
    shares = np.exp(log_softmax(logits))[np.arange(40), outputs]
    bins = reliability(logits, golds, outputs=outputs)
    assert sum(each.count * each.confidence for each in bins) == pytest.approx(shares.sum())
    assert sum(each.count * each.accuracy for each in bins) == pytest.approx((outputs == golds).sum())
