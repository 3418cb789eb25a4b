"""Calibration: whether a classifier is right as often as it says. NLL, Brier score, ECE, temperature.

    temperature = fit_temperature(dev_logits, dev_golds)
    calibration_scores(test_logits / temperature, test_golds)["ECE"]

All take logits or log-probabilities, which are the same to them: they are normalized first. Temperature scaling and
the expected calibration error are those of Guo et al. (2017, arXiv:1706.04599), with bins of equal mass (Nguyen and
O'Connor 2015, arXiv:1508.05154): equally many texts, sorted by confidence, so that no bin is nearly empty.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from mallang.errors import UserError
from mallang.evaluation.score import RESAMPLES, SEED, Score, Statistics

BINS = 15
COLDEST, HOTTEST = 0.01, 100.0
"""Temperatures between which the best is searched: where every label is right, colder is always better."""

Logits = Float[np.ndarray, "items classes"]
Golds = Int[np.ndarray, " items"]


@dataclass(frozen=True)
class Bin:
    """Texts of about the same confidence: one point of a reliability diagram."""

    low: float
    high: float
    """The lowest and the highest confidence."""
    confidence: float
    """The mean confidence, the probability of the most probable class."""
    accuracy: float
    """The share of right labels, from 0 to 1."""
    count: int


def calibration_scores(logits: Logits, golds: Golds, bins: int = BINS) -> dict[str, Score]:
    """The scores "NLL" (nats per text), "Brier" (0 to 2) and "ECE" (0 to 100); lower is better.

    ECE has no interval: resampling adds to it, so that the interval would not be around the value.
    """
    log_probs = log_softmax(logits)
    check(log_probs, golds)
    own = log_probs[np.arange(len(golds)), golds]
    squares = (np.exp(log_probs) ** 2).sum(axis=1) - 2 * np.exp(own) + 1
    one, signature = np.ones(len(golds)), f"bs:{RESAMPLES}|seed:{SEED}"
    scores = {
        name: Statistics(name, np.stack((table, one), axis=1), lambda sums: float(sums[0] / sums[1]), signature).score()
        for name, table in (("NLL", -own), ("Brier", squares))
    }
    found = reliability(logits, golds, bins)
    error = 100 * sum(each.count * abs(each.accuracy - each.confidence) for each in found) / len(golds)
    return {**scores, "ECE": Score("ECE", error, f"bins:{bins}|mass:equal", count=len(golds))}


def reliability(logits: Logits, golds: Golds, bins: int = BINS) -> list[Bin]:
    """The bins of a reliability diagram, from the least to the most confident; fewer where there are fewer texts.

    Bins differ by one text at most. Texts of equal confidence may be in two bins: those that come first in the lower.
    """
    log_probs = log_softmax(logits)
    check(log_probs, golds)
    confidence, right = np.exp(log_probs.max(axis=1)), log_probs.argmax(axis=1) == golds
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

    low, high = np.log(1 / HOTTEST), np.log(1 / COLDEST)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if slope(float(np.exp(middle))) > 0 else (middle, high)
    return float(np.exp(-(low + high) / 2))


def risk_coverage(logits: Logits, golds: Golds) -> tuple[Float[np.ndarray, " items"], Float[np.ndarray, " items"]]:
    """The risk-coverage curve: the share of texts answered, surest first, and the share of wrong labels among them."""
    log_probs = log_softmax(logits)
    check(log_probs, golds)
    order = np.argsort(-log_probs.max(axis=1), kind="stable")
    wrong, answered = (log_probs.argmax(axis=1) != golds)[order], np.arange(1, len(golds) + 1)
    return answered / len(golds), np.cumsum(wrong) / answered


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
