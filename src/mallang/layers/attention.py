"""Multi-head self- and cross-attention (Vaswani et al. 2017, arXiv:1706.03762, section 3.2), and attention maps.

    weights = softmax(Q Kᵀ / √key_dim)      for each head
    output  = [head 1; head 2; …] W^O       heads · value_dim → dim

A fused kernel computes this and never stores the weights (kernels/attention.py). Inside `record_attention` the formula
runs op by op and every layer keeps its weights; the results agree to 1e-5.

The other score functions (dot, general, multiplicative, additive, concat) and attention with them are in scores.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mallang.kernels import kv_cache
from mallang.kernels.attention import Mask, Observer, Texts, Window, attention, is_worth, write_and_attend
from mallang.layers.linear import Linear

__all__ = [
    "Attention",
    "CrossAttention",
    "KeyValue",
    "LayerCache",
    "Mask",
    "Observable",
    "Observer",
    "SelfAttention",
    "Texts",
    "additive",
    "causal_mask",
    "distance",
    "document_mask",
    "padding_mask",
    "record_attention",
    "segment_mask",
]


class KeyValue(NamedTuple):
    """Projected keys and values."""

    keys: Float[Tensor, "_batch _heads _key _key_dim"]
    values: Float[Tensor, "_batch _heads _key _value_dim"]

    @property
    def at(self) -> None:
        """None: a dynamic cache has no slots."""
        return None

    def extend(
        self,
        keys: Float[Tensor, "batch heads new key_dim"],
        values: Float[Tensor, "batch heads new value_dim"],
    ) -> KeyValue:
        """The old keys and values, followed by the new ones."""
        return KeyValue(torch.cat((self.keys, keys), dim=2), torch.cat((self.values, values), dim=2))

    def for_decoding(self) -> KeyValue:
        """A copy in the memory layout that decode steps read fastest."""
        return KeyValue(*kv_cache.decode_layout(self.keys, self.values))


@runtime_checkable
class LayerCache(Protocol):
    """The KV cache of one layer."""

    @property
    def keys(self) -> Tensor:
        """The keys: one row per hypothesis, or one row per sentence in a static cache."""

    @property
    def values(self) -> Tensor:
        """The values, one row per row of keys."""

    @property
    def at(self) -> Tensor | slice | None:
        """The slots that the new keys and values go to; None in a dynamic cache."""

    def extend(self, keys: Tensor, values: Tensor) -> KeyValue:
        """Add new keys and values; returns all that attention attends to."""


class Attention(nn.Module):
    """The base of self- and cross-attention: heads, attention (SDPA) and the output projection."""

    def __init__(
        self, dim: int, heads: int, key_dim: int, value_dim: int, dropout: float = 0.0, bias: bool = True
    ) -> None:
        super().__init__()
        self.heads, self.key_dim, self.value_dim, self.dropout = heads, key_dim, value_dim, dropout
        self.output = Linear(heads * value_dim, dim, bias=bias)
        self.recorders: list[Observer] = []

    def split_heads(self, x: Float[Tensor, "batch time inner"]) -> Float[Tensor, "batch {self.heads} time head_dim"]:
        """The dimensions of every head, as a view."""
        return x.view(*x.shape[:2], self.heads, x.shape[-1] // self.heads).transpose(1, 2)

    def attend(
        self,
        queries: Float[Tensor, "batch heads query key_dim"],
        keys: Float[Tensor, "batch heads key key_dim"],
        values: Float[Tensor, "batch heads key value_dim"],
        mask: Mask,
    ) -> Float[Tensor, "batch query dim"]:
        """Attend from every query to the keys that the mask allows, and project the concatenated heads."""
        dropout = self.dropout if self.training else 0.0
        projected: Tensor = self.output(attention(queries, keys, values, mask, dropout, self.recorders))
        return projected


class SelfAttention(Attention):
    """Every position attends to the positions of its own sequence."""

    def __init__(
        self, dim: int, heads: int, key_dim: int, value_dim: int, dropout: float = 0.0, bias: bool = True
    ) -> None:
        super().__init__(dim, heads, key_dim, value_dim, dropout, bias)
        self.sizes = (heads * key_dim, heads * key_dim, heads * value_dim)
        self.query_key_value = Linear(dim, sum(self.sizes), bias=bias)  # one matmul instead of three

    def input_weights(self) -> list[Tensor]:
        """The matrices W^Q, W^K and W^V, slices of one weight: an initialization may treat each separately."""
        return list(self.query_key_value.weight.detach().split_with_sizes(self.sizes))

    def forward(
        self, x: Float[Tensor, "rows time dim"], mask: Mask = None, past: LayerCache | None = None
    ) -> tuple[Float[Tensor, "rows time dim"], KeyValue]:
        """The new x, and all keys and values including the new ones: passed as `past`, they continue from here.

        Where the cache has one row per sentence, the width folds into the query axis as in cross-attention.
        """
        folded = x if past is None else x.reshape(len(past.keys), -1, x.shape[-1])
        projected = self.query_key_value(folded)
        queries, keys, values = self.parts_of(projected)
        if past is not None and not self.recorders and not (self.training and self.dropout):
            context = write_and_attend(projected, queries, past.at, past.keys, past.values, mask)
            if context is not None:
                return self.output(context).view_as(x), KeyValue(past.keys, past.values)
        seen = KeyValue(keys, values) if past is None else past.extend(keys, values)
        return self.attend(queries, *seen, mask).view_as(x), seen

    def project(
        self, x: Float[Tensor, "batch time dim"]
    ) -> tuple[
        Float[Tensor, "batch heads time key_dim"],
        Float[Tensor, "batch heads time key_dim"],
        Float[Tensor, "batch heads time value_dim"],
    ]:
        """The queries, keys and values of these positions."""
        return self.parts_of(self.query_key_value(x))

    def parts_of(
        self, projected: Float[Tensor, "batch time inner"]
    ) -> tuple[
        Float[Tensor, "batch heads time key_dim"],
        Float[Tensor, "batch heads time key_dim"],
        Float[Tensor, "batch heads time value_dim"],
    ]:
        """Split the projection into the queries, keys and values of every head."""
        queries, keys, values = map(self.split_heads, projected.split_with_sizes(self.sizes, dim=-1))
        return queries, keys, values

    def remember_nothing(self, x: Float[Tensor, "rows time dim"]) -> KeyValue:
        """An empty KV cache, in the dtype of the keys and values."""
        _, keys, values = self.project(x[:, :0])
        return KeyValue(keys, values)


class CrossAttention(Attention):
    """Every position attends to another sequence, the memory."""

    def __init__(
        self, dim: int, heads: int, key_dim: int, value_dim: int, dropout: float = 0.0, bias: bool = True
    ) -> None:
        super().__init__(dim, heads, key_dim, value_dim, dropout, bias)
        self.sizes = (heads * key_dim, heads * value_dim)
        self.query = Linear(dim, heads * key_dim, bias=bias)
        self.key_value = Linear(dim, sum(self.sizes), bias=bias)

    def input_weights(self) -> list[Tensor]:
        """The matrices W^Q, W^K and W^V; the last two are slices of one weight."""
        return [self.query.weight.detach(), *self.key_value.weight.detach().split_with_sizes(self.sizes)]

    def remember(self, memory: Float[Tensor, "sentences source dim"]) -> KeyValue:
        """The keys and values of a memory: computed once per sentence for all steps and hypotheses."""
        return KeyValue(*map(self.split_heads, self.key_value(memory).split(self.sizes, dim=-1)))

    def forward(
        self, x: Float[Tensor, "rows time dim"], memory: KeyValue, mask: Mask = None
    ) -> Float[Tensor, "rows time dim"]:
        """The new x. Rows may be sentences × width: the width then folds into the query axis, nothing is copied."""
        sentences = len(memory.keys)
        queries = self.split_heads(self.query(x.reshape(sentences, -1, x.shape[-1])))  # width · time queries each
        return self.attend(queries, *memory, mask).view_as(x)


def causal_mask(time: int, past: int = 0, window: int | None = None, device: torch.device | None = None) -> Mask:
    """The causal mask of `time` new positions after `past` earlier ones: a position sees itself and what is before it.

    With a window r (restricted self-attention) position i sees only i−r … i.
    """
    if window is None and past == 0:
        return "causal" if time > 1 else None
    if window is None and time == 1:
        return None
    if window is not None and past == 0 and isinstance(time, int) and is_worth(time, window):
        return Window(window)
    back = distance(time, past, device)
    seen = back >= 0 if window is None else (back >= 0) & (back <= window)
    return seen[None, None]


def segment_mask(segments: Int[Tensor, "batch time"], window: int | None = None) -> Bool[Tensor, "batch 1 time time"]:
    """The causal mask of packed rows: a position sees itself and the earlier positions of its own segment."""
    back = distance(segments.shape[1], 0, segments.device)
    seen = back >= 0 if window is None else (back >= 0) & (back <= window)
    return (seen & (segments[:, :, None] == segments[:, None, :]))[:, None]


def padding_mask(real: Bool[Tensor, "batch time"], window: int | None = None) -> Bool[Tensor, "batch 1 queries time"]:
    """A mask that allows all real positions, or with a window r those at most r away.

    With a window a padding query may attend to the padding around it: if it saw no key, its output would be NaN.
    """
    if window is None:
        return real[:, None, None, :]
    near = distance(real.shape[1], 0, real.device).abs() <= window
    return (near & (real[:, None, :] | ~real[:, :, None]))[:, None]


def additive(mask: Bool[Tensor, "*shape"], like: Tensor) -> Float[Tensor, "*shape"]:
    """A boolean mask as an additive one: 0 = may be seen, −∞ = may not."""
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(~mask, -math.inf)


def document_mask(segments: Int[Tensor, "batch time"]) -> Bool[Tensor, "batch 1 time time"]:
    """The mask of an encoder for packed rows: a position sees all positions of its own segment."""
    return (segments[:, :, None] == segments[:, None, :])[:, None]


def distance(time: int | torch.SymInt, past: int, device: torch.device | None) -> Tensor:
    """The distance i − j from query i back to key j, for `time` queries that follow `past` keys: [time, past + time].

    In an exported graph `time` is symbolic.
    """
    places = torch.arange(past + time, device=device)  # type: ignore[arg-type]  # its stub knows no SymInt
    return places[past:, None] - places[None, :]


@runtime_checkable
class Observable(Protocol):
    """An attention layer that passes its scores and weights to each of its recorders."""

    recorders: list[Observer]


@contextmanager
def record_attention(
    model: nn.Module, scores: bool = False, keep_graph: bool = False
) -> Iterator[dict[str, Float[Tensor, "batch heads query key"]]]:
    """Record the weights of every attention layer that runs inside, by name: "encoder.0.self", "decoder.1.cross".

    With `scores` the raw scores QKᵀ/√key_dim, before any mask, are recorded as "encoder.0.self.scores"; with
    `keep_graph` gradients can flow through what was recorded. A layer that runs again (layers that share weights, a
    second forward) adds "encoder.0.self:2" and so on. Every module with a list `recorders` is recorded.
    """
    maps: dict[str, Tensor] = {}
    listening: list[tuple[list[Observer], Observer]] = []
    try:
        for name, module in model.named_modules():
            if isinstance(module, Observable) and isinstance(module.recorders, list):
                recorder = recorder_of(readable_name(name), maps, scores, keep_graph)
                module.recorders.append(recorder)
                listening.append((module.recorders, recorder))
        yield maps
    finally:
        for recorders, recorder in listening:
            recorders.remove(recorder)


def readable_name(name: str) -> str:
    """`encoder.0.self_attention` as `encoder.0.self`, without the prefix that compiling adds."""
    return name.replace("_orig_mod.", "").removesuffix("_attention")


def recorder_of(name: str, maps: dict[str, Tensor], scores: bool, keep_graph: bool) -> Observer:
    """A recorder that stores scores and weights under the name of one layer."""
    runs = 0

    def record(raw: Tensor, weights: Tensor) -> None:
        nonlocal runs
        runs += 1
        key = name if runs == 1 else f"{name}:{runs}"
        maps[key] = weights if keep_graph else weights.detach()
        if scores:
            maps[f"{key}.scores"] = raw if keep_graph else raw.detach()

    return record
