"""Attention (SDPA), softmax(Q Kᵀ / √key_dim) V, by the fastest kernel for its shapes.

plain_attention          the formula op by op; it also runs where the weights are observed
c_attention.py           C on a CPU: decode steps, and training on short texts
decode_attention.py      Triton on a GPU: decode steps of a search over a static KV cache
windowed_attention.py    restricted self-attention over long texts, in blocks
varlen_attention.py      texts of unequal lengths one after another, without padding
torch's own              everything else
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from mallang.kernels import c_attention, decode_attention
from mallang.kernels.dispatch import is_left_out, is_off
from mallang.kernels.varlen_attention import Texts, varlen_attention
from mallang.kernels.windowed_attention import Window, is_worth, windowed_attention

__all__ = [
    "Mask",
    "Observer",
    "Texts",
    "Window",
    "attention",
    "is_worth",
    "plain_attention",
    "sdpa_backend",
    "write_and_attend",
]

Mask: TypeAlias = (
    Bool[Tensor, "_batch _heads _query _key"]
    | Float[Tensor, "_batch _heads _query _key"]
    | Literal["causal"]
    | Window
    | Texts
    | None
)
"""True = may be seen; or 0 = may be seen, −∞ = may not, which is added to the scores and needs no conversion in
kernels. "causal" lets query i see the keys up to i and has a faster kernel; a window over a long text is computed in
blocks; texts one after another see themselves; None masks nothing."""
Observer: TypeAlias = Callable[[Tensor, Tensor], None]
"""A function that gets the raw scores and the weights of one call: [batch, heads, query, key]."""

SHORT = 256
"""The maximum length of a short sequence for `sdpa_backend`."""
WIDE = 128
"""Head dimension beyond which the fused kernels of a GPU are slower than plain matmuls on short sequences."""


def plain_attention(
    queries: Float[Tensor, "batch heads query key_dim"],
    keys: Float[Tensor, "batch heads key key_dim"],
    values: Float[Tensor, "batch heads key value_dim"],
    mask: Mask,
    dropout: float = 0.0,
    observers: Sequence[Observer] = (),
) -> Float[Tensor, "batch heads query value_dim"]:
    """The paper's formula op by op; passes scores and weights to the observers."""
    scores = (queries / math.sqrt(queries.shape[-1])) @ keys.transpose(-2, -1)
    if isinstance(mask, Window):
        mask = mask.mask(scores.shape[-1], scores.device)
    if isinstance(mask, Texts):
        mask = mask.mask(scores.shape[-1])
    if isinstance(mask, str):
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()[None, None]
    if mask is None:
        weights = scores.softmax(dim=-1)
    elif mask.dtype == torch.bool:  # a query that may see nothing attends to nothing: softmax alone would make it NaN
        weights = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)
        weights = weights.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)
    else:
        in_place = not observers and not scores.requires_grad
        weights = (scores.add_(mask) if in_place else scores + mask).softmax(dim=-1)
    for observe in observers:
        observe(scores, weights)
    return F.dropout(weights, dropout).to(values.dtype) @ values


def attention(
    queries: Float[Tensor, "batch heads query key_dim"],
    keys: Float[Tensor, "batch heads key key_dim"],
    values: Float[Tensor, "batch heads key value_dim"],
    mask: Bool[Tensor, "#batch #heads #query #key"]
    | Float[Tensor, "#batch #heads #query #key"]
    | Literal["causal"]
    | Window
    | Texts
    | None,
    dropout: float = 0.0,
    observers: Sequence[Observer] = (),
) -> Float[Tensor, "batch query heads_value_dim"]:
    """Attention from every query to the keys that its mask allows; the heads of a query are concatenated."""
    if isinstance(mask, Texts) and not observers:
        return joined(varlen_attention(mask, queries, keys, values, dropout))
    if not observers and not dropout:
        if c_attention.decodes(queries, keys, values, mask):
            return c_attention.decode(queries, keys, values, mask)  # type: ignore[arg-type]
        if decode_attention.is_made_for(queries, keys, values, mask):
            return joined(decode_attention.decode(queries, keys, values, mask))  # type: ignore[arg-type]
        if c_attention.trains(queries, keys, values, mask):
            context = c_attention.TrainingAttention.apply(queries, keys, values, mask)  # type: ignore[no-untyped-call]
            return context.flatten(2)  # type: ignore[no-any-return]
    if observers or is_faster_plain(queries, keys, mask):
        return joined(plain_attention(queries, keys, values, mask, dropout, observers))
    if isinstance(mask, Window):
        return joined(windowed_attention(mask, queries, keys, values, dropout))
    seen = mask if isinstance(mask, Tensor) else None
    return joined(
        F.scaled_dot_product_attention(queries, keys, values, seen, dropout_p=dropout, is_causal=isinstance(mask, str))
    )


def joined(context: Float[Tensor, "batch heads query value_dim"]) -> Float[Tensor, "batch query heads_value_dim"]:
    """Concatenate the heads of every query."""
    return context.transpose(1, 2).flatten(2)


def is_faster_plain(queries: Tensor, keys: Tensor, mask: Mask) -> bool:
    """Whether plain matmuls are faster than torch's fused attention: on a GPU wide heads over short texts; on a CPU
    decode steps, which have few queries and an additive mask, unless it is a single query whose keys have the layout
    of the fused kernel.
    """
    if queries.is_cuda:
        return queries.shape[-1] > WIDE and keys.shape[2] <= SHORT and not isinstance(mask, Window)
    decoding = isinstance(mask, Tensor) and mask.is_floating_point()
    return decoding and (queries.shape[2] > 1 or keys.stride(-1) != 1)


def write_and_attend(
    projected: Float[Tensor, "batch query queries_keys_values"],
    queries: Float[Tensor, "batch heads query key_dim"],
    at: Int[Tensor, " query"] | slice | None,
    keys: Float[Tensor, "batch heads key key_dim"],
    values: Float[Tensor, "batch heads key value_dim"],
    mask: Mask,
) -> Float[Tensor, "batch query heads_value_dim"] | None:
    """Decode attention that also writes the new keys and values to the slots `at` of a static KV cache, in one GPU
    kernel; None where there is no such kernel for these inputs.
    """
    if not isinstance(at, Tensor) or is_off("cache-write-attention"):
        return None
    if not decode_attention.is_made_for(queries, keys, values, mask):
        return None
    context: Tensor = decode_attention.write_and_decode(projected, at, keys, values, mask)
    return context


def sdpa_backend(device: torch.device, longest: int) -> AbstractContextManager[object]:
    """A context manager that selects the fastest SDPA backend of torch for sequences of at most this length.

    On a GPU the memory-efficient kernel is twice as fast as the others while sequences are short: at 32 positions of
    256 × 8 heads of 64 an H200 took 92 µs forward and backward, against 250 with flash attention, 162 with cuDNN's.
    """
    if device.type != "cuda" or longest > SHORT or is_left_out("sdpa-backend"):
        return nullcontext()
    return sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])
