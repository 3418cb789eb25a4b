"""Calibration: whether a classifier is right as often as it says. NLL, Brier score, ECE, temperature.

    temperature = fit_temperature(dev_logits, dev_golds)
    calibration_scores(test_logits / temperature, test_golds)["ECE"]

All take logits or log-probabilities, which are the same to them: they are normalized first. Temperature scaling and
the expected calibration error are those of Guo et al. (2017, arXiv:1706.04599), with bins of equal mass (Nguyen and
O'Connor 2015, arXiv:1508.05154): equally many texts, sorted by confidence, so that no bin is nearly empty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from mallang.errors import UserError
from mallang.evaluation.score import RESAMPLES, SEED, Score, intervals

BINS = 15
COLDEST, HOTTEST = 0.01, 100.0
"""Temperatures between which the best is searched: where every label is right, colder is always better."""

TINY = 1e-300
"""The least probability whose log is taken."""

Logits = Float[np.ndarray, "items classes"]
Golds = Int[np.ndarray, " items"]


@dataclass(frozen=True)
class Bin:
    """Texts of about the same confidence: one point of a reliability diagram."""

    low: float
    high: float
    """The lowest and the highest confidence."""
    confidence: float
    """The mean confidence, the probability of the class that was decided for."""
    accuracy: float
    """The share of right labels, from 0 to 1."""
    count: int


def calibration_scores(
    logits: Logits, golds: Golds, bins: int = BINS, outputs: Golds | None = None
) -> dict[str, Score]:
    """The scores "NLL" (nats per text), "Brier" (0 to 2) and "ECE" (0 to 100); lower is better.

    ECE has no interval: resampling adds to it, so that the interval would not be around the value. `outputs` are the
    classes that were decided for, where these are not the most probable ones.
    """
    log_probs = log_softmax(logits)
    check(log_probs, golds)
    own = log_probs[np.arange(len(golds)), golds]
    squares = (np.exp(log_probs) ** 2).sum(axis=1) - 2 * np.exp(own) + 1
    table, signature = np.stack((-own, squares, np.ones(len(golds))), axis=1), f"bs:{RESAMPLES}|seed:{SEED}"
    measures: list[Callable[[np.ndarray], float]] = [lambda sums: sums[0] / sums[2], lambda sums: sums[1] / sums[2]]
    ends = intervals(table, measures)
    scores = {
        name: Score(name, float(measure(table.sum(axis=0))), signature, float(low), float(high), len(golds))
        for name, measure, (low, high) in zip(("NLL", "Brier"), measures, ends, strict=True)
    }
    found = reliability(logits, golds, bins, outputs)
    error = 100 * sum(each.count * abs(each.accuracy - each.confidence) for each in found) / len(golds)
    return {**scores, "ECE": Score("ECE", error, f"bins:{bins}|mass:equal", count=len(golds))}


def reliability(logits: Logits, golds: Golds, bins: int = BINS, outputs: Golds | None = None) -> list[Bin]:
    """The bins of a reliability diagram, from the least to the most confident; fewer where there are fewer texts.

    Bins differ by one text at most. Texts of equal confidence may be in two bins: those that come first in the lower.
    """
    log_probs = log_softmax(logits)
    check(log_probs, golds)
    chosen = log_probs.argmax(axis=1) if outputs is None else outputs
    confidence, right = np.exp(log_probs[np.arange(len(golds)), chosen]), chosen == golds
    parts = np.array_split(np.argsort(confidence, kind="stable"), min(bins, len(golds)))
    found = []
    for part in parts:
        own = confidence[part]
        found.append(Bin(float(own[0]), float(own[-1]), float(own.mean()), float(right[part].mean()), len(part)))
    return found


def fit_temperature(logits: Logits, golds: Golds) -> float:
    """The temperature by which logits are divided for the lowest NLL on these texts, those of a dev set.

    NLL is convex in 1 / temperature, so its derivative has one zero, which is found by bisection.
    """
    log_probs = log_softmax(logits)
    check(log_probs, golds)
    own = log_probs[np.arange(len(golds)), golds].mean()

    def slope(inverse: float) -> float:
        probabilities = np.exp(log_softmax(inverse * log_probs))
        # Not 0 times −∞, where a class is impossible.
        expected = np.multiply(probabilities, log_probs, out=np.zeros_like(log_probs), where=probabilities > 0)
        return float(expected.sum(axis=1).mean() - own)

    return best_temperature(slope)


def fit_ordinal_temperature(logits: Logits, golds: Golds) -> float:
    """The best temperature of ordered classes, from the logits of lying above each threshold.

    The log of a difference of two values of the logistic function is concave in both logits, so that this NLL is
    convex in 1 / temperature too.
    """
    if len(golds) == 0:
        raise UserError("there are no texts, so that their probabilities have no score")
    upper, lower = (side[np.arange(len(golds)), golds] for side in bounds(logits))

    def slope(inverse: float) -> float:
        share = between(inverse * upper, inverse * lower)
        change = weighted_density(upper, inverse) - weighted_density(lower, inverse)
        return -float((change / np.maximum(share, TINY)).mean())

    return best_temperature(slope)


def best_temperature(slope: Callable[[float], float]) -> float:
    """The temperature at which the slope of a convex function of 1 / temperature is 0, by bisection."""
    low, high = np.log(1 / HOTTEST), np.log(1 / COLDEST)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if slope(float(np.exp(middle))) > 0 else (middle, high)
    return float(np.exp(-(low + high) / 2))


def risk_coverage(logits: Logits, golds: Golds) -> tuple[Float[np.ndarray, " items"], Float[np.ndarray, " items"]]:
    """The risk-coverage curve: shares of texts answered, the most confident first, and of wrong labels among them."""
    log_probs = log_softmax(logits)
    check(log_probs, golds)
    order = np.argsort(-log_probs.max(axis=1), kind="stable")
    wrong, answered = (log_probs.argmax(axis=1) != golds)[order], np.arange(1, len(golds) + 1)
    return answered / len(golds), np.cumsum(wrong) / answered


def ordinal_log_probs(logits: Logits) -> Float[np.ndarray, "items more_classes"]:
    """Log-probabilities of ordered classes, from the logits of lying above each threshold; one class more."""
    found: np.ndarray = np.log(np.maximum(between(*bounds(logits)), TINY))
    return found


def bounds(logits: Logits) -> tuple[Float[np.ndarray, "items more_classes"], Float[np.ndarray, "items more_classes"]]:
    """For every ordered class the logit of lying above its lower threshold, and that of lying above its upper one."""
    above = np.pad(logits.astype(np.float64), ((0, 0), (1, 1)), constant_values=((0, 0), (np.inf, -np.inf)))
    return above[:, :-1], above[:, 1:]


def between(upper: Float[np.ndarray, "*shape"], lower: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """logistic(upper) − logistic(lower), also where both are nearly 1."""
    found: np.ndarray = np.where(lower > 0, logistic(-lower) - logistic(-upper), logistic(upper) - logistic(lower))
    return found


def weighted_density(values: Float[np.ndarray, "*shape"], inverse: float) -> Float[np.ndarray, "*shape"]:
    """values times the derivative of the logistic function at inverse · values; 0 for infinite ones."""
    small = np.exp(-np.abs(inverse * values))
    found: np.ndarray = np.where(np.isinf(values), 0.0, values) * small / (1.0 + small) ** 2
    return found


def logistic(values: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """1 / (1 + exp(−x)), without overflow."""
    small = np.exp(-np.abs(values))
    found: np.ndarray = np.where(values >= 0, 1.0, small) / (1.0 + small)
    return found


def log_softmax(logits: Logits) -> Float[np.ndarray, "items classes"]:
    """Log-probabilities in float64."""
    moved = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    found: np.ndarray = moved - np.log(np.exp(moved).sum(axis=1, keepdims=True))
    return found


def check(log_probs: Logits, golds: Golds) -> None:
    """Refuse what has no score."""
    if len(golds) == 0:
        raise UserError("there are no texts, so that their probabilities have no score")
    if golds.min() < 0 or golds.max() >= log_probs.shape[1]:
        raise UserError(
            f"the gold labels {golds.min()} to {golds.max()} are not all among {log_probs.shape[1]} classes"
        )
