"""Classification against scikit-learn and explicit loops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from mallang.errors import UserError
from mallang.evaluation.classification import (
    MEASURES,
    accuracy_statistics,
    class_scores,
    classification_scores,
    confusion_matrix,
    fit_thresholds,
    macro_f1_statistics,
    multilabel_class_scores,
    multilabel_scores,
    resample,
)
from mallang.evaluation.score import interval
from mallang.evaluation.significance import paired_bootstrap

some = settings(deadline=None, max_examples=40)
NAMES = ["economy", "sport", "world", "정치"]
labels = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), min_size=1, max_size=30)
THEIRS = {
    "accuracy": metrics.accuracy_score,
    "macro F1": lambda gold, ours: metrics.f1_score(gold, ours, average="macro", zero_division=0),
    "micro F1": lambda gold, ours: metrics.f1_score(gold, ours, average="micro", zero_division=0),
    "weighted F1": lambda gold, ours: metrics.f1_score(gold, ours, average="weighted", zero_division=0),
    "MCC": metrics.matthews_corrcoef,
}


@pytest.fixture(autouse=True)
def quiet():
    """scikit-learn warns of single labels, which are meant."""
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning)
        yield


@given(labels)
@some
def test_measures_are_those_of_scikit_learn(pairs):
    outputs, golds = ([pair[side] for pair in pairs] for side in (0, 1))
    table = confusion_matrix(outputs, golds).table[None].astype(float)
    for name, measure in MEASURES.items():
        assert measure(table)[0] == pytest.approx(100 * THEIRS[name](golds, outputs), abs=1e-9), name


@given(labels)
@some
def test_classes_and_their_confusion_are_those_of_scikit_learn(pairs):
    outputs, golds = ([pair[side] for pair in pairs] for side in (0, 1))
    known = sorted({*outputs, *golds})
    confusion = confusion_matrix(outputs, golds)
    assert confusion.classes == tuple(known)
    assert np.array_equal(confusion.table, metrics.confusion_matrix(golds, outputs, labels=known))
    assert np.array_equal(
        confusion_matrix(outputs, golds, NAMES).table, metrics.confusion_matrix(golds, outputs, labels=NAMES)
    )
    theirs = metrics.precision_recall_fscore_support(golds, outputs, labels=known, zero_division=0)
    for name, *row in zip(known, *theirs, strict=True):
        found = class_scores(outputs, golds)[name]
        assert list(found[:3]) == pytest.approx([100 * each for each in row[:3]])
        assert found.support == row[3]


def test_scores_have_names_intervals_and_signatures():
    random = np.random.default_rng(3)
    golds = random.integers(0, 3, 400)
    outputs = np.where(random.random(400) < 0.8, golds, random.integers(0, 3, 400))
    scores = classification_scores(outputs, golds)
    assert set(scores) == set(MEASURES)
    for name, score in scores.items():
        assert score.value == pytest.approx(100 * THEIRS[name](golds, outputs)) and score.count == 400
        assert score.low < score.value < score.high and 2 < score.high - score.low < 20
    assert scores["accuracy"].signature == "bs:1000|seed:12345|classes:3"
    # The interval of drawn cells is that of drawn texts, within the noise of 1,000 draws.
    drawn = interval(*(lambda each: (each.table, each.measure))(accuracy_statistics(outputs, golds)))
    assert (scores["accuracy"].low, scores["accuracy"].high) == pytest.approx(drawn, abs=0.6)


def test_resampled_matrices_have_all_texts_and_the_right_mean():
    table = np.array([[5, 1, 0], [0, 30, 4], [0, 0, 0]])
    draws = resample(table)
    assert (draws.sum(axis=(1, 2)) == 40).all() and not draws[:, table == 0].any()
    assert draws.mean(axis=0) == pytest.approx(table, abs=0.5)
    # An empty class of a draw counts for nothing.
    assert MEASURES["macro F1"](np.array([[[3.0, 1], [0, 0]]])) == pytest.approx(100 * (6 / 7 + 0) / 2)
    assert MEASURES["macro F1"](np.array([[[3.0, 0], [0, 0]]])) == 100


@given(labels)
@some
def test_statistics_of_texts(pairs):
    outputs, golds = ([pair[side] for pair in pairs] for side in (0, 1))
    assert accuracy_statistics(outputs, golds).value == pytest.approx(100 * metrics.accuracy_score(golds, outputs))
    classes = sorted(set(golds))
    expected = metrics.f1_score(golds, outputs, labels=classes, average="macro", zero_division=0)
    assert macro_f1_statistics(outputs, golds).value == pytest.approx(100 * expected)


def test_two_classifiers_are_compared():
    golds = ["a", "b"] * 40
    worse = ["a"] * 40 + ["a", "b"] * 20
    compared = paired_bootstrap(golds, worse, golds, metric=accuracy_statistics)
    assert compared.first == 100 and compared.second == 75 and compared.p_value < 0.05


def test_what_has_no_score():
    with pytest.raises(UserError, match="2 labels, but 1 gold"):
        classification_scores(["a", "b"], ["a"])
    with pytest.raises(UserError, match="one text at least"):
        classification_scores([], [])
    with pytest.raises(UserError, match="no class: 'c'"):
        confusion_matrix(["c"], ["a"], ["a", "b"])
    with pytest.raises(UserError, match="no texts"):
        multilabel_scores(np.zeros((0, 2), dtype=bool), np.zeros((0, 2), dtype=bool))


# ---- several labels ----


@st.composite
def label_sets(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    shape = draw(st.integers(1, 8)), draw(st.integers(1, 4))
    rows = st.lists(st.booleans(), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1])
    return np.array(draw(rows)).reshape(shape), np.array(draw(rows)).reshape(shape)


@given(label_sets())
@settings(deadline=None, max_examples=8)
def test_label_sets_are_scored_as_by_scikit_learn(both):
    outputs, golds = both
    scores = multilabel_scores(outputs, golds)
    ours, gold = (each.astype(int) for each in both)
    if golds.shape[1] > 1:  # one column is no label set there
        for name in ("micro", "macro", "samples"):
            expected = metrics.f1_score(gold, ours, average=name, zero_division=0)
            assert scores[f"{name} F1"].value == pytest.approx(100 * expected)
        theirs = metrics.precision_recall_fscore_support(gold, ours, zero_division=0)
        for own, *row in zip(multilabel_class_scores(outputs, golds), *theirs, strict=True):
            assert list(own) == pytest.approx([*(100 * each for each in row[:3]), row[3]])
    equal = [list(one) == list(two) for one, two in zip(ours, gold, strict=True)]
    assert scores["exact match"].value == pytest.approx(100 * sum(equal) / len(equal))
    assert scores["micro F1"].low <= scores["micro F1"].value + 1e-9 and scores["micro F1"].count == len(golds)


@given(st.data())
@some
def test_thresholds_are_the_best_there_are(data):
    items, classes = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 3))
    grid = st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.55, 0.9, 1.0])
    cells = [data.draw(st.tuples(grid, st.booleans())) for _ in range(items * classes)]
    probabilities = np.array([cell[0] for cell in cells]).reshape(items, classes)
    golds = np.array([cell[1] for cell in cells]).reshape(items, classes)
    found = fit_thresholds(probabilities, golds)
    for label in range(classes):

        def f1_of(threshold, label=label):
            return metrics.f1_score(golds[:, label], probabilities[:, label] >= threshold, zero_division=0)

        best = max(f1_of(threshold) for threshold in [*probabilities[:, label], 2.0])
        assert f1_of(found[label]) == pytest.approx(best)
        if not golds[:, label].any():
            assert found[label] == 0.5


def test_a_threshold_is_half_way_and_near_a_half():
    probabilities = np.array([[0.9], [0.4], [0.2], [0.1]])
    assert fit_thresholds(probabilities, np.array([[True], [True], [False], [False]])) == pytest.approx([0.3])
    assert fit_thresholds(probabilities, np.array([[True], [False], [False], [False]])) == pytest.approx([0.65])
    assert fit_thresholds(probabilities, np.ones((4, 1), dtype=bool)) == pytest.approx([0.05])
    for golds in itertools.product([False, True], repeat=4):
        fitted = fit_thresholds(probabilities, np.array(golds)[:, None])[0]
        assert 0 < fitted < 1 and fitted not in probabilities
