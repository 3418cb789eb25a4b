"""Multinomial logistic regression against scikit-learn's."""

import numpy as np
import pytest
import torch

from mallang.layers.softmax_regression import fit_softmax_regression

linear_model = pytest.importorskip("sklearn.linear_model")


def data(classes):
    random = np.random.default_rng(1)
    labels = random.integers(0, classes, 60)
    return (random.standard_normal((60, 5)) + np.eye(classes, 5)[labels]).astype(np.float32), labels


@pytest.mark.parametrize("strength", [0.1, 10.0])
def test_the_optimum_is_that_of_scikit_learn(strength):
    x, labels = data(3)
    weight, bias, loss = fit_softmax_regression(torch.from_numpy(x), torch.from_numpy(labels), 3, strength)
    theirs = linear_model.LogisticRegression(C=strength, tol=1e-10, max_iter=5000).fit(x.astype(np.float64), labels)
    np.testing.assert_allclose(weight.numpy(), theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(
        bias.numpy() - bias.numpy().mean(), theirs.intercept_ - theirs.intercept_.mean(), atol=1e-4
    )
    chances = theirs.predict_proba(x.astype(np.float64))[np.arange(60), labels]
    assert loss == pytest.approx(-np.log(chances).mean(), rel=1e-4)


def test_sets_of_classes_have_one_sigmoid_each():
    x, labels = data(2)
    sets = np.stack([labels == 1, x[:, 0] > 0.5], axis=1)
    weight, bias, _ = fit_softmax_regression(torch.from_numpy(x), torch.from_numpy(sets).float(), 2, 0.5)
    for number in range(2):
        theirs = linear_model.LogisticRegression(C=0.5, tol=1e-10, max_iter=5000)
        theirs.fit(x.astype(np.float64), sets[:, number])
        np.testing.assert_allclose(weight[number].numpy(), theirs.coef_[0], atol=1e-4)
        assert float(bias[number]) == pytest.approx(theirs.intercept_[0], abs=1e-4)
