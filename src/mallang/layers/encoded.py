"""The output of an encoder: one vector per token, and one for the whole text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True)
class Encoded:
    """The encoder output of a batch of texts."""

    layers: list[Float[Tensor, "batch time dim"]]
    """The vectors of the tokens after each layer that is returned, the last one last."""
    mask: Bool[Tensor, "batch time"]
    """True where there is a token; the vectors elsewhere are meaningless."""
    pooled: Float[Tensor, "examples pooled"]
    """The whole text, or the whole document, as one vector."""
    penalties: Mapping[str, Float[Tensor, " examples"]] = field(default_factory=dict)
    """What the model adds to the loss of each example, by name, already weighted."""


@dataclass(frozen=True)
class EncoderDims:
    """The sizes of the vectors that an encoder gives, for the heads that are put on it."""

    pooled: int
    """The size of the vector of a whole text."""
    token: int | None
    """The size of the vector of a token in the last layer; None: there are no vectors of tokens."""
    layers: int = 1
    """How many layers of vectors of that size it gives."""
