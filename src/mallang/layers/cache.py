"""What a model remembers while it generates: one part per sentence, one part per hypothesis.

`fixed` is what was read from the source (encoder memory, masks): a row per sentence, never reordered, never copied
for each beam. `moving` is what was generated so far (keys and values, hidden states): a row per hypothesis, where
rows = sentences × width and the hypotheses of one sentence lie together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from jaxtyping import Int
from torch import Tensor

Nest: TypeAlias = Any
"""Any nest of dicts, lists and tuples of tensors whose first axis is rows; None and plain numbers pass through."""


@dataclass(frozen=True)
class State:
    """The memory of a generation in progress."""

    fixed: Nest
    moving: Nest

    def select(self, rows: Int[Tensor, " new_rows"]) -> State:
        """Go on with these hypotheses, in this order; one may be taken several times."""
        return State(self.fixed, map_nest(self.moving, lambda tensor: tensor.index_select(0, rows)))

    def keep(self, sentences: Int[Tensor, " kept"], rows: Int[Tensor, " kept_rows"]) -> State:
        """Go on with these sentences only, and with these rows of hypotheses."""
        fixed = map_nest(self.fixed, lambda tensor: tensor.index_select(0, sentences))
        return State(fixed, map_nest(self.moving, lambda tensor: tensor.index_select(0, rows)))

    def widen(self, width: int) -> State:
        """Give every hypothesis `width` copies, lying together."""
        return State(self.fixed, map_nest(self.moving, lambda tensor: tensor.repeat_interleave(width, dim=0)))

    def copy(self) -> State:
        """A state of its own, for whoever steps from here twice: a step may consume the state it is given."""
        return State(self.fixed, map_nest(self.moving, lambda tensor: tensor.clone()))


def map_nest(nest: Nest, change: Callable[[Tensor], Tensor]) -> Nest:
    """The same nest with every tensor changed."""
    if isinstance(nest, Tensor):
        return change(nest)
    if isinstance(nest, dict):
        return {key: map_nest(value, change) for key, value in nest.items()}
    if isinstance(nest, tuple | list):
        return type(nest)(map_nest(value, change) for value in nest)
    return nest
