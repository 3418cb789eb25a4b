"""Linear classifiers reach the optimum that scikit-learn's LinearSVC and LogisticRegression reach."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.sparse import random as random_matrix
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from mallang.kernels import c_bag
from mallang.kernels.coordinate_descent import Descent, Matrix, logistic_margin
from mallang.kernels.ngram_rows import Counted
from mallang.layers.linear_classifier import balanced_costs, equal_costs, fit_linear, squared_log_count_ratios

LOSSES = ("squared-hinge", "logistic")


def data(rows=80, columns=30, classes=1, seed=1) -> tuple[csr_matrix, np.ndarray]:
    """Random sparse rows, two of them empty, and signs that a noisy linear function gives."""
    random = np.random.default_rng(seed)
    dense = random_matrix(rows, columns, density=0.2, random_state=seed, dtype=np.float32).toarray()
    dense[[3, 7]] = 0
    found = csr_matrix(dense)
    scores = found @ random.normal(size=(columns, classes)) + 0.3 * random.normal(size=(rows, classes)) + 0.2
    return found, np.where(scores > 0, 1, -1).astype(np.int8)


def matrix_of(found: csr_matrix) -> Matrix:
    return Matrix(found.indptr.astype(np.int64), found.indices.astype(np.int32), found.data, found.shape[1])


def solve(found, signs, costs, loss, tolerance=1e-6, passes=5000, scales=None):
    training = fit_linear(matrix_of(found), signs, costs, loss, tolerance=tolerance, passes=passes, scales=scales)
    measured = []
    while True:
        try:
            measured.append(next(training))
        except StopIteration as end:
            return (*end.value, measured)


def objective(found, signs, weights, bias, costs, loss) -> float:
    """½‖w‖² + ½b² + Σ C loss, summed over the classes."""
    margins = signs * (found @ weights.astype(np.float64) + bias)
    each = np.maximum(0, 1 - margins) ** 2 if loss == "squared-hinge" else np.logaddexp(0, -margins)
    prices = np.where(signs > 0, costs[:, 1], costs[:, 0])
    norms = np.square(weights, dtype=np.float64).sum() + np.square(bias, dtype=np.float64).sum()
    return float(norms / 2 + (prices * each).sum())


def of_scikit_learn(found, signs, strength, loss, balanced=False):
    """Weights and bias of one classifier per class; the bias is regularized, as ours is."""
    weights, bias = [], []
    for own in signs.T:
        weight = "balanced" if balanced else None
        oracle = (
            LinearSVC(C=strength, tol=1e-10, max_iter=200_000, class_weight=weight, random_state=0)
            if loss == "squared-hinge"
            else LogisticRegression(
                C=strength, solver="liblinear", tol=1e-10, max_iter=20_000, class_weight=weight, random_state=0
            )
        )
        oracle.fit(found.astype(np.float64), own)
        weights.append(oracle.coef_[0])
        bias.append(oracle.intercept_[0])
    return np.stack(weights, axis=1), np.array(bias)


@pytest.mark.usefixtures("bag_kernels")
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("strength", [0.05, 1.0, 20.0])
def test_the_optimum_is_that_of_scikit_learn(loss, strength):
    found, signs = data()
    costs = equal_costs(signs, strength)
    weights, bias, measured = solve(found, signs, costs, loss)
    expected = of_scikit_learn(found, signs, strength, loss)
    ours, theirs = (objective(found, signs, *each, costs, loss) for each in ((weights, bias), expected))
    assert ours == pytest.approx(theirs, rel=1e-4)
    np.testing.assert_allclose(weights, expected[0], atol=2e-3)
    np.testing.assert_allclose(matrix_of(found).scores(weights, bias), found @ expected[0] + expected[1], atol=2e-3)
    assert measured[-1]["active"] == 80  # the end is checked on all rows


@pytest.mark.usefixtures("bag_kernels")
@pytest.mark.parametrize("loss", LOSSES)
def test_balanced_classes_are_those_of_scikit_learn(loss):
    found, signs = data(seed=2, classes=3)
    signs[:, 1] = np.where(np.arange(80) % 9 == 0, 1, -1)
    costs = balanced_costs(signs, 0.5)
    weights, bias, _ = solve(found, signs, costs, loss)
    expected = of_scikit_learn(found, signs, 0.5, loss, balanced=True)
    np.testing.assert_allclose(weights, expected[0], atol=2e-3)
    np.testing.assert_allclose(bias, expected[1], atol=2e-3)
    both = [((signs > 0) * costs[:, 1]).sum(axis=0), ((signs < 0) * costs[:, 0]).sum(axis=0)]
    np.testing.assert_allclose(both[0], both[1])
    np.testing.assert_allclose(both[0] + both[1], 0.5 * 80)


@pytest.mark.usefixtures("bag_kernels")
@pytest.mark.parametrize("loss", LOSSES)
def test_classes_do_not_disturb_each_other(loss):
    """Several classes are trained in one pass, and each is the classifier that it would be alone."""
    found, signs = data(seed=3, classes=4)
    together = solve(found, signs, equal_costs(signs, 1.0), loss)[:2]
    for k in range(4):
        own = signs[:, [k]]
        alone = solve(found, own, equal_costs(own, 1.0), loss)[:2]
        np.testing.assert_allclose(together[0][:, [k]], alone[0], atol=1e-4)
        np.testing.assert_allclose(together[1][[k]], alone[1], atol=1e-4)


@pytest.mark.usefixtures("bag_kernels")
@pytest.mark.parametrize("loss", LOSSES)
def test_scales_are_those_of_features_that_are_multiplied_by_their_roots(loss):
    found, signs = data(seed=5, classes=2)
    scales = np.random.default_rng(1).uniform(0, 3, (30, 2)).astype(np.float32)
    scales[4] = 0  # a feature that is never used
    weights, bias, _ = solve(found, signs, equal_costs(signs, 1.0), loss, scales=scales)
    for k in range(2):
        roots = np.sqrt(scales[:, k])
        expected = of_scikit_learn(csr_matrix(found.multiply(roots)), signs[:, [k]], 1.0, loss)
        np.testing.assert_allclose(weights[:, k], roots * expected[0][:, 0], atol=2e-3)
        assert bias[k] == pytest.approx(expected[1][0], abs=2e-3)
    assert not weights[4].any()


def test_ratios_are_those_of_naive_bayes():
    counts = np.array([[2, 0, 1], [1, 0, 0], [0, 3, 1], [0, 0, 0]])
    signs = np.array([[1, -1], [1, 1], [-1, -1], [-1, 1]], np.int8)
    sparse = csr_matrix(counts)
    counted = Counted(sparse.indptr.astype(np.int64), sparse.indices, sparse.data.astype(np.int32), 3)
    found = squared_log_count_ratios(counted, signs)
    for k in range(2):
        p = [1 + sum(counts[row, j] > 0 and signs[row, k] > 0 for row in range(4)) for j in range(3)]
        q = [1 + sum(counts[row, j] > 0 and signs[row, k] < 0 for row in range(4)) for j in range(3)]
        for j in range(3):
            ratio = np.log((p[j] / sum(p)) / (q[j] / sum(q)))
            assert found[j, k] == pytest.approx(ratio**2, rel=1e-5)


@pytest.mark.skipif(c_bag.library() is None, reason="there are no C functions here")
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize("is_scaled", [False, True])
def test_a_pass_in_c_is_the_pass_in_numpy(loss, classes, is_scaled):
    found, signs = data(seed=4, classes=classes)
    scales = np.random.default_rng(2).uniform(0, 2, (30, classes)).astype(np.float32) if is_scaled else None
    order, passes = np.random.default_rng(1).permutation(80), []
    for library in (c_bag.library(), None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(c_bag, "library", lambda found=library: found)
            descent = Descent(matrix_of(found), signs, equal_costs(signs, 2.0), loss, scales)
            changes = [descent.run(order[: 80 - 20 * turn], bar=0.3) for turn in range(3)]
            scores = descent.matrix.scores(descent.weights.astype(np.float32), descent.bias.astype(np.float32))
        passes.append((changes, descent.alpha, descent.weights, descent.bias, descent.active, scores))
    for in_c, plain in zip(*passes, strict=True):
        np.testing.assert_allclose(in_c, plain, rtol=1e-6, atol=1e-9)


def test_an_update_of_the_logistic_loss_is_exact():
    """The dual variable of a row is C · sigmoid(−margin) once it is optimal, at the margin that it leads to."""
    for square, before, cost, alpha in ((2.0, -3.0, 1.0, 0.2), (1.0, 40.0, 8.0, 0.0), (50.0, -400.0, 0.1, 0.1)):
        margin = logistic_margin(square, before, cost, alpha)
        new = cost / (1 + np.exp(margin))
        assert margin == pytest.approx(before + square * (new - alpha), rel=1e-9)
        assert 0 <= new <= cost


def test_training_ends_after_the_given_passes():
    found, signs = data()
    *_, measured = solve(found, signs, equal_costs(signs, 1.0), "squared-hinge", passes=3)
    assert len(measured) == 3 and measured[-1]["change"] > 1e-6
