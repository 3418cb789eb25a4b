"""Training of linear classifiers on sparse rows: passes of dual coordinate descent until the optimum is reached."""

from __future__ import annotations

from collections.abc import Generator, Mapping

import numpy as np
from jaxtyping import Float32, Float64, Int8

from mallang.kernels.coordinate_descent import Descent, Loss, Matrix

__all__ = ["Loss", "balanced_costs", "equal_costs", "fit_linear"]

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
) -> Generator[Mapping[str, float], None, Linear]:
    """Train one classifier per class; yields measurements after each pass, and returns weights and bias.

    `signs`: 1 where a row belongs to a class, else −1. Training ends when no margin changes by more than `tolerance`
    in a pass over all rows. Rows that cannot change the solution are skipped (shrinking), until the end is checked.
    """
    descent, random = Descent(matrix, signs, costs, loss), np.random.default_rng(0)
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
