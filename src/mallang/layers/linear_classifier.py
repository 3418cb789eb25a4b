"""Training of linear classifiers on sparse rows: passes of dual coordinate descent until the optimum is reached."""

from __future__ import annotations

from collections.abc import Generator, Mapping

import numpy as np
from jaxtyping import Float32, Float64, Int8

from mallang.kernels.coordinate_descent import Descent, Loss, Matrix
from mallang.kernels.ngram_rows import Counted

__all__ = ["Loss", "balanced_costs", "equal_costs", "fit_linear", "squared_log_count_ratios"]

Linear = tuple[Float32[np.ndarray, "columns classes"], Float32[np.ndarray, " classes"]]
"""The weights and the bias of every class."""


def fit_linear(
    matrix: Matrix,
    signs: Int8[np.ndarray, "rows classes"],
    costs: Float64[np.ndarray, "classes 2"],
    loss: Loss,
    *,
    tolerance: float,
    passes: int,
    scales: Float32[np.ndarray, "columns classes"] | None = None,
) -> Generator[Mapping[str, float], None, Linear]:
    """Train one classifier per class; yields measurements after each pass, and returns weights and bias.

    `signs`: 1 where a row belongs to a class, else −1. With `scales` a weight is regularized by ½w²/s. Training ends
    when no margin changes by more than `tolerance` in a pass over all rows. Rows that cannot change the solution are
    skipped (shrinking), until the end is checked.
    """
    descent, random = Descent(matrix, signs, costs, loss, scales), np.random.default_rng(0)
    everything = np.arange(len(matrix))
    rows, bar = everything, float("inf")
    for _ in range(passes):
        change = descent.run(random.permutation(rows), bar)
        yield {"change": change, "active": len(rows)}
        if change <= tolerance:
            if len(rows) == len(everything):
                break
            rows, bar = everything, float("inf")
        else:
            rows, bar = rows[descent.active[rows] > 0], change
    return descent.weights.astype(np.float32), descent.bias.astype(np.float32)


def equal_costs(signs: Int8[np.ndarray, "rows classes"], strength: float) -> Float64[np.ndarray, "classes 2"]:
    """One C for all rows of every class."""
    return np.full((signs.shape[1], 2), float(strength))


def balanced_costs(signs: Int8[np.ndarray, "rows classes"], strength: float) -> Float64[np.ndarray, "classes 2"]:
    """A C for each side of every class, such that both sides weigh the same together and the mean row weighs C."""
    positive = (signs > 0).sum(axis=0)
    counts = np.stack([len(signs) - positive, positive], axis=1)
    return np.asarray(strength * len(signs) / (2 * np.maximum(1, counts)))


def squared_log_count_ratios(
    counted: Counted, signs: Int8[np.ndarray, "rows classes"]
) -> Float32[np.ndarray, "columns classes"]:
    """r² of every feature and class, r = ln((p / |p|) / (q / |q|)), the weight that naive Bayes gives the feature.

    p is 1 + the number of texts of the class with the feature, q that of all others, |p| and |q| are their sums over
    the features. Features that say nothing about a class have r near 0.
    """
    found = np.empty((counted.features, signs.shape[1]), np.float32)
    texts, rows = counted.document_counts(), np.repeat(np.arange(len(signs)), np.diff(counted.indptr))
    for k in range(signs.shape[1]):
        p = 1 + np.bincount(counted.indices, weights=signs[rows, k] > 0, minlength=counted.features)
        q = 2 + texts - p
        found[:, k] = np.square(np.log(p / p.sum()) - np.log(q / q.sum()))
    return found
