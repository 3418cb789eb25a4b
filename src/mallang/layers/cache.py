"""What a model remembers while it generates: one part per sentence, one part per hypothesis.

`fixed` is what was read from the source (encoder memory, masks): a row per sentence, never reordered, never copied
for each beam. `moving` is what was generated so far (keys and values, hidden states): a row per hypothesis, where
rows = sentences × width and the hypotheses of one sentence lie together.

Keys and values come in two forms. `DynamicCache` grows: every step joins the new ones to the old, every reordering
copies them. `StaticCache` is allocated once, and nothing in it is ever moved: the hypotheses of a sentence write into
one row of slots, and a mask says which slots each of them descends from. To reorder hypotheses is to reorder their
masks.

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
"""Any nest of dicts, lists, tuples and caches of tensors whose first axis is rows; None and numbers pass through."""


@dataclass(frozen=True)
class State:
    """The memory of a generation in progress."""

    fixed: Nest
    moving: Nest

    def select(self, rows: Int[Tensor, " new_rows"]) -> State:
        """Go on with these hypotheses, in this order; one may be taken several times."""

        def selected(leaf: Tensor | DynamicCache | StaticCache) -> Tensor | DynamicCache | StaticCache:
            return leaf.index_select(0, rows) if isinstance(leaf, Tensor) else leaf.select(rows)

        return State(self.fixed, map_nest(self.moving, selected, CACHES))

    def keep(self, sentences: Int[Tensor, " kept"], rows: Int[Tensor, " kept_rows"]) -> State:
        """Go on with these sentences only, and with these rows of hypotheses."""

        def kept(leaf: Tensor | DynamicCache | StaticCache) -> Tensor | DynamicCache | StaticCache:
            return leaf.index_select(0, rows) if isinstance(leaf, Tensor) else leaf.keep(sentences, rows)

        fixed = map_nest(self.fixed, lambda tensor: rows_of(tensor, sentences))
        return State(fixed, map_nest(self.moving, kept, CACHES))

    def widen(self, width: int) -> State:
        """Give every hypothesis `width` copies, lying together."""
        return State(self.fixed, map_nest(self.moving, lambda tensor: tensor.repeat_interleave(width, dim=0)))

    def copy(self) -> State:
        """A state of its own, for whoever steps from here twice: a step may consume the state it is given."""
        return State(self.fixed, map_nest(self.moving, lambda tensor: tensor.clone()))

    def reserve(self, steps: int, width: int, align: int = 1) -> State:
        """Widen, with room for so many steps of one token: caches keep their shapes from here on.

        StaticLayerCache come in multiples of `align`, which some kernels like.
        """

        def wide(leaf: Tensor | DynamicCache) -> Tensor | StaticCache:
            return (
                leaf.repeat_interleave(width, dim=0) if isinstance(leaf, Tensor) else leaf.reserve(steps, width, align)
            )

        return State(self.fixed, map_nest(self.moving, wide, CACHES))

    def enlarge(self, steps: int) -> State:
        """StaticCache for so many steps in all; what has no room needs none."""
        return State(self.fixed, map_nest(self.moving, lambda leaf: leaf.enlarge(steps), CACHES, tensors=False))

    def look(self, steps: int) -> State:
        """Let attention attend to the slots of so many steps only, the coming one included: the others are not
        filled."""
        return State(self.fixed, map_nest(self.moving, lambda leaf: leaf.look(steps), CACHES, tensors=False))


@dataclass(frozen=True)
class DynamicCache:
    """The keys and values of all tokens so far, for each layer of a stack, growing with every step."""

    layers: Sequence[KeyValue]

    @property
    def length(self) -> int:
        """How many tokens were read."""
        return self.layers[0].keys.shape[2]

    @property
    def most(self) -> int | None:
        """How many it can hold: no end is known."""
        return None

    def enter(self, time: int, window: int | None) -> tuple[Sequence[LayerCache], Mask]:
        """Each layer ready for `time` new tokens, and what those may see."""
        return self.layers, causal_mask(time, self.length, window, self.layers[0].keys.device)

    def leave(self, layers: Sequence[KeyValue]) -> DynamicCache:
        """After the step, with what each layer has now."""
        return DynamicCache(layers)

    def select(self, rows: Int[Tensor, " new_rows"]) -> DynamicCache:
        """Go on with these hypotheses."""
        return map_nest(self, lambda tensor: tensor.index_select(0, rows))  # type: ignore[no-any-return]

    def keep(self, sentences: Int[Tensor, " kept"], rows: Int[Tensor, " kept_rows"]) -> DynamicCache:
        """Go on with these rows."""
        return self.select(rows)

    def reserve(self, steps: int, width: int, align: int = 1) -> StaticCache:
        """What was read so far is common to all hypotheses of a sentence and lies there once; then room for more."""
        (sentences, _, length, _), like = self.layers[0].keys.shape, self.layers[0].keys
        base = -(-length // align) * align
        slots = -(-(base + steps * width) // align) * align
        room = StaticCache(
            layers=[KeyValue(*kv_cache.allocate(*layer, sentences, slots, width)) for layer in self.layers],
            mask=like.new_full((sentences * width, slots), -torch.inf),
            length=torch.full((), length, device=like.device),
            places=torch.arange(width, device=like.device) + base - length * width,
            read=length,
            base=base,
            seen=slots,
        )
        room.mask[:, :length].zero_()
        for own, layer in zip(room.layers, self.layers, strict=True):
            own.keys[:, :, :length] = layer.keys
            own.values[:, :, :length] = layer.values
        return room


@dataclass(frozen=True)
class StaticCache:
    """The same with room for what is to come: allocated once, never moved, one token a step."""

    layers: Sequence[KeyValue]
    """Keys and values of all slots of each sentence: [sentences, heads, slots, head_dim]."""
    mask: Float[Tensor, "rows slots"]
    """0 where a hypothesis descends from the slot, −∞ elsewhere: added to the scores of attention."""
    length: Int[Tensor, ""]
    """How many tokens were read: a tensor, so that a captured graph can count."""
    places: Int[Tensor, " width"]
    """The slots of a step are these + length × width."""
    read: int
    """How many tokens were read at width 1, before the hypotheses parted; they have the first slots."""
    base: int
    """The first slot of a hypothesis."""
    seen: int
    """How many slots attention attends to: all, or where the host counts along those filled after this step."""
    counted: bool = False
    """Whether the host counts along: the slots of this step are then the last that are seen."""

    @property
    def width(self) -> int:
        """Hypotheses per sentence."""
        return len(self.places)

    @property
    def most(self) -> int:
        """How many tokens it can hold."""
        return self.read + (self.mask.shape[1] - self.base) // self.width

    def enter(self, time: int, window: int | None) -> tuple[Sequence[LayerCache], Mask]:
        """Each layer ready for one new token a hypothesis, and what that may see: its ancestors and itself."""
        if time != 1:
            raise ValueError(f"with room reserved a step reads one token, not {time}")
        at = torch.add(self.places, self.length, alpha=self.width)
        sentences = len(self.mask) // self.width
        self.mask.scatter_(1, at.repeat(sentences)[:, None], 0.0)
        mask = self.mask[:, : self.seen]
        if window is not None:
            slot = torch.arange(self.seen, device=at.device)
            position = torch.where(slot < self.base, slot, self.read + (slot - self.base) // self.width)
            mask = mask.masked_fill(position < self.length - window, -torch.inf)
        where = slice(self.seen - self.width, self.seen) if self.counted else at
        layers = [StaticLayerCache(layer.keys, layer.values, where, self.seen) for layer in self.layers]
        return layers, mask.view(sentences, 1, self.width, self.seen)

    def leave(self, layers: Sequence[KeyValue]) -> StaticCache:
        """After the step: one token longer, in the same memory."""
        return replace(self, length=self.length + 1)

    def select(self, rows: Int[Tensor, " new_rows"]) -> StaticCache:
        """Go on with these hypotheses of the same sentences: only what they descend from changes."""
        return replace(self, mask=self.mask.index_select(0, rows))

    def keep(self, sentences: Int[Tensor, " kept"], rows: Int[Tensor, " kept_rows"]) -> StaticCache:
        """Go on with these sentences."""
        return replace(self.moved(sentences, self.mask.shape[1]), mask=self.mask.index_select(0, rows))

    def enlarge(self, steps: int) -> StaticCache:
        """The same with room for so many steps."""
        everyone = torch.arange(len(self.layers[0].keys), device=self.mask.device)
        slots = max(self.mask.shape[1], self.base + steps * self.width)
        mask = torch.nn.functional.pad(self.mask, (0, slots - self.mask.shape[1]), value=-torch.inf)
        return replace(self.moved(everyone, slots), mask=mask, seen=slots)

    def moved(self, sentences: Int[Tensor, " kept"], slots: int) -> StaticCache:
        """The keys and values of these sentences, as far as they are filled, in new memory."""
        layers = []
        for layer in self.layers:
            new = KeyValue(*kv_cache.allocate(*layer, len(sentences), slots, self.width))
            for part, old in zip(new, layer, strict=True):
                part[:, :, : self.seen] = old[:, :, : self.seen].index_select(0, sentences)
            layers.append(new)
        return replace(self, layers=layers)

    def look(self, steps: int) -> StaticCache:
        """Let attention attend to the slots of so many steps only, the coming one included."""
        return replace(self, seen=self.base + steps * self.width, counted=True)


class StaticLayerCache(NamedTuple):
    """One layer's share of a `StaticCache`, and where this step writes."""

    keys: Float[Tensor, "sentences heads slots key_dim"]
    values: Float[Tensor, "sentences heads slots value_dim"]
    at: Int[Tensor, " width"] | slice
    seen: int

    def extend(
        self,
        keys: Float[Tensor, "sentences heads width key_dim"],
        values: Float[Tensor, "sentences heads width value_dim"],
    ) -> KeyValue:
        """Write the new ones to their slots; everything that attention attends to."""
        kv_cache.write(self.keys, self.values, keys, values, self.at)
        return KeyValue(self.keys[:, :, : self.seen], self.values[:, :, : self.seen])


def rows_of(tensor: Tensor, rows: Int[Tensor, " kept"]) -> Tensor:
    """These rows of a tensor, its axes lying in memory as they did."""
    order = sorted(range(tensor.ndim), key=tensor.stride, reverse=True)
    taken = tensor.permute(order).index_select(order.index(0), rows)
    return taken.permute([order.index(axis) for axis in range(tensor.ndim)])


CACHES = (DynamicCache, StaticCache)


def map_nest(nest: Nest, change: Callable[[Any], Any], leaves: tuple[type, ...] = (), tensors: bool = True) -> Nest:
    """The same nest with every tensor changed; what is of the types `leaves` is changed as a whole."""
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
