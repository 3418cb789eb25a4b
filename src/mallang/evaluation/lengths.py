"""Quality by source length: it shows where models that encode a sentence into one vector fall behind.

    buckets = buckets_of(sources)
    [bucket.take(outputs) for bucket in buckets]

Sentences are sorted into ranges of source words. Every range is scored as a corpus of its own: BLEU is not a mean over
sentences, so the values of the ranges do not average to that of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeVar

import numpy as np

from mallang.errors import UserError

Unit = Literal["words", "characters"]
Item = TypeVar("Item")
MOST = 8
"""Maximum number of automatically chosen ranges."""
FEWEST = 10
"""Minimum number of sentences in an automatically chosen range: a score of fewer says nothing."""
STEPS = (1, 2, 3, 5, 10, 20, 25, 50, 100)


@dataclass(frozen=True)
class Bucket:
    """The sentences whose source has from `low` to `high` words; None is no bound."""

    low: int
    high: int | None
    places: tuple[int, ...]
    """The indices of the sentences, in the order of the text."""
    unit: Unit = "words"

    @property
    def name(self) -> str:
        """Such as 11-15, or 31+."""
        if self.high is None:
            return f"{self.low}+"
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"

    def __len__(self) -> int:
        return len(self.places)

    def take(self, items: Sequence[Item]) -> list[Item]:
        """The items of these sentences, from items of all sentences."""
        return [items[place] for place in self.places]


def buckets_of(sources: Sequence[str], ends: Sequence[int] | None = None) -> list[Bucket]:
    """The ranges of a text, shortest first, without empty ones; `ends` are the upper ends of all but the last range.

    Without `ends` they are chosen: at most eight ranges of a round width, and enough sentences in the first and last.
    """
    if not sources:
        raise UserError("there is no sentence to sort by length")
    unit = unit_of(sources)
    lengths = np.array([measure(source, unit) for source in sources])
    if ends is None:
        ends = choose_ends(lengths)
    elif not ends or list(ends) != sorted(set(ends)) or ends[0] < 1:
        raise UserError(f"lengths {list(ends)} do not rise from 1", todo="give the ends of ranges, such as 10,20,30")
    bounds = [(before + 1, end) for before, end in pairwise([-1, *ends])] + [(ends[-1] + 1 if ends else 0, None)]
    found = []
    for low, high in bounds:
        inside = (lengths >= low) & (lengths <= (lengths.max() if high is None else high))
        if inside.any():
            # The outer ranges are open, but their names end at the lengths that occur.
            first, last = max(low, int(lengths.min())), high if high is None else min(high, int(lengths.max()))
            found.append(Bucket(first, last, tuple(np.flatnonzero(inside).tolist()), unit))
    return found


def unit_of(sources: Sequence[str]) -> Unit:
    """Words between blanks; characters where the language writes none."""
    words = np.median([measure(source, "words") for source in sources])
    characters = np.median([len(source) for source in sources])
    return "characters" if words <= 2 and characters > 10 * max(words, 1) else "words"


def measure(source: str, unit: Unit) -> int:
    """The length of a text in this unit."""
    return len(source.split()) if unit == "words" else len(source)


def choose_ends(lengths: np.ndarray) -> list[int]:
    """The upper ends of all ranges but the last: multiples of one step, without ranges of few sentences at the ends."""
    low, high = (int(np.quantile(lengths, share)) for share in (0.02, 0.98))
    step = next((step for step in STEPS if (high - low) // step < MOST), STEPS[-1])
    ends = [end for end in range(step, high, step) if end >= low]
    while ends and (lengths <= ends[0]).sum() < FEWEST:
        ends = ends[1:]
    while ends and (lengths > ends[-1]).sum() < FEWEST:
        ends = ends[:-1]
    return ends
