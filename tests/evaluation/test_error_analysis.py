"""Errors and likely label errors against explicit loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.evaluation.error_analysis import errors_by_confidence, likely_label_errors
from mallang.evaluation.label_predictions import LabelPredictions

some = settings(deadline=None, max_examples=40)


def make(items: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.dirichlet(np.ones(classes), size=items).round(2), random.integers(0, classes, items)


@given(st.integers(1, 30), st.integers(2, 4), st.integers(0, 1000), st.sampled_from([0.5, 1.0, 3.0]))
@some
def test_errors_are_sorted_by_confidence(items, classes, seed, temperature):
    probabilities, golds = make(items, classes, seed)
    logits = np.log(np.maximum(probabilities, 1e-6))
    names = tuple("abcd"[:classes])
    found = errors_by_confidence(LabelPredictions("single", names, logits, golds), temperature)
    wrong = {item for item in range(items) if logits[item].argmax() != golds[item]}
    assert {error.item for error in found} == wrong
    assert [error.confidence for error in found] == sorted((error.confidence for error in found), reverse=True)
    for error in found:
        row = np.exp(logits[error.item] / temperature)
        row /= row.sum()
        assert (error.output, error.gold) == (names[row.argmax()], names[golds[error.item]])
        assert (error.confidence, error.gold_probability) == pytest.approx((row.max(), row[golds[error.item]]))


def test_an_error_of_several_labels_is_any_wrong_decision():
    logits, golds = np.array([[2.0, -2.0], [3.0, 1.0], [-1.0, -4.0]]), np.array([[1, 0], [1, 0], [1, 1]])
    first, second = errors_by_confidence(LabelPredictions("multi", ("a", "b"), logits, golds))
    yes = 1 / (1 + np.exp(-logits))
    assert (first.item, first.gold, first.output, first.confidence) == (
        2,
        "a|b",
        "",
        pytest.approx((1 - yes[2]).prod()),
    )
    assert (second.item, second.gold, second.output) == (1, "a", "a|b")
    assert second.gold_probability == pytest.approx(yes[1, 0] * (1 - yes[1, 1]))


@given(st.integers(1, 40), st.integers(2, 4), st.integers(0, 1000))
@some
def test_likely_label_errors_are_those_of_explicit_loops(items, classes, seed):
    probabilities, golds = make(items, classes, seed)
    expected = {}
    means = {}
    for label in range(classes):
        own = [probabilities[item, label] for item in range(items) if golds[item] == label]
        means[label] = sum(own) / len(own) if own else float("inf")
    for item in range(items):
        row = probabilities[item]
        sure = [label for label in range(classes) if row[label] >= means[label] - 1e-12]
        if sure and (best := max(sure, key=lambda label: row[label])) != golds[item]:
            expected[item] = best
    found = likely_label_errors(probabilities, golds)
    # Means that equal a probability may be rounded to either side of it.
    close = {item for item in range(items) for label in range(classes)
             if abs(probabilities[item, label] - means[label]) < 1e-9}  # fmt: skip
    assert {error.item: error.suggested for error in found if error.item not in close} == {
        item: label for item, label in expected.items() if item not in close
    }
    margins = [error.suggested_probability - error.gold_probability for error in found]
    assert margins == sorted(margins, reverse=True)


def test_flipped_labels_are_found():
    random = np.random.default_rng(4)
    truth = random.integers(0, 3, 600)
    logits = random.normal(size=(600, 3)) + 4 * np.eye(3)[truth]
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    flipped = random.choice(600, 40, replace=False)
    golds = truth.copy()
    golds[flipped] = (truth[flipped] + 1) % 3
    found = likely_label_errors(probabilities, golds)
    assert len(found) < 60 and {error.item for error in found[:25]} <= set(flipped.tolist())
    assert len({error.item for error in found} & set(flipped.tolist())) >= 30
    assert all(error.suggested == truth[error.item] for error in found[:25])


def test_a_class_without_texts_is_never_suggested():
    found = likely_label_errors(np.array([[0.1, 0.0, 0.9], [0.8, 0.2, 0.0], [0.3, 0.7, 0.0]]), np.array([0, 0, 1]))
    assert all(error.suggested != 2 for error in found)
