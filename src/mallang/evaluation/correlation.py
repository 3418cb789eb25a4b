"""Pearson and Spearman correlation of predicted and gold numbers, times 100, with intervals.

Spearman correlation is the Pearson correlation of ranks, ties with their mean rank. A resample of texts has ranks of
its own: they follow from how often each text was drawn, without sorting again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from mallang.errors import UserError
from mallang.evaluation.score import RESAMPLES, SEED, Score

Numbers = Sequence[float] | Float[np.ndarray, " items"]


def correlation_scores(outputs: Numbers, golds: Numbers) -> dict[str, Score]:
    """The scores "Pearson" and "Spearman", from −100 to 100; 0 where either side is constant."""
    x, y = (np.asarray(each, dtype=np.float64) for each in (outputs, golds))
    if len(x) != len(y) or len(x) < 2:
        raise UserError(f"there are {len(x)} numbers, but {len(y)} gold numbers; two texts at least are needed")
    groups = [np.unique(each, return_inverse=True)[1] for each in (x, y)]

    def both(times: np.ndarray) -> tuple[float, float]:
        return pearson(x, y, times), pearson(ranks(groups[0], times), ranks(groups[1], times), times)

    random, values = np.random.default_rng(SEED), []
    for _ in range(RESAMPLES):
        times = np.bincount(random.integers(0, len(x), size=len(x)), minlength=len(x)).astype(np.float64)
        values.append(both(times))
    ordered, found = np.sort(np.array(values), axis=0), both(np.ones(len(x)))
    low, high = ordered[RESAMPLES // 40], ordered[RESAMPLES - RESAMPLES // 40 - 1]
    return {
        name: Score(name, 100 * found[place], f"bs:{RESAMPLES}|seed:{SEED}",
                    100 * float(low[place]), 100 * float(high[place]), len(x))
        for place, name in enumerate(("Pearson", "Spearman"))
    }  # fmt: skip


def correlations(outputs: Numbers, golds: Numbers) -> dict[str, float]:
    """The correlations "pearson" and "spearman", from −1 to 1, without intervals; 0 where either side is constant."""
    x, y = (np.asarray(each, dtype=np.float64) for each in (outputs, golds))
    once = np.ones(len(x))
    places = [ranks(np.unique(each, return_inverse=True)[1], once) for each in (x, y)]
    return {"pearson": pearson(x, y, once), "spearman": pearson(places[0], places[1], once)}


def pearson(
    x: Float[np.ndarray, " items"], y: Float[np.ndarray, " items"], times: Float[np.ndarray, " items"]
) -> float:
    """The correlation of numbers that occur so many times each."""
    if any(np.ptp(each[times > 0]) == 0 for each in (x, y)):
        return 0.0
    x, y = (each - np.average(each, weights=times) for each in (x, y))
    return float((times * x * y).sum() / np.sqrt((times * x * x).sum() * (times * y * y).sum()))


def ranks(groups: Int[np.ndarray, " items"], times: Float[np.ndarray, " items"]) -> Float[np.ndarray, " items"]:
    """The ranks of numbers that occur so many times each; `groups` are their places among the distinct numbers."""
    counts = np.bincount(groups, weights=times)
    mean: np.ndarray = (np.cumsum(counts) - (counts - 1) / 2)[groups]
    return mean
