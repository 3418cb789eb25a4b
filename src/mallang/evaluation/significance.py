"""Significance tests: whether one system is better than another, or the difference may be due to chance.

    paired_bootstrap(outputs_a, outputs_b, references, "bleu").p_value

Both tests compare two systems on the same sentences. Paired bootstrap resampling (Koehn, 2004, "Statistical
Significance Tests for Machine Translation Evaluation") draws the sentences again and again, the same for both. Paired
approximate randomization (Riezler and Maxwell, 2005) exchanges the two outputs of random sentences: if the systems
are equal, it cannot matter whose output is whose. The random draws and p-values are those of sacreBLEU, except that
ties with the observed difference count here.

Nothing is counted again for a draw: one matmul multiplies the counts of the drawn sentences with their statistics, for
many draws at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from mallang.errors import UserError, nearest
from mallang.evaluation.quality import MEASURES
from mallang.evaluation.score import RESAMPLES, SEED, Statistics
from mallang.evaluation.translation import References

Metric = str | Callable[[Sequence[str], References], Statistics]
"""bleu, chrf, words, exact or brackets; or a function from outputs and references to statistics."""
TRIALS = 10_000
"""Trials of an approximate randomization, as many as in sacreBLEU."""
ROUNDING = 1e-9
"""Smaller differences count as ties."""
AT_ONCE = 4_000_000
"""Sentences times draws per block in memory."""


@dataclass(frozen=True)
class Comparison:
    """Two systems by one measure on the same sentences."""

    metric: str
    first: float
    second: float
    p_value: float
    """The probability of a difference at least as large if the systems are equal.

    That of the bootstrap is one-sided near a clear difference, as sacreBLEU's: about half that of randomization.
    """
    count: int
    """How many sentences were compared."""
    signature: str
    low: float | None = None
    high: float | None = None
    """The ends of the 95 % interval of the difference; bootstrap only."""
    better: float | None = None
    """The share of resamples in which the first system is better, ties as a half: what Koehn reports."""

    @property
    def difference(self) -> float:
        """The score of the first system minus that of the second."""
        return self.first - self.second

    def __str__(self) -> str:
        interval = "" if self.low is None or self.high is None else f" [{self.low:+.2f}, {self.high:+.2f}]"
        return f"{self.metric} {self.difference:+.2f}{interval}, p = {self.p_value:.4f} ({self.signature})"

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        return {**asdict(self), "difference": self.difference}


def paired_bootstrap(
    outputs_a: Sequence[str],
    outputs_b: Sequence[str],
    references: References,
    metric: Metric = "bleu",
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Comparison:
    """Compare two systems on sentences drawn with replacement, the same for both."""
    first, second = _statistics(outputs_a, outputs_b, references, metric)
    _check("resamples", resamples)
    values: list[tuple[float, float]] = []
    for times in _draws(len(first.table), resamples, seed):
        values += zip(_measured(first, times @ first.table), _measured(first, times @ second.table), strict=True)
    differences = np.array([a - b for a, b in values])
    # The resampled differences scatter around the observed one; centered at zero they are those of equal systems.
    distances = np.abs(differences)
    ordered = np.sort(differences)
    return Comparison(
        first.name,
        first.value,
        second.value,
        p_value=_p_value(distances - distances.mean(), abs(first.value - second.value)),
        count=len(first.table),
        signature=_signature(first, f"test:paired-bootstrap|bs:{resamples}|seed:{seed}"),
        low=float(ordered[resamples // 40]),
        high=float(ordered[resamples - resamples // 40 - 1]),
        better=float((differences > 0).mean() + (differences == 0).mean() / 2),
    )


def paired_randomization(
    outputs_a: Sequence[str],
    outputs_b: Sequence[str],
    references: References,
    metric: Metric = "bleu",
    *,
    trials: int = TRIALS,
    seed: int = SEED,
) -> Comparison:
    """Compare two systems with their differences when the outputs of random sentences are exchanged."""
    first, second = _statistics(outputs_a, outputs_b, references, metric)
    _check("trials", trials)
    differences: list[float] = []
    for kept in _exchanges(len(first.table), trials, seed):
        ours = _measured(first, kept @ first.table + (1 - kept) @ second.table)
        theirs = _measured(first, (1 - kept) @ first.table + kept @ second.table)
        differences += [a - b for a, b in zip(ours, theirs, strict=True)]
    return Comparison(
        first.name,
        first.value,
        second.value,
        p_value=_p_value(np.abs(differences), abs(first.value - second.value)),
        count=len(first.table),
        signature=_signature(first, f"test:approximate-randomization|ar:{trials}|seed:{seed}"),
    )


def _statistics(
    outputs_a: Sequence[str], outputs_b: Sequence[str], references: References, metric: Metric
) -> tuple[Statistics, Statistics]:
    """The statistics of both systems."""
    if isinstance(metric, str):
        if metric not in MEASURES:
            raise UserError(f"two systems cannot be compared by {metric!r}", todo=nearest(metric, MEASURES))
        metric = MEASURES[metric]
    return metric(outputs_a, references), metric(outputs_b, references)


def _draws(sentences: int, resamples: int, seed: int) -> Iterator[Float[np.ndarray, "draws sentences"]]:
    """How often each sentence was drawn, for some draws at a time."""
    random = np.random.default_rng(seed)
    for count in _portions(resamples, sentences):
        drawn = random.integers(0, sentences, size=(count, sentences))
        places = drawn + np.arange(count)[:, None] * sentences
        times = np.bincount(places.ravel(), minlength=count * sentences)
        yield times.reshape(count, sentences).astype(np.float64)


def _exchanges(sentences: int, trials: int, seed: int) -> Iterator[Float[np.ndarray, "draws sentences"]]:
    """For some trials at a time: 1 where both systems keep their output of a sentence, 0 where they exchange it."""
    random = np.random.default_rng(seed)
    # Random bits are generated in machine words: sacreBLEU draws them in one call, so this does too.
    kept = random.integers(2, size=(trials, sentences), dtype=bool)
    done = 0
    for count in _portions(trials, sentences):
        yield kept[done : done + count].astype(np.float64)
        done += count


def _portions(draws: int, sentences: int) -> Iterator[int]:
    """How many draws to make at a time."""
    most = max(1, AT_ONCE // sentences)
    for done in range(0, draws, most):
        yield min(most, draws - done)


def _measured(statistics: Statistics, sums: Float[np.ndarray, "draws statistics"]) -> list[float]:
    """The measure of each row of sums."""
    return [statistics.measure(row) for row in sums]


def _p_value(chances: np.ndarray, observed: float) -> float:
    """The share of chance differences at least as large as the observed one, which is one of them: never zero.

    Ties count, unlike in sacreBLEU: systems with equal outputs do not differ.
    """
    return float((np.count_nonzero(chances >= observed - ROUNDING) + 1) / (len(chances) + 1))


def _signature(statistics: Statistics, test: str) -> str:
    """How the measure and the test are computed; the resampling of the measure's own interval is no part of it."""
    parts = [part for part in statistics.signature.split("|") if not part.startswith(("bs:", "seed:"))]
    return "|".join([*parts, test])


def _check(name: str, count: int) -> None:
    if count < 1:
        raise UserError(f"{name} must be at least 1, but is {count}")
