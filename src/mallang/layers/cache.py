"""The state of generation: encoder memory with one row per sentence, KV cache with one row per hypothesis.

`fixed` holds what was computed from the source (encoder memory, masks): one row per sentence, never reordered, never
copied per beam. `moving` holds what depends on the generated tokens (KV cache, hidden states): one row per hypothesis,
where rows = sentences × width and the hypotheses of a sentence are adjacent.

There are two KV caches. `DynamicCache` grows: every step concatenates, every reordering copies. `StaticCache` is
allocated once, and nothing in it is ever moved: the hypotheses of a sentence share one row of slots, and a mask says
which slots each hypothesis descends from. Reordering hypotheses only reorders their masks.

    sentence "…"   slots  <s> | a b c | d e f | g h i |     three hypotheses, three steps
    hypothesis 1 sees      ×    ×       ×       ×           "a d g"
    hypothesis 2 sees      ×    ×         ×       ×         "a e h"
    hypothesis 3 sees      ×    ×       ×           ×       "a d i"
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mallang.kernels import kv_cache
from mallang.layers.attention import KeyValue, LayerCache, Mask, causal_mask

Nest: TypeAlias = Any
"""Nested dicts, lists, tuples and caches of tensors whose first axis is rows; None and numbers pass through."""


@dataclass(frozen=True)
class State:
    """The state of a generation in progress."""

    fixed: Nest
    moving: Nest

    def select(self, rows: Int[Tensor, " new_rows"]) -> State:
        """Keep these hypotheses, in this order; one may be taken several times."""

        def selected(leaf: Tensor | DynamicCache | StaticCache) -> Tensor | DynamicCache | StaticCache:
            return leaf.index_select(0, rows) if isinstance(leaf, Tensor) else leaf.select(rows)

        return State(self.fixed, map_nest(self.moving, selected, CACHES))

    def keep(self, sentences: Int[Tensor, " kept"], rows: Int[Tensor, " kept_rows"]) -> State:
        """Keep these sentences only, and these rows of hypotheses."""

        def kept(leaf: Tensor | DynamicCache | StaticCache) -> Tensor | DynamicCache | StaticCache:
            return leaf.index_select(0, rows) if isinstance(leaf, Tensor) else leaf.keep(sentences, rows)

        fixed = map_nest(self.fixed, lambda tensor: rows_of(tensor, sentences))
        return State(fixed, map_nest(self.moving, kept, CACHES))

    def widen(self, width: int) -> State:
        """Repeat every hypothesis `width` times; the copies are adjacent."""
        return State(self.fixed, map_nest(self.moving, lambda tensor: tensor.repeat_interleave(width, dim=0)))

    def copy(self) -> State:
        """A copy, for a caller that steps from this state twice: a step may overwrite the state it is given."""
        return State(self.fixed, map_nest(self.moving, lambda tensor: tensor.clone()))

    def reserve(self, steps: int, width: int, align: int = 1) -> State:
        """Widen, and make the caches static, with slots for `steps` steps of one token: their shapes no longer change.

        The number of slots is a multiple of `align`, which some kernels need to be fast.
        """

        def wide(leaf: Tensor | DynamicCache) -> Tensor | StaticCache:
            return (
                leaf.repeat_interleave(width, dim=0) if isinstance(leaf, Tensor) else leaf.reserve(steps, width, align)
            )

        return State(self.fixed, map_nest(self.moving, wide, CACHES))

    def enlarge(self, steps: int) -> State:
        """Enlarge the static caches to `steps` steps in all; other tensors stay as they are."""
        return State(self.fixed, map_nest(self.moving, lambda leaf: leaf.enlarge(steps), CACHES, tensors=False))

    def look(self, steps: int) -> State:
        """Limit attention to the valid length: the slots of `steps` steps, the next one included."""
        return State(self.fixed, map_nest(self.moving, lambda leaf: leaf.look(steps), CACHES, tensors=False))


@dataclass(frozen=True)
class DynamicCache:
    """A dynamic KV cache: the keys and values of every layer, which grow with every step."""

    layers: Sequence[KeyValue]

    @property
    def length(self) -> int:
        """The number of cached tokens."""
        return self.layers[0].keys.shape[2]

    @property
    def most(self) -> int | None:
        """The maximum number of tokens; None, since it grows."""
        return None

    def enter(self, time: int, window: int | None) -> tuple[Sequence[LayerCache], Mask]:
        """The caches of all layers for a step of `time` new tokens, and their attention mask."""
        return self.layers, causal_mask(time, self.length, window, self.layers[0].keys.device)

    def leave(self, layers: Sequence[KeyValue]) -> DynamicCache:
        """The cache after the step, from the new keys and values of every layer."""
        return DynamicCache(layers)

    def select(self, rows: Int[Tensor, " new_rows"]) -> DynamicCache:
        """Keep these hypotheses, in this order."""
        return map_nest(self, lambda tensor: tensor.index_select(0, rows))  # type: ignore[no-any-return]

    def keep(self, sentences: Int[Tensor, " kept"], rows: Int[Tensor, " kept_rows"]) -> DynamicCache:
        """Keep these rows."""
        return self.select(rows)

    def reserve(self, steps: int, width: int, align: int = 1) -> StaticCache:
        """A static cache that holds this prefix once per sentence, and slots for `steps` more tokens per hypothesis."""
        (sentences, _, length, _), like = self.layers[0].keys.shape, self.layers[0].keys
        base = -(-length // align) * align
        slots = -(-(base + steps * width) // align) * align
        cache = StaticCache(
            layers=[KeyValue(*kv_cache.allocate(*layer, sentences, slots, width)) for layer in self.layers],
            mask=like.new_full((sentences * width, slots), -torch.inf),
            length=torch.full((), length, device=like.device),
            places=torch.arange(width, device=like.device) + base - length * width,
            read=length,
            base=base,
            valid_length=slots,
        )
        cache.mask[:, :length].zero_()
        for own, layer in zip(cache.layers, self.layers, strict=True):
            own.keys[:, :, :length] = layer.keys
            own.values[:, :, :length] = layer.values
        return cache


@dataclass(frozen=True)
class StaticCache:
    """A static KV cache: allocated once for all steps to come, one token per step, never moved in memory."""

    layers: Sequence[KeyValue]
    """Keys and values of all slots of each sentence: [sentences, heads, slots, head_dim]."""
    mask: Float[Tensor, "rows slots"]
    """0 where a hypothesis descends from the slot, −∞ elsewhere: added to the scores of attention."""
    length: Int[Tensor, ""]
    """The number of cached tokens: a tensor, so that a captured CUDA graph can increment it."""
    places: Int[Tensor, " width"]
    """The slots that a step writes are these + length × width."""
    read: int
    """The length of the prefix that all hypotheses of a sentence share; it has the first slots."""
    base: int
    """The first slot after the shared prefix."""
    valid_length: int
    """The valid length in slots: all of them, or, where the host tracks it, those that are filled after this step."""
    host_tracked: bool = False
    """Whether the host tracks the valid length; the slots of this step are then the last valid ones."""

    @property
    def width(self) -> int:
        """Hypotheses per sentence."""
        return len(self.places)

    @property
    def most(self) -> int:
        """The maximum number of tokens."""
        return self.read + (self.mask.shape[1] - self.base) // self.width

    def enter(self, time: int, window: int | None) -> tuple[Sequence[LayerCache], Mask]:
        """The caches of all layers for one new token per hypothesis, and its mask: its ancestors and itself."""
        if time != 1:
            raise ValueError(f"a step with a static KV cache reads one token, not {time}")
        at = torch.add(self.places, self.length, alpha=self.width)
        sentences = len(self.mask) // self.width
        self.mask.scatter_(1, at.repeat(sentences)[:, None], 0.0)
        mask = self.mask[:, : self.valid_length]
        if window is not None:
            slot = torch.arange(self.valid_length, device=at.device)
            position = torch.where(slot < self.base, slot, self.read + (slot - self.base) // self.width)
            mask = mask.masked_fill(position < self.length - window, -torch.inf)
        where = slice(self.valid_length - self.width, self.valid_length) if self.host_tracked else at
        layers = [StaticLayerCache(layer.keys, layer.values, where, self.valid_length) for layer in self.layers]
        return layers, mask.view(sentences, 1, self.width, self.valid_length)

    def leave(self, layers: Sequence[KeyValue]) -> StaticCache:
        """The cache after the step: one token longer, in the same memory."""
        return replace(self, length=self.length + 1)

    def select(self, rows: Int[Tensor, " new_rows"]) -> StaticCache:
        """Keep these hypotheses of the same sentences: only the mask is reordered."""
        return replace(self, mask=self.mask.index_select(0, rows))

    def keep(self, sentences: Int[Tensor, " kept"], rows: Int[Tensor, " kept_rows"]) -> StaticCache:
        """Keep these sentences, and these rows of hypotheses."""
        return replace(self.moved(sentences, self.mask.shape[1]), mask=self.mask.index_select(0, rows))

    def enlarge(self, steps: int) -> StaticCache:
        """A larger static cache with the same contents, for `steps` steps in all."""
        everyone = torch.arange(len(self.layers[0].keys), device=self.mask.device)
        slots = max(self.mask.shape[1], self.base + steps * self.width)
        mask = torch.nn.functional.pad(self.mask, (0, slots - self.mask.shape[1]), value=-torch.inf)
        return replace(self.moved(everyone, slots), mask=mask, valid_length=slots)

    def moved(self, sentences: Int[Tensor, " kept"], slots: int) -> StaticCache:
        """The valid keys and values of these sentences, copied to new memory."""
        layers = []
        for layer in self.layers:
            new = KeyValue(*kv_cache.allocate(*layer, len(sentences), slots, self.width))
            for part, old in zip(new, layer, strict=True):
                part[:, :, : self.valid_length] = old[:, :, : self.valid_length].index_select(0, sentences)
            layers.append(new)
        return replace(self, layers=layers)

    def look(self, steps: int) -> StaticCache:
        """Limit attention to the valid length: the slots of `steps` steps, the next one included."""
        return replace(self, valid_length=self.base + steps * self.width, host_tracked=True)


class StaticLayerCache(NamedTuple):
    """The keys and values of one layer of a `StaticCache`, and the slots that this step writes."""

    keys: Float[Tensor, "sentences heads slots key_dim"]
    values: Float[Tensor, "sentences heads slots value_dim"]
    at: Int[Tensor, " width"] | slice
    valid_length: int

    def extend(
        self,
        keys: Float[Tensor, "sentences heads width key_dim"],
        values: Float[Tensor, "sentences heads width value_dim"],
    ) -> KeyValue:
        """Write the new keys and values to their slots; returns all valid ones."""
        kv_cache.write(self.keys, self.values, keys, values, self.at)
        return KeyValue(self.keys[:, :, : self.valid_length], self.values[:, :, : self.valid_length])


def rows_of(tensor: Tensor, rows: Int[Tensor, " kept"]) -> Tensor:
    """These rows of a tensor, with the memory order of its axes unchanged."""
    order = sorted(range(tensor.ndim), key=tensor.stride, reverse=True)
    taken = tensor.permute(order).index_select(order.index(0), rows)
    return taken.permute([order.index(axis) for axis in range(tensor.ndim)])


CACHES = (DynamicCache, StaticCache)


def map_nest(nest: Nest, change: Callable[[Any], Any], leaves: tuple[type, ...] = (), tensors: bool = True) -> Nest:
    """A nest with `change` applied to every tensor; an object of the types `leaves` is changed as a whole."""
    if isinstance(nest, Tensor):
        return change(nest) if tensors else nest
    if leaves and isinstance(nest, leaves):
        return change(nest)
    if isinstance(nest, dict):
        return {key: map_nest(value, change, leaves, tensors) for key, value in nest.items()}
    if isinstance(nest, tuple | list):
        parts = [map_nest(value, change, leaves, tensors) for value in nest]
        return type(nest)(*parts) if hasattr(nest, "_fields") else type(nest)(parts)
    if is_dataclass(nest) and not isinstance(nest, type):
        values = {field.name: getattr(nest, field.name) for field in fields(nest)}
        return replace(nest, **map_nest(values, change, leaves, tensors))
    return nest
