"""A reproducible score: its value, its signature, and its confidence interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

RESAMPLES = 1000
SEED = 12345
"""sacreBLEU's numbers, so that our intervals are those it prints."""


@dataclass(frozen=True)
class Score:
    """One measured value."""

    name: str
    value: float
    signature: str
    """All settings that reproduce the value, as `key:value` parts joined by `|`."""
    low: float | None = None
    high: float | None = None
    """The ends of the 95 % interval from bootstrap resampling."""
    count: int | None = None
    """How many sentences were scored."""

    def __str__(self) -> str:
        interval = "" if self.low is None or self.high is None else f" [{_show(self.low)}, {_show(self.high)}]"
        return f"{self.name} {_show(self.value)}{interval} ({self.signature})"

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file, which has no infinite numbers: they are written as words."""
        return {key: str(value) if _is_unwritable(value) else value for key, value in asdict(self).items()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Score:
        """The score that `to_json` wrote."""
        numbers = {key: float(values[key]) for key in ("value", "low", "high") if isinstance(values[key], str)}
        return cls(**{**values, **numbers})


@dataclass(frozen=True)
class Statistics:
    """The sufficient statistics of a corpus metric: some numbers per sentence, which are summed first.

    The metric of any resample of sentences follows from the sum of their rows, without counting again.
    """

    name: str
    table: Shaped[np.ndarray, "sentences statistics"]
    measure: Callable[[Float[np.ndarray, " statistics"]], float]
    """The value of summed rows."""
    signature: str

    @property
    def value(self) -> float:
        """The measure of all sentences."""
        return self.measure(self.table.sum(axis=0).astype(np.float64))

    def score(self) -> Score:
        """The measure of all sentences, with its interval."""
        low, high = interval(self.table, self.measure)
        return Score(self.name, self.value, self.signature, low, high, len(self.table))


def interval(
    statistics: Shaped[np.ndarray, "sentences statistics"],
    measure: Callable[[Float[np.ndarray, " statistics"]], float],
) -> tuple[float, float]:
    """The 95 % interval of a measure of summed statistics: sentences are drawn again, with replacement, 1,000 times.

    `measure` sees the sums of one draw; statistics may be +∞. The draws and the ends of the interval are sacreBLEU's.
    """
    return intervals(statistics, [measure])[0]


def intervals(
    statistics: Shaped[np.ndarray, "sentences statistics"],
    measures: Sequence[Callable[[Float[np.ndarray, " statistics"]], float]],
) -> list[tuple[float, float]]:
    """The intervals of several measures of the same statistics, from the same draws."""
    random = np.random.default_rng(SEED)
    sentences = len(statistics)
    # An infinite number times no draws is 0 here, not NaN, so infinite ones are counted apart.
    infinite = np.isinf(statistics)
    finite = np.where(infinite, 0.0, statistics)
    values: list[list[float]] = [[] for _ in measures]
    for _ in range(RESAMPLES):
        # How often each sentence was drawn, times its statistics: no copy of the drawn rows is needed.
        times = np.bincount(random.integers(0, sentences, size=sentences), minlength=sentences).astype(np.float64)
        sums = times @ finite
        sums[times @ infinite > 0] = np.inf
        for own, measure in zip(values, measures, strict=True):
            own.append(measure(sums))
    ordered = [sorted(own) for own in values]
    return [(own[RESAMPLES // 40], own[RESAMPLES - RESAMPLES // 40 - 1]) for own in ordered]


def _show(value: float) -> str:
    return f"{value:.2f}" if abs(value) >= 10 else f"{value:.3f}"


def _is_unwritable(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
