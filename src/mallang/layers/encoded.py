"""What an encoder makes of a text: vectors of its tokens, and one of the whole."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True)
class Encoded:
    """A batch of texts, read."""

    layers: list[Float[Tensor, "batch time dim"]]
    """The vectors of the tokens after each layer that is shown, the last one last."""
    mask: Bool[Tensor, "batch time"]
    """True where there is a token: what stands elsewhere means nothing."""
    pooled: Float[Tensor, "batch pooled"]
    """The whole text as one vector."""
