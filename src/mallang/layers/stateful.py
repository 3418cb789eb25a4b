"""Stateful forward, for truncated BPTT: a window of text and the carried state in, hidden vectors and a new state out.

    output = model.forward_stateful(batch, None)              the first window of a text
    output = model.forward_stateful(batch, output.carry)      the next window of every row

`forward(batch)` is `forward_stateful(batch, None).hidden`. A window that is followed by another is never padded: only
the last window of a text may be, and its carry is not used. So a carry need not consider lengths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from mallang.layers.cache import Nest


@dataclass(frozen=True)
class StatefulOutput:
    """The output of a stateful forward."""

    hidden: Float[Tensor, "batch time dim"]
    """The hidden vector of every position, from which its next token is predicted."""
    carry: Nest
    """The carried state, from which the next window of the same rows continues: rows-first tensors, detached."""
    penalties: Mapping[str, Float[Tensor, ""]] = field(default_factory=dict)
    """Regularization terms of the training loss, by name: sums over the tokens of the batch, already weighted."""


@runtime_checkable
class Stateful(Protocol):
    """A model with a stateful forward: it continues from the state that its last window left."""

    def forward_stateful(self, batch: Any, carry: Nest) -> StatefulOutput:
        """Read a window; without a carry it is the first of a text."""
