"""The output of an encoder: one vector per token, and one for the whole text."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True)
class Encoded:
    """The encoder output of a batch of texts."""

    layers: list[Float[Tensor, "batch time dim"]]
    """The vectors of the tokens after each layer that is returned, the last one last."""
    mask: Bool[Tensor, "batch time"]
    """True where there is a token; the vectors elsewhere are meaningless."""
    pooled: Float[Tensor, "batch pooled"]
    """The whole text as one vector."""
