"""Minimal pairs: two texts that differ in one point, of which one is well-formed; the accuracy of a model's preference.

BLiMP: The Benchmark of Linguistic Minimal Pairs for English. Warstadt et al. 2020, arXiv:1912.00582. The measure is
theirs: a pair is right where the well-formed text is more probable. Ties are wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mallang.errors import UserError
from mallang.evaluation.score import RESAMPLES, SEED, Score, Statistics

By = Literal["total", "token"]
"""Compare log-probabilities as they are, or divided by the number of tokens."""


@dataclass(frozen=True)
class Preference:
    """The scores of a model for one pair."""

    better: str
    """The well-formed text."""
    worse: str
    better_score: float
    worse_score: float

    @property
    def is_right(self) -> bool:
        """Whether the better text has the higher score."""
        return self.better_score > self.worse_score

    @property
    def margin(self) -> float:
        """The difference of the scores in nats; 0 if both texts have probability 0."""
        return 0.0 if self.better_score == self.worse_score else self.better_score - self.worse_score


def accuracy(preferences: Sequence[Preference], by: By = "total", name: str = "accuracy") -> Score:
    """The share of pairs, in percent, in which the better text has the higher score, with its interval."""
    if not preferences:
        raise UserError("there are no pairs to compare")
    table = np.array([[float(each.is_right), 1.0] for each in preferences])
    signature = f"minimal-pairs|by:{by}|ends:counted|ties:wrong|bs:{RESAMPLES}|seed:{SEED}"
    return Statistics(name, table, lambda sums: float(100 * sums[0] / max(1.0, sums[1])), signature).score()
