"""A KV cache for texts of unequal lengths that share decode steps, and which others may join at any step.

All rows write the same slot in a step, the clock. A text that joins is written right before the clock, so that its
next token has the next slot, as that of every other row; its position is the clock less the slot of its first token.

    clock at 6          slots  0 1 2 3 4 5
    began at slot 0            a b c d e f     position 6 next
    joined with 2 tokens       · · · · x y     position 2 next
    a free row                 · · · · · ·     computed too, and ignored, until a text takes it

Slots before the first one in use are not read. The memory is allocated for many steps, and moved only when it is full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mallang.kernels import kv_cache
from mallang.layers.attention import KeyValue, LayerCache, Mask
from mallang.layers.cache import DynamicCache, StaticLayerCache, rows_of

SLOTS = 64
"""Slots that are allocated at first, beyond those in use; they double when they are full."""


@dataclass(frozen=True)
class JoinedCache:
    """The keys and values of every layer, a row per text, in common slots."""

    layers: Sequence[KeyValue]
    mask: Float[Tensor, "rows slots"]
    """0 where a row may attend to a slot, −∞ elsewhere."""
    begins: Int[Tensor, " rows"]
    """The slot of the first token of each row."""
    clock: int
    """The slot that the next step writes."""
    first: int
    """The first slot that any text uses."""

    @staticmethod
    def like(cache: DynamicCache, rows: int) -> JoinedCache:
        """Free rows, with the shapes of a cache."""
        layers = [KeyValue(*kv_cache.allocate(*layer, rows, SLOTS, 1)) for layer in cache.layers]
        like = cache.layers[0].keys
        mask = like.new_full((rows, SLOTS), -torch.inf)
        return JoinedCache(layers, mask, torch.zeros(rows, dtype=torch.long, device=like.device), 0, 0)

    @property
    def length(self) -> Int[Tensor, " rows"]:
        """The number of cached tokens of each row."""
        return self.clock - self.begins

    @property
    def most(self) -> int:
        """The maximum number of tokens in the slots, the next one included."""
        return self.clock + 1

    def enter(self, time: int, window: int | None) -> tuple[Sequence[LayerCache], Mask]:
        """The caches of all layers for one new token per row, and the mask; the next slot must be free."""
        if time != 1:
            raise ValueError(f"a step of joined texts reads one token of each, not {time}")
        now, first = self.clock, self.first
        self.mask[:, now] = 0.0
        if window is not None:
            first = max(first, now - window)
        mask = self.mask[:, None, None, first : now + 1]
        at, length = slice(now - first, now - first + 1), now + 1 - first
        layers = [
            StaticLayerCache(layer.keys[:, :, first:], layer.values[:, :, first:], at, length) for layer in self.layers
        ]
        return layers, mask

    def leave(self, layers: Sequence[KeyValue]) -> JoinedCache:
        """The cache after the step: one slot later, in the same memory."""
        return replace(self, clock=self.clock + 1)

    def make_room(self, length: int, ahead: int = 1) -> JoinedCache:
        """A cache with so many slots before the clock, for a text to join, and so many free ones after it.

        Slots that no text uses are dropped when the memory is moved.
        """
        if self.clock >= length and self.clock + ahead <= self.mask.shape[1]:
            return self
        used = self.clock - self.first
        before = max(used, length)
        slots = max(self.mask.shape[1], 2 * (before + ahead))
        rows, source, target = len(self.mask), slice(self.first, self.clock), slice(before - used, before)
        layers = []
        for layer in self.layers:
            new = KeyValue(*kv_cache.allocate(*layer, rows, slots, 1))
            for part, old in zip(new, layer, strict=True):
                part[:, :, target] = old[:, :, source]
            layers.append(new)
        mask = self.mask.new_full((rows, slots), -torch.inf)
        mask[:, target] = self.mask[:, source]
        moved = before - self.clock
        return replace(
            self, layers=layers, mask=mask, begins=self.begins + moved, clock=before, first=self.first + moved
        )

    def join(self, row: int, cache: DynamicCache, own: int = 0) -> JoinedCache:
        """Write the text of row `own` of a cache to a free row."""
        after = self.make_room(cache.length)
        begin = after.clock - cache.length
        for layer, new in zip(after.layers, cache.layers, strict=True):
            for part, given in zip(layer, new, strict=True):
                part[row, :, begin : after.clock] = given[own]
        after.mask[row] = -torch.inf
        after.mask[row, begin : after.clock] = 0.0
        after.begins[row] = begin
        return replace(after, first=min(after.first, begin))

    def take(self, rows: Int[Tensor, " taken"]) -> JoinedCache:
        """These rows only, in this order."""
        layers = [KeyValue(*(rows_of(part, rows) for part in layer)) for layer in self.layers]
        return replace(self, layers=layers, mask=self.mask[rows], begins=self.begins[rows])

    def forget(self, used: Sequence[int]) -> JoinedCache:
        """Forget slots that no row in use needs."""
        begins = self.begins.tolist()
        return replace(self, first=min((begins[row] for row in used), default=self.clock))
