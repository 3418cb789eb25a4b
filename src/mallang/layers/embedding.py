"""Token embeddings plus position embeddings (Vaswani et al. 2017, sections 3.4, 3.5 and 5.4)."""

from __future__ import annotations

import math
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.layers.dropout import Dropout


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
