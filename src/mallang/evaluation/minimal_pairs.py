"""Minimal pairs: two texts that differ in one point, of which one is well formed; which does a model prefer?

BLiMP: The Benchmark of Linguistic Minimal Pairs for English. Warstadt et al. 2020, arXiv:1912.00582. The measure is
theirs: a pair is right where the well-formed text is the more probable one. Equals are wrong.
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
    """What a model makes of one pair."""

    better: str
    """The text that is well formed."""
    worse: str
    better_score: float
    worse_score: float

    @property
    def is_right(self) -> bool:
        """Whether it finds the better one better."""
        return self.better_score > self.worse_score

    @property
    def margin(self) -> float:
        """By how much, in nats: nothing between two texts that are both impossible."""
        return 0.0 if self.better_score == self.worse_score else self.better_score - self.worse_score


def accuracy(preferences: Sequence[Preference], by: By = "total", name: str = "accuracy") -> Score:
    """The share of pairs, in percent, in which the better text has the higher score, with its interval."""
    if not preferences:
        raise UserError("there are no pairs to compare")
    table = np.array([[float(each.is_right), 1.0] for each in preferences])
    signature = f"minimal-pairs|by:{by}|ends:counted|ties:wrong|bs:{RESAMPLES}|seed:{SEED}"
    return Statistics(name, table, lambda sums: float(100 * sums[0] / max(1.0, sums[1])), signature).score()
