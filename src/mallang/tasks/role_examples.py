"""The examples of semantic roles: a sentence with one of its predicates, and once without, as arrays of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Integer

from mallang.data.columns import Segments
from mallang.data.roles import UNKNOWN_LEMMA


@dataclass(frozen=True)
class RoleExample:
    """A sentence as the model reads it once: for one predicate, or to find out which words are predicates."""

    ids: Any
    """The token of every word."""
    asked: int = -1
    """The word that is the predicate; −1: none is asked for."""
    lemma: int = UNKNOWN_LEMMA
    roles: Any = None
    """The role of every word for the predicate, if it is known."""
    marks: Any = None
    """Whether each word is a predicate, if it is known and none is asked for."""
    features: tuple[Any, ...] = ()
    """What the encoder of the features reads."""


class RoleExamples(Sequence[RoleExample]):
    """All examples of a corpus: one for each predicate of each sentence, and one without."""

    def __init__(self, corpus: Any) -> None:
        self.corpus = corpus
        words, roles = corpus.lengths[:, 0], corpus.lengths[:, 2]
        counts = roles // np.maximum(words, 1) + 1
        self.rows = np.repeat(np.arange(len(words)), counts)
        self.numbers = np.arange(len(self.rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        self.lengths: Integer[np.ndarray, " examples"] = words[self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> RoleExample:  # type: ignore[override]
        ids, lemmas, roles, *features = self.corpus[int(self.rows[place])]
        number = int(self.numbers[place])
        predicates = np.flatnonzero(lemmas >= 0)
        if number == len(predicates):
            return RoleExample(ids, marks=(lemmas >= 0).astype(np.int64), features=tuple(features))
        asked = int(predicates[number])
        own = roles.reshape(len(predicates), -1)[number]
        return RoleExample(ids, asked, int(lemmas[asked]), own, features=tuple(features))


class WholeWords(Segments):
    """Encodes every word as one token."""

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """The first token of every word."""
        return [[segment[0] for segment in cell] for cell in self.segments(texts)]
