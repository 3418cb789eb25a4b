"""Token embeddings plus position embeddings (Vaswani et al. 2017, sections 3.4, 3.5 and 5.4); pretrained vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

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
        start: int | Int[Tensor, ""] = 0,
        most: int | None = None,
        places: Int[Tensor, "rows time"] | None = None,
    ) -> Float[Tensor, "rows time dim"]:
        """The vectors of tokens from position `start` on; if that is a tensor, `most` is the maximum length.

        `places` instead gives the position of every token, as in packed rows.
        """
        positions: Any = self.positions  # only learned positions have `at`
        at = positions(tokens.shape[1], start, most) if places is None else positions.at(places)
        vectors = self.table(tokens)
        vectors = (vectors if self.scale == 1 else vectors * self.scale) + at.to(vectors.dtype)
        x: Tensor = self.dropout(vectors)
        return x


@dataclass(frozen=True)
class Coverage:
    """How much of a vocabulary has a pretrained vector; special tokens are not counted."""

    found: int
    words: int
    missing: tuple[str, ...]
    """The tokens without a vector, in the order of their ids."""

    @property
    def share(self) -> float:
        """The share of the tokens that have a vector, between 0 and 1."""
        return self.found / max(1, self.words)

    def __str__(self) -> str:
        return f"{self.found:,} of {self.words:,} tokens ({self.share:.1%}) have a pretrained vector"


@torch.no_grad()
def load_vectors(
    embedding: nn.Embedding,
    vocabulary: Vocabulary,
    words: Sequence[str],
    matrix: Float[Tensor, "words dim"],
    *,
    static: bool = False,
) -> Coverage:
    """Initialize the vectors of known words from pretrained ones; `static`: the table is not trained afterwards.

    A token is looked up as it is spelled, without the mark of the space before it, then in lower case. Vectors of other
    tokens keep their random values, scaled to the standard deviation of the pretrained ones (Kim 2014, section 4.3).
    """
    if matrix.shape != (len(words), embedding.embedding_dim):
        raise ValueError(
            f"{len(words)} words of size {embedding.embedding_dim} need a matrix of that shape, not "
            f"{tuple(matrix.shape)}"
        )
    rows = {word: row for row, word in reversed(list(enumerate(words)))}  # the first of equal words
    places: dict[int, int] = {}
    missing: list[int] = []
    for number, token in enumerate(vocabulary.tokens):
        if number in vocabulary.specials:
            continue
        word = token.removeprefix(SPACE) or token
        row = rows.get(word, rows.get(word.lower()))
        if row is None:
            missing.append(number)
        else:
            places[number] = row
    if places:
        found = matrix[list(places.values())].to(embedding.weight)
        others = [number for number in range(len(vocabulary)) if number not in places]
        spread = embedding.weight[others].std()
        if len(others) and spread > 0:
            embedding.weight[others] *= found.std() / spread
        embedding.weight[list(places)] = found
    embedding.weight.requires_grad_(not static)
    tokens = tuple(vocabulary.tokens[number] for number in missing)
    return Coverage(len(places), len(places) + len(missing), tokens)
