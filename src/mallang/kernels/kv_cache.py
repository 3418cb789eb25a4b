"""The memory layout of a KV cache, which decides how fast a decode step reads it.

On a GPU the heads of a slot are contiguous, as a layer computes them. On a CPU the slots of a head are contiguous, with
transposed keys: the C kernels and matmuls read them in this order.
"""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from mallang.kernels import c_attention, c_library
from mallang.kernels.dispatch import is_off

Pair = tuple[Float[Tensor, "batch heads key key_dim"], Float[Tensor, "batch heads key value_dim"]]
"""Keys and values."""


def decode_layout(
    keys: Float[Tensor, "batch heads key key_dim"], values: Float[Tensor, "batch heads key value_dim"]
) -> Pair:
    """Keys and values in the layout that decode steps read fastest; for the encoder memory, which many steps read."""
    if keys.is_cuda:
        return keys, values
    return keys.transpose(2, 3).contiguous().transpose(2, 3), values.contiguous()


def allocate(keys: Tensor, values: Tensor, sentences: int, slots: int, width: int) -> Pair:
    """Allocate slots for keys and values like these; they are zeros, since 0 × NaN would not be 0.

    For a single query per sentence and without C kernels, keys have the layout of torch's fused attention.
    """
    (_, heads, _, key_dim), value_dim = keys.shape, values.shape[3]
    if keys.is_cuda:
        new = keys.new_zeros(sentences, slots, heads, key_dim).transpose(1, 2)
        return new, values.new_zeros(sentences, slots, heads, value_dim).transpose(1, 2)
    if width == 1 and (is_off("c-decode-attention") or not c_library.may_take(keys)):
        new = keys.new_zeros(sentences, heads, slots, key_dim)
    else:
        new = keys.new_zeros(sentences, heads, key_dim, slots).transpose(2, 3)
    return new, values.new_zeros(sentences, heads, slots, value_dim)


def write(
    keys: Tensor, values: Tensor, new_keys: Tensor, new_values: Tensor, at: Int[Tensor, " width"] | slice
) -> None:
    """Write new keys and values to the slots `at`."""
    if isinstance(at, slice) and are_writable(keys, values, new_keys, new_values):
        c_attention.write_cache(new_keys, new_values, keys, values, at.start)
    elif isinstance(at, slice):
        keys[:, :, at].copy_(new_keys)
        values[:, :, at].copy_(new_values)
    else:  # not `index_copy_`, for which a compiler copies all slots
        keys[:, :, at] = new_keys
        values[:, :, at] = new_values


def are_writable(keys: Tensor, values: Tensor, new_keys: Tensor, new_values: Tensor) -> bool:
    """Whether the C kernel can write new keys and values: transposed keys, contiguous rows."""
    rows = (values, new_keys, new_values)
    if is_off("c-cache-write") or not c_library.may_take(keys, *rows):
        return False
    return keys.stride(2) == 1 and all(each.stride(3) == 1 for each in rows)
