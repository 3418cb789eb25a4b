"""Token embeddings plus position embeddings (Vaswani et al. 2017, sections 3.4, 3.5 and 5.4); pretrained vectors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.data.word_vectors import Vectors
from mallang.layers.dropout import Dropout
from mallang.text.vocabulary import Vocabulary

SPACE = "▁"
"""The mark of a space before a token; words of pretrained vectors have none."""


class Embedding(nn.Module):
    """dropout(scale · token embedding + position embedding); the scale is √dim unless another is given."""

    def __init__(
        self,
        words: int,
        dim: int,
        positions: nn.Module,
        dropout: float = 0.0,
        tied: Embedding | None = None,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        self.scale = math.sqrt(dim) if scale is None else scale
        self.own = nn.Embedding(words, dim) if tied is None else None
        # In a tuple, so that torch does not register it again: the weight is saved and counted once, by its owner.
        self.tied: tuple[Embedding, ...] = () if tied is None else (tied,)
        self.positions = positions
        self.dropout = Dropout(dropout)

    @property
    def table(self) -> nn.Embedding:
        """The token embeddings, own or tied."""
        return self.tied[0].table if self.own is None else self.own

    def forward(
        self,
        tokens: Int[Tensor, "rows time"],
        start: int | Int[Tensor, "*_"] = 0,
        most: int | None = None,
        places: Int[Tensor, "rows time"] | None = None,
    ) -> Float[Tensor, "rows time dim"]:
        """The vectors of tokens from position `start` on; if that is a tensor, `most` is the maximum length.

        `places` instead gives the position of every token, as in packed rows.
        """
        positions: Any = self.positions  # `at` is for learned positions, and for none
        at = positions(tokens.shape[1], start, most) if places is None else positions.at(places)
        vectors = self.table(tokens)
        vectors = (vectors if self.scale == 1 else vectors * self.scale) + at.to(vectors.dtype)
        x: Tensor = self.dropout(vectors)
        return x


@dataclass(frozen=True)
class Coverage:
    """How many words have a pretrained vector; special tokens are not counted."""

    found: int
    in_other_case: int
    """Those of them that the vectors have only in another case."""
    missing: tuple[str, ...]
    """The words without a vector, in the order of their rows."""

    @property
    def words(self) -> int:
        """The number of words."""
        return self.found + len(self.missing)

    @property
    def share(self) -> float:
        """The share of the words that have a vector, between 0 and 1."""
        return self.found / max(1, self.words)

    def __str__(self) -> str:
        other = f", {self.in_other_case:,} of them in another case" if self.in_other_case else ""
        return f"{self.found:,} of {self.words:,} words ({self.share:.1%}) have a vector{other}"


Spellings = Sequence[Sequence[str]]
"""How the word of every row of a table may be spelled, the best first; nothing for a special token."""


def spellings_of(vocabulary: Vocabulary) -> list[tuple[str, ...]]:
    """The spelling of every token, without the mark of the space before it."""
    specials = vocabulary.specials
    return [
        () if number in specials else (token.removeprefix(SPACE) or token,)
        for number, token in enumerate(vocabulary.tokens)
    ]


@torch.no_grad()
def load_vectors(embedding: nn.Embedding, spellings: Spellings, vectors: Vectors, *, scaled: bool = True) -> Coverage:
    """Initialize the vectors of known words from pretrained ones; those of other words stay random.

    A word is looked up as it is spelled, then in lower case, then in any case. The pretrained vectors are scaled to the
    standard deviation of the random ones, which the model was designed for; if not `scaled`, the random ones are scaled
    to that of the pretrained ones (Kim 2014, section 4.3).
    """
    dim = vectors.values.shape[1]
    if dim != embedding.embedding_dim:
        raise ValueError(f"vectors of {dim} numbers do not fit into an embedding of {embedding.embedding_dim}")
    exact = {word: row for row, word in enumerate(vectors.words)}
    folded: dict[str, int] = {}
    for row, word in enumerate(vectors.words):
        folded.setdefault(word.lower(), row)  # the first, which is the most frequent in most files
    places: dict[int, int] = {}
    missing, others = list[str](), 0
    for number, words in enumerate(spellings):
        found = first_of(exact, words)
        if found is None:
            lower = [word.lower() for word in words]
            found = first_of(exact, lower)
            found = first_of(folded, lower) if found is None else found
            others += found is not None
        if found is not None:
            places[number] = found
        elif words:
            missing.append(words[0])
    if places:
        fill(embedding.weight, places, torch.from_numpy(vectors.values), scaled=scaled)
    return Coverage(len(places), others, tuple(missing))


def first_of(rows: Mapping[str, int], words: Sequence[str]) -> int | None:
    """The row of the first of some words that has one."""
    return next((rows[word] for word in words if word in rows), None)


def fill(
    weight: Float[Tensor, "rows dim"],
    places: Mapping[int, int],
    values: Float[Tensor, "words dim"],
    *,
    scaled: bool,
) -> None:
    """Copy vectors into some rows; these or the others are scaled, so that both have one standard deviation."""
    found = values[list(places.values())].to(weight)
    ratio = weight.std() / found.std()
    if not ratio.isfinite() or ratio == 0:  # a single number, or equal ones, have no spread
        ratio = torch.ones_like(ratio)
    if scaled:
        found *= ratio
    else:
        weight /= ratio
    weight[list(places)] = found
