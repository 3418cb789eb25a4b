"""Link prediction: filtered ranks of the right answers, and their mean reciprocal rank (MRR) and hits at k.

The rank of an answer among all entities, other answers that are known to be true left out (Bordes et al. 2013). Equal
scores share the mean of their ranks, so that a model with one score for everything gains nothing. An answer that the
model does not know has the last rank.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from mallang.evaluation.score import Score, Statistics

HITS = (1, 3, 10)


def filtered_rank(
    scores: Float[np.ndarray, " candidates"], answer: int, known: Sequence[int] | np.ndarray
) -> tuple[float, int]:
    """The rank of an answer, from 1, without other known answers; and the number of candidates that it is among."""
    is_left_out = np.zeros(len(scores), dtype=bool)
    is_left_out[np.asarray(known, dtype=np.int64)] = True
    is_left_out[answer] = False
    return rank_of(scores, answer, is_left_out)


def rank_of(
    scores: Float[np.ndarray, " candidates"], answer: int, is_left_out: Bool[np.ndarray, " candidates"]
) -> tuple[float, int]:
    """The rank of an answer among the candidates that are not left out."""
    own = scores[answer]
    left = scores[~is_left_out]
    better, equal = int((left > own).sum()), int((left == own).sum()) - 1
    return 1 + better + equal / 2, len(left)


def link_scores(ranks: Float[np.ndarray, " answers"], signature: str) -> list[Score]:
    """MRR and hits at 1, 3 and 10 in percent of all answers, with bootstrap intervals, and the mean rank."""
    ranks = np.asarray(ranks, dtype=np.float64)
    found = [measured("MRR", 1 / ranks, signature)]
    found += [measured(f"hits@{k}", (ranks <= k).astype(np.float64), signature) for k in HITS]
    return [*found, Score("mean rank", float(ranks.mean()), signature, count=len(ranks))]


def measured(name: str, values: Float[np.ndarray, " answers"], signature: str) -> Score:
    """The mean of one value per answer, times 100."""
    table = np.stack((values, np.ones(len(values))), axis=1)
    return Statistics(name, table, lambda sums: 100 * float(sums[0] / sums[1]), signature).score()
