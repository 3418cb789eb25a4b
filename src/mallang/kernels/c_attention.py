"""Attention in C on a CPU: decode steps of a search over a KV cache, and training on short texts. See kernels.c.

Torch's fused attention is made for long texts: over 30 tokens it takes nearly twice as long as `TrainingAttention`,
over 10 tokens four times. Here all data of one head stays in the L1 and L2 caches.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from jaxtyping import Float, Float32
from torch import Tensor
from torch.autograd.function import once_differentiable

from mallang.kernels import c_library
from mallang.kernels.c_library import Count
from mallang.kernels.dispatch import is_off

FEW = 16
"""The maximum number of queries per head of a decode step."""
LONGEST = 128
"""The maximum length of a short text, in queries and in keys."""
WIDEST = 128
"""The maximum dimension of a key or value vector."""


def trains(queries: Tensor, keys: Tensor, values: Tensor, mask: Any) -> bool:
    """Whether `TrainingAttention` supports these: short texts with gradients, and no, a causal or a boolean mask."""
    given = (queries, keys, values)
    return (
        not is_off("c-training-attention")
        and torch.is_grad_enabled()
        and any(each.requires_grad for each in given)
        and c_library.are_plain(*given)
        and not torch.is_autocast_enabled("cpu")
        and 0 < keys.shape[2] <= LONGEST
        and 0 < queries.shape[2] <= LONGEST
        and keys.shape == (*queries.shape[:2], keys.shape[2], queries.shape[3])
        and values.shape[:3] == keys.shape[:3]
        and max(queries.shape[3], values.shape[3]) <= WIDEST
        and all(each.stride(3) == 1 for each in given)
        and (mask is None or is_causal(mask, queries, keys) or hides_for_all_heads(mask, queries, keys))
    )


def is_causal(mask: Any, queries: Tensor, keys: Tensor) -> bool:
    """Whether the mask is causal: a query sees the keys up to itself."""
    return isinstance(mask, str) and queries.shape[2] == keys.shape[2]


def hides_for_all_heads(mask: Any, queries: Tensor, keys: Tensor) -> bool:
    """Whether the mask is boolean, has one entry per key and is shared by all heads."""
    if type(mask) is not Tensor or mask.dtype != torch.bool or not mask.is_cpu or mask.dim() != 4:
        return False
    batch, heads, count, key = mask.shape
    return heads == 1 and key == keys.shape[2] and batch in (1, len(queries)) and count in (1, queries.shape[2])


class AttentionArguments(ctypes.Structure):
    """The arguments of the attention kernels, as declared in kernels.c."""

    _fields_ = [
        *((name, ctypes.c_long) for name in ("batch", "heads", "queries", "keys", "key_dim", "value_dim")),
        *((name, ctypes.c_void_p) for name in ("q", "k", "v")),
        *((f"{name}_{step}", ctypes.c_long) for name in ("q", "k", "v") for step in ("batch", "head", "step")),
        ("mask", ctypes.c_void_p),
        *((name, ctypes.c_long) for name in ("mask_batch", "mask_query", "mask_key", "causal")),
        ("scale", ctypes.c_float),
        *((name, ctypes.c_void_p) for name in ("weights", "context", "gradient", "dq", "dk", "dv")),
    ]


class TrainingAttention(torch.autograd.Function):
    """softmax(Q Kᵀ / √key_dim + mask) V and its gradients, which cannot be differentiated again."""

    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, keys: Tensor, values: Tensor, mask: Any
    ) -> Float32[Tensor, "batch query heads value_dim"]:
        """The context; the weights are saved for backward."""
        (batch, heads, count, _), (slots, value_dim) = queries.shape, values.shape[2:]
        weights = queries.new_empty(batch, heads, count, slots)
        context = queries.new_empty(batch, count, heads, value_dim)
        given = described(queries, keys, values, mask)
        given.weights, given.context = weights.data_ptr(), context.data_ptr()
        call("attention", given)
        ctx.save_for_backward(queries, keys, values, weights)
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float32[Tensor, "batch query heads value_dim"]) -> tuple[Tensor | None, ...]:
        """The gradients of queries, keys and values."""
        queries, keys, values, weights = ctx.saved_tensors
        gradient = gradient.contiguous()
        found = [each.new_empty(each.transpose(1, 2).shape) for each in (queries, keys, values)]
        given = described(queries, keys, values, None)
        given.weights, given.gradient = weights.data_ptr(), gradient.data_ptr()
        given.dq, given.dk, given.dv = (each.data_ptr() for each in found)
        call("attention_backward", given)
        return (*(each.transpose(1, 2) for each in found), None)


def described(queries: Tensor, keys: Tensor, values: Tensor, mask: Any) -> AttentionArguments:
    """Sizes, strides and addresses of the tensors."""
    (batch, heads, count, key_dim), (slots, value_dim) = queries.shape, values.shape[2:]
    given = AttentionArguments(
        batch=batch, heads=heads, queries=count, keys=slots, key_dim=key_dim, value_dim=value_dim,
        q=queries.data_ptr(), k=keys.data_ptr(), v=values.data_ptr(), causal=isinstance(mask, str),
        scale=key_dim**-0.5,
    )  # fmt: skip
    for name, each in (("q", queries), ("k", keys), ("v", values)):
        for axis, step in enumerate(("batch", "head", "step")):
            setattr(given, f"{name}_{step}", each.stride(axis))
    if isinstance(mask, Tensor):
        given.mask = mask.data_ptr()
        given.mask_batch, given.mask_query = (mask.stride(axis) if mask.shape[axis] > 1 else 0 for axis in (0, 2))
        given.mask_key = mask.stride(3)
    return given


def call(name: str, given: AttentionArguments) -> None:
    """Run one of the kernels."""
    kernels = c_library.library()
    assert kernels is not None
    work = given.batch * given.heads * given.queries * given.keys * (given.key_dim + given.value_dim)
    getattr(kernels, name)(ctypes.byref(given), c_library.threads(work))


# ---- decode steps ----


def decodes(
    queries: Float[Tensor, "batch heads query key_dim"],
    keys: Float[Tensor, "batch heads key key_dim"],
    values: Float[Tensor, "batch heads key value_dim"],
    mask: object,
) -> bool:
    """Whether `decode` supports these: a decode step with transposed keys."""
    hides = [mask] if isinstance(mask, Tensor) else []
    if is_off("c-decode-attention") or torch.compiler.is_compiling() or (mask is not None and not hides):
        return False  # checked first: a comparison of shapes would specialize compiled code to them
    return (
        queries.shape[2] <= FEW
        and keys.shape[2] > 0
        and keys.stride(2) == queries.stride(3) == values.stride(3) == 1
        and all(each.shape[1] == each.stride(3) == 1 and each.shape[3] == keys.shape[2] for each in hides)
        and all(each.shape[0] in (1, len(queries)) and each.shape[2] in (1, queries.shape[2]) for each in hides)
        and c_library.may_take(queries, keys, values, *hides)
    )


def decode(
    queries: Float32[Tensor, "batch heads query key_dim"],
    keys: Float32[Tensor, "batch heads key key_dim"],
    values: Float32[Tensor, "batch heads key value_dim"],
    mask: Float32[Tensor, "#batch 1 #query key"] | None,
) -> Float32[Tensor, "batch query joined"]:
    """softmax(Q Kᵀ / √key_dim + mask) V; the heads of a query are concatenated."""
    kernels, (batch, heads, count, key_dim), (slots, value_dim) = c_library.library(), queries.shape, values.shape[2:]
    assert kernels is not None
    context = queries.new_empty(batch, count, heads * value_dim)
    steps = [*queries.stride()[:3], *keys.stride()[:2], keys.stride(3), *values.stride()[:3]]
    hides = [0, 0] if mask is None else [mask.stride(axis) if mask.shape[axis] > 1 else 0 for axis in (0, 2)]
    numbers = [batch, heads, count, slots, key_dim, value_dim, *steps, *hides]
    kernels.decode_attention(
        (Count * len(numbers))(*numbers), queries.data_ptr(), keys.data_ptr(), values.data_ptr(),
        None if mask is None else mask.data_ptr(), context.data_ptr(),
        c_library.threads(batch * heads * count * slots * (key_dim + value_dim)),
    )  # fmt: skip
    return context


def write_cache(
    new_keys: Float32[Tensor, "batch heads width key_dim"],
    new_values: Float32[Tensor, "batch heads width value_dim"],
    keys: Float32[Tensor, "batch heads slots key_dim"],
    values: Float32[Tensor, "batch heads slots value_dim"],
    first: int,
) -> None:
    """Write new keys and values to the slots from `first` on; the keys of the cache are transposed."""
    kernels, (batch, heads, width, key_dim), value_dim = c_library.library(), new_keys.shape, values.shape[3]
    assert kernels is not None
    steps = [*new_keys.stride()[:3], *new_values.stride()[:3], *keys.stride()[:2], keys.stride(3), *values.stride()[:3]]
    numbers = [batch, heads, width, key_dim, value_dim, *steps]
    size = keys.element_size()
    kernels.write_cache(
        (Count * len(numbers))(*numbers), new_keys.data_ptr(), new_values.data_ptr(), keys.data_ptr() + first * size,
        values.data_ptr() + first * values.stride(2) * size,
    )  # fmt: skip
