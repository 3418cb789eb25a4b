"""Ordered classes, such as stars: the mean absolute error and quadratic kappa.

    ordinal_scores([0, 4], [1, 4], ("1", "2", "3", "4", "5"))["MAE"]    # 0.5

Quadratic kappa (Cohen 1968) compares the squared distances with those of the same labels in random order: 100 is
perfect, 0 is chance. Both follow from the confusion matrix, and so do their intervals (classification.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from mallang.evaluation.classification import Tables, confusion_matrix, ratio, resample, table_score
from mallang.evaluation.score import RESAMPLES, SEED, Score


def ordinal_scores(
    outputs: Int[np.ndarray, " items"], golds: Int[np.ndarray, " items"], names: Sequence[str]
) -> dict[str, Score]:
    """The scores "MAE", in units of the labels if all are numbers and else in ranks, and "quadratic kappa"."""
    table = confusion_matrix(outputs, golds, range(len(names))).table
    places, unit = values_of(names)
    draws, signature = resample(table), f"bs:{RESAMPLES}|seed:{SEED}|classes:{len(names)}"

    def error(tables: Tables) -> Float[np.ndarray, " draws"]:
        return mean_absolute_error(tables, places)

    return {
        "MAE": table_score("MAE", error, table, draws, f"{signature}|distance:{unit}"),
        "quadratic kappa": table_score("quadratic kappa", quadratic_kappa, table, draws, signature),
    }


def values_of(names: Sequence[str]) -> tuple[Float[np.ndarray, " classes"], str]:
    """The place of every class on the scale: its value if all names are numbers, else its rank."""
    try:
        values = [float(name) for name in names]
        if all(map(math.isfinite, values)):
            return np.array(values), "values"
    except ValueError:
        pass
    return np.arange(len(names), dtype=np.float64), "ranks"


def mean_absolute_error(tables: Tables, places: Float[np.ndarray, " classes"]) -> Float[np.ndarray, " draws"]:
    """The mean distance between output and gold label."""
    distances = np.abs(places[:, None] - places)
    return ratio((tables * distances).sum(axis=(1, 2)), tables.sum(axis=(1, 2)))


def quadratic_kappa(tables: Tables) -> Float[np.ndarray, " draws"]:
    """1 − squared distances / those expected by chance, times 100; distances in ranks. 100 where none is expected."""
    ranks = np.arange(tables.shape[-1])
    squares = (ranks[:, None] - ranks) ** 2
    expected = tables.sum(axis=2)[:, :, None] * tables.sum(axis=1)[:, None, :]
    seen = (tables * squares).sum(axis=(1, 2)) * tables.sum(axis=(1, 2))
    return 100.0 * (1.0 - ratio(seen, (expected * squares).sum(axis=(1, 2))))
