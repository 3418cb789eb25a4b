"""Attention over short texts in training, on a CPU: kernels of our own, there and back. See native.c.

The fused kernel of torch is made for long texts; over 30 tokens it takes nearly twice as long as these, over 10 four
times. Here everything of one head stays in the nearest caches.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from jaxtyping import Float32
from torch import Tensor
from torch.autograd.function import once_differentiable

from mallang.layers import native

LONGEST = 128
"""Queries and keys up to which a text is short."""
WIDEST = 128
"""Numbers of a key or a value."""


def is_for_short(queries: Tensor, keys: Tensor, values: Tensor, mask: Any) -> bool:
    """Whether these are short, gradients will be asked for, and the mask is one that the kernels know."""
    given = (queries, keys, values)
    return (
        torch.is_grad_enabled()
        and any(each.requires_grad for each in given)
        and native.are_plain(*given)
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
    """Whether a query sees the keys up to itself."""
    return isinstance(mask, str) and queries.shape[2] == keys.shape[2]


def hides_for_all_heads(mask: Any, queries: Tensor, keys: Tensor) -> bool:
    """Whether it says by true and false what may be seen, of each key, the same for all heads."""
    if type(mask) is not Tensor or mask.dtype != torch.bool or not mask.is_cpu or mask.dim() != 4:
        return False
    batch, heads, count, key = mask.shape
    return heads == 1 and key == keys.shape[2] and batch in (1, len(queries)) and count in (1, queries.shape[2])


class Short(ctypes.Structure):
    """What the kernels read and write: as in native.c."""

    _fields_ = [
        *((name, ctypes.c_long) for name in ("batch", "heads", "queries", "keys", "key_dim", "value_dim")),
        *((name, ctypes.c_void_p) for name in ("q", "k", "v")),
        *((f"{name}_{step}", ctypes.c_long) for name in ("q", "k", "v") for step in ("batch", "head", "step")),
        ("mask", ctypes.c_void_p),
        *((name, ctypes.c_long) for name in ("mask_batch", "mask_query", "mask_key", "causal")),
        ("scale", ctypes.c_float),
        *((name, ctypes.c_void_p) for name in ("weights", "context", "gradient", "dq", "dk", "dv")),
    ]


class ShortAttention(torch.autograd.Function):
    """softmax(Q Kᵀ / √key_dim) V of what may be seen, and its gradients; those have none of their own."""

    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, keys: Tensor, values: Tensor, mask: Any
    ) -> Float32[Tensor, "batch query heads value_dim"]:
        """The context; the weights are kept for the way back."""
        (batch, heads, count, _), (slots, value_dim) = queries.shape, values.shape[2:]
        weights = queries.new_empty(batch, heads, count, slots)
        context = queries.new_empty(batch, count, heads, value_dim)
        given = described(queries, keys, values, mask)
        given.weights, given.context = weights.data_ptr(), context.data_ptr()
        call("attend_short", given)
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
        call("attend_short_back", given)
        return (*(each.transpose(1, 2) for each in found), None)


def described(queries: Tensor, keys: Tensor, values: Tensor, mask: Any) -> Short:
    """Sizes and addresses."""
    (batch, heads, count, key_dim), (slots, value_dim) = queries.shape, values.shape[2:]
    given = Short(
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


def call(name: str, given: Short) -> None:
    """Run one of the kernels."""
    kernels = native.library()
    assert kernels is not None
    work = given.batch * given.heads * given.queries * given.keys * (given.key_dim + given.value_dim)
    getattr(kernels, name)(ctypes.byref(given), native.threads(work))
