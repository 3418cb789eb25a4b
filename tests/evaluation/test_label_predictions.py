"""Predictions of a classifier against torch, scikit-learn and explicit loops; no temperature changes a decision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from mallang.evaluation.label_predictions import (
    LabelPredictions,
    fit_calibration,
    label_scores,
    probability_scores,
    scores_by_class,
)

some = settings(deadline=None, max_examples=25)
NAMES = ("경제", "정치", "sport", "world")


def make(kind: str, items: int, seed: int, classes: int = 4) -> LabelPredictions:
    random = np.random.default_rng(seed)
    if kind == "multi":
        golds = random.integers(0, 2, (items, classes))
        logits = random.normal(size=(items, classes)) + 2 * golds - 1
    else:
        golds = random.integers(0, classes, items)
        logits = random.normal(size=(items, classes)) + 2 * np.eye(classes)[golds]
    if kind == "ordinal":
        logits = 2 * (golds - random.normal(size=items))[:, None] - 1 - 2 * np.arange(classes - 1)[None]
    return LabelPredictions(kind, NAMES[:classes], logits.astype(np.float32), golds)


@pytest.mark.parametrize("kind", ["single", "multi", "ordinal"])
@given(seed=st.integers(0, 1000), temperature=st.sampled_from([0.05, 0.7, 1.0, 5.0, 60.0]))
@some
def test_a_temperature_changes_no_decision(kind, seed, temperature):
    found = make(kind, 12, seed)
    shares = found.probabilities(temperature)
    logits = torch.from_numpy(found.logits).double() / temperature
    if kind == "single":
        torch.testing.assert_close(torch.from_numpy(shares), logits.softmax(1))
        assert (shares.argmax(axis=1) == found.outputs()).all()
    elif kind == "multi":
        torch.testing.assert_close(torch.from_numpy(shares), logits.sigmoid())
        assert ((shares > 0.5) == found.outputs()).all()
    else:
        above = np.cumsum(shares[:, ::-1], axis=1)[:, ::-1][:, 1:]  # of lying above each threshold
        np.testing.assert_allclose(above, logits.sigmoid().numpy(), atol=1e-9)
        assert ((above > 0.5).sum(axis=1) == found.outputs()).all()
        assert shares.sum(axis=1) == pytest.approx(np.ones(12))
    sure = found.confidence(temperature)
    for item, output in enumerate(found.outputs()):
        own = shares[item]
        expected = np.where(output, own, 1 - own).prod() if kind == "multi" else own[output]
        assert sure[item] == pytest.approx(expected)


def test_labels_have_names():
    single, multi = make("single", 3, 1), make("multi", 2, 1)
    assert single.labels(np.array([0, 2])) == ["경제", "sport"]
    assert multi.labels(np.array([[True, False, False, True], [False] * 4])) == ["경제|world", ""]


def by_name(scores):
    return {score.name: score.value for score in scores}


@given(st.integers(4, 40), st.integers(0, 1000))
@some
def test_scores_of_one_class_are_those_of_scikit_learn(items, seed):
    found = make("single", items, seed)
    scores, outputs = by_name(label_scores(found)), found.outputs()
    assert list(scores) == ["accuracy", "macro F1", "weighted F1", "MCC"]
    assert scores["accuracy"] == pytest.approx(100 * metrics.accuracy_score(found.golds, outputs))
    theirs = metrics.classification_report(found.golds, outputs, output_dict=True, zero_division=0)
    assert scores["macro F1"] == pytest.approx(100 * theirs["macro avg"]["f1-score"])
    for name, row in scores_by_class(found).items():
        own = theirs[str(NAMES.index(name))]
        expected = [100 * own["precision"], 100 * own["recall"], 100 * own["f1-score"], own["support"]]
        assert list(row) == pytest.approx(expected)
    for temperature in (1.0, 2.5):
        shares = found.probabilities(temperature)
        own = by_name(probability_scores(found, temperature))
        assert own["NLL"] == pytest.approx(metrics.log_loss(found.golds, shares, labels=range(4)))
        assert own["Brier"] == pytest.approx(((shares - np.eye(4)[found.golds]) ** 2).sum(axis=1).mean())


def test_binary_brier_is_twice_that_of_scikit_learn():
    found = make("single", 50, 3, classes=2)
    theirs = metrics.brier_score_loss(found.golds, found.probabilities()[:, 1])
    assert by_name(probability_scores(found))["Brier"] == pytest.approx(2 * theirs)


def test_several_labels_are_scored_by_decision():
    found = make("multi", 60, 5)
    scores = {score.name: score for score in probability_scores(found, 1.3)}
    shares = found.probabilities(1.3)
    assert scores["NLL"].value == pytest.approx(metrics.log_loss(found.golds.ravel(), shares.ravel()))
    assert scores["Brier"].value == pytest.approx(2 * ((shares - found.golds) ** 2).mean())
    assert scores["NLL"].low is None and "per:decision" in scores["NLL"].signature and scores["NLL"].count == 60
    assert by_name(label_scores(found))["exact match"] == pytest.approx(
        100 * metrics.accuracy_score(found.golds, found.outputs())
    )
    theirs = metrics.precision_recall_fscore_support(found.golds, found.outputs(), zero_division=0)
    for name, row in scores_by_class(found).items():
        assert list(row[:3]) == pytest.approx([100 * column[NAMES.index(name)] for column in theirs[:3]])


def test_thresholds_and_temperature_of_several_labels():
    dev = make("multi", 200, 7)
    shifted = LabelPredictions("multi", NAMES, 4 * (dev.logits - 1), dev.golds)
    calibration = fit_calibration(shifted)
    assert calibration.temperature > 1.5 and len(calibration.thresholds) == 4
    thresholds = calibration.array()
    assert thresholds.mean() < 0.4
    before, after = (by_name(label_scores(shifted, each))["macro F1"] for each in (None, thresholds))
    assert after > before + 1
    assert (shifted.outputs(thresholds) == (shifted.probabilities() >= thresholds)).all()
    assert label_scores(shifted, thresholds)[0].signature.endswith("thresholds:dev")
    assert (
        by_name(probability_scores(shifted, calibration.temperature))["NLL"]
        < by_name(probability_scores(shifted))["NLL"]
    )


@pytest.mark.parametrize("kind", ["single", "ordinal"])
def test_calibration_lowers_the_error_of_a_model_that_is_too_sure(kind):
    dev, test = make(kind, 2000, 1), make(kind, 2000, 2)
    hot = [LabelPredictions(kind, NAMES, 5 * each.logits, each.golds) for each in (dev, test)]
    calibration = fit_calibration(hot[0])
    assert calibration.thresholds is None and calibration.temperature > 2
    before, after = (by_name(probability_scores(hot[1], each)) for each in (1.0, calibration.temperature))
    assert after["NLL"] < before["NLL"] and after["ECE"] < before["ECE"] / 2 and after["Brier"] < before["Brier"]
    names = [score.name for score in label_scores(test)]
    assert ("MAE" in names and "quadratic kappa" in names) == (kind == "ordinal")


def test_parts_are_taken_with_their_labels():
    found = make("multi", 5, 4)
    part = found.take(np.array([True, False, True, False, False]))
    assert len(part) == 2 and (part.golds == found.golds[[0, 2]]).all() and (part.logits == found.logits[[0, 2]]).all()
    bare = LabelPredictions("single", NAMES, make("single", 3, 1).logits)
    assert bare.take(np.array([True, False, False])).golds is None and len(bare.outputs()) == 3
