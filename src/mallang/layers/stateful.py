"""What a language model gives that reads a long text window after window: vectors, and a state to continue with.

    reading = model.forward_stateful(batch, None)              the beginning of a text
    reading = model.forward_stateful(batch, reading.carry)     the next window of every row

`forward(batch)` is `forward_stateful(batch, None).hidden`. A window that is followed by another is never padded: only
the last one of a text may be, and what it leaves is not used. So a carry need not look at lengths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from mallang.layers.cache import Nest


@dataclass(frozen=True)
class StatefulOutput:
    """One window, read."""

    hidden: Float[Tensor, "batch time dim"]
    """The vector of every position: all that is known before its next token is chosen."""
    carry: Nest
    """What the next window of the same rows continues from: rows-first tensors, without gradients."""
    penalties: Mapping[str, Float[Tensor, ""]] = field(default_factory=dict)
    """What is added to the loss in training, by name: sums over the tokens of the batch, already weighted."""


@runtime_checkable
class Stateful(Protocol):
    """A model that can continue where its last window ended."""

    def forward_stateful(self, batch: Any, carry: Nest) -> StatefulOutput:
        """Read a window; without a carry it is the beginning of a text."""
