"""Lexicon induction: which target word translates a source word, by word vectors that are mapped into one space.

Precision at k is the share of source words of a gold lexicon of which a gold translation is among the k nearest target
words by CSLS. Words without a vector, or whose gold translations have none, are left out, and counted in the signature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mallang.data.word_vectors import Vectors
from mallang.errors import UserError
from mallang.evaluation.score import RESAMPLES, SEED, Score
from mallang.layers.vector_mapping import (
    Adversary,
    adversarially,
    by_pairs,
    by_similarities,
    csls_neighbors,
    identical_words,
    refine,
    unit,
)

How = Literal["identical", "adversarial", "similarities", "supervised"]
Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Space:
    """Word vectors of two languages in one space."""

    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    source: Float[Tensor, "words dim"]
    """The mapped vectors of the source language."""
    target: Float[Tensor, "others dim"]
    how: str
    """How the mapping was found, for signatures."""

    def translations(self, words: Sequence[str] | None = None, count: int = 1) -> list[list[tuple[str, float]]]:
        """The nearest target words of each source word, with their CSLS; of all words if none are named."""
        rows = {word: row for row, word in enumerate(self.source_words)}
        for word in words or ():
            if word not in rows:
                raise UserError(f"{word!r} has no vector in the source language")
        values, places = csls_neighbors(self.source, self.target, count)
        chosen = [rows[word] for word in words] if words is not None else range(len(self.source_words))
        return [
            [(self.target_words[place], value) for place, value in zip(*found, strict=True)]
            for found in ((places[row].tolist(), values[row].tolist()) for row in chosen)
        ]


def induce(
    source: Vectors,
    target: Vectors,
    how: How,
    *,
    pairs: Pairs = (),
    words: int = 20_000,
    seed: int = 1,
    rounds: int = 5,
) -> Space:
    """Map the vectors of the most frequent source words into the space of the target words, and refine the mapping.

    `how` is the start: words with the same spelling, an adversarial game, words whose similarities to the others of
    their language are alike, or the given pairs, which are not refined.
    """
    if source.values.shape[1] != target.values.shape[1]:
        raise UserError(
            f"the vectors have {source.values.shape[1]} and {target.values.shape[1]} numbers, and must be alike",
            todo="train both with one model.dim",
        )
    names, others = source.words[:words], target.words[:words]
    one, other = (unit(torch.from_numpy(each.values[:words])) for each in (source, target))
    places = {word: place for place, word in enumerate(others)}
    if how == "adversarial":
        mapping, about = adversarially(one, other, Adversary(), seed), f"adversarial|seed:{seed}"
    elif how == "similarities":
        mapping, about = by_similarities(one, other), "similarities"
    else:
        known = identical_words(names, places) if how == "identical" else found_pairs(names, places, pairs)
        if len(known) < 2:
            alike = "words are spelled alike" if how == "identical" else "of the given pairs have two vectors"
            raise UserError(
                f"only {len(known)} {alike}, too few to map one language into the other",
                todo="--by similarities, or --by adversarial",
            )
        mapping, about = by_pairs(one, other, known), f"{how}|pairs:{len(known)}"
    if how != "supervised":
        mapping, about = refine(mapping, one, other, rounds=rounds), f"{about}|rounds:{rounds}"
    return Space(names, others, one @ mapping, other, f"{about}|words:{len(names)}+{len(others)}")


def found_pairs(names: Sequence[str], places: dict[str, int], pairs: Pairs) -> list[tuple[int, int]]:
    """The row numbers of the pairs whose words both have a vector, in this case or in lower case."""
    rows = {word: row for row, word in enumerate(names)}
    found = [(folded(first, rows), folded(second, places)) for first, second in pairs]
    return [(one, other) for one, other in found if one is not None and other is not None]


def folded(word: str, rows: dict[str, int]) -> int | None:
    """The row of a word, as it is spelled or in lower case."""
    return rows.get(word, rows.get(word.lower()))


def precision(space: Space, gold: Pairs, count: int = 1) -> Score:
    """Precision at `count` on a gold lexicon, in percent, with its interval."""
    places = {word: place for place, word in enumerate(space.target_words)}
    right: dict[int, set[int]] = {}
    for one, other in found_pairs(space.source_words, places, gold):
        right.setdefault(one, set()).add(other)
    if not right:
        raise UserError("no word of the gold lexicon has a vector in both languages", todo="give another lexicon")
    _, nearest = csls_neighbors(space.source, space.target, count)
    hits = np.array([not right[row].isdisjoint(nearest[row].tolist()) for row in right])
    random = np.random.default_rng(SEED)
    draws = np.sort(random.binomial(len(hits), hits.mean(), RESAMPLES)) * 100 / len(hits)
    asked = {first for first, _ in gold}
    signature = f"csls|{space.how}|known:{len(right)}/{len(asked)}|bs:{RESAMPLES}|seed:{SEED}"
    low, high = float(draws[RESAMPLES // 40]), float(draws[-RESAMPLES // 40 - 1])
    return Score(f"P@{count}", 100 * float(hits.mean()), signature, low, high, len(hits))
