"""Word similarity and analogies: whether vectors agree with people.

Similarity is Spearman's rank correlation between the cosines of pairs of words and the scores that people gave them,
times 100. An analogy "a is to b as c is to d" is solved if d is the word nearest to b − a + c (3CosAdd, Mikolov et al.
2013), the three given words apart. Pairs and questions with an unknown word are left out, and counted in the signature.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from mallang.evaluation.score import RESAMPLES, SEED, Score

CHUNK = 512
"""Questions that are answered at once."""


def ranks(values: Float[np.ndarray, " values"]) -> Float64[np.ndarray, " values"]:
    """The rank of every value, from 1; equal values share the mean of their ranks."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return ((ends - counts + 1 + ends) / 2)[places]


def spearman(first: Float[np.ndarray, " values"], second: Float[np.ndarray, " values"]) -> float:
    """The correlation of the ranks of two lists; 0 where one of them is constant."""
    one, other = (ranks(values) - (len(values) + 1) / 2 for values in (first, second))
    scale = float(np.sqrt((one @ one) * (other @ other)))
    return float(one @ other) / scale if scale else 0.0


def similarity(name: str, cosines: Sequence[float | None], scores: Sequence[float], about: str = "") -> Score:
    """The rank correlation of cosines with the scores of people, with its interval; None is a pair that is unknown."""
    known = [(cosine, score) for cosine, score in zip(cosines, scores, strict=True) if cosine is not None]
    table = np.array(known, dtype=np.float64).reshape(-1, 2)
    random, draws = np.random.default_rng(SEED), []
    for _ in range(RESAMPLES if len(table) else 0):
        drawn = table[random.integers(0, len(table), size=len(table))]
        draws.append(100 * spearman(drawn[:, 0], drawn[:, 1]))
    low, high = np.sort(draws)[[RESAMPLES // 40, -RESAMPLES // 40 - 1]].tolist() if draws else (None, None)
    parts = ["spearman", "cosine", f"known:{len(table)}/{len(scores)}", about, f"bs:{RESAMPLES}", f"seed:{SEED}"]
    value = 100 * spearman(table[:, 0], table[:, 1])
    return Score(name, value, "|".join(part for part in parts if part), low, high, len(table))


def solve_analogies(
    vectors: Float[Tensor, "words dim"], questions: Int[Tensor, "questions 3"], exclude: Sequence[int] = ()
) -> Int[Tensor, " questions"]:
    """The word nearest to b − a + c for each question (a, b, c), by vectors of length 1; ties go to the lower id."""
    left_out = torch.tensor(list(exclude), dtype=torch.long, device=vectors.device)
    answers = []
    for some in torch.split(questions, CHUNK):
        a, b, c = (vectors[some[:, column]] for column in range(3))
        cosines = (b - a + c) @ vectors.T
        cosines.scatter_(1, some, -torch.inf)
        cosines[:, left_out] = -torch.inf
        answers.append(cosines.argmax(dim=1))
    return torch.cat(answers) if answers else questions.new_empty(0)


def analogies(name: str, right: Bool[np.ndarray, " questions"], total: int, about: str = "") -> Score:
    """The share of questions that are solved, in percent, with its interval."""
    random = np.random.default_rng(SEED)
    count = len(right)
    draws = np.sort(random.binomial(count, right.mean(), RESAMPLES)) * 100 / count if count else np.zeros(RESAMPLES)
    low, high = float(draws[RESAMPLES // 40]), float(draws[-RESAMPLES // 40 - 1])
    parts = ["3CosAdd", f"known:{count}/{total}", about, f"bs:{RESAMPLES}", f"seed:{SEED}"]
    value = 100 * float(right.mean()) if count else 0.0
    return Score(name, value, "|".join(part for part in parts if part), low, high, count)
