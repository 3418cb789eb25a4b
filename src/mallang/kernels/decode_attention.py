"""Decode attention on a GPU in one Triton kernel: a few queries over the many slots of a KV cache.

A decode step has as many queries as a sentence has hypotheses, and its mask hides most slots: those that are not filled
yet, and those of other hypotheses. The fused kernels of torch are made for many queries and read every slot. This
kernel has one program per head and sentence. A program holds all queries and iterates over blocks of slots with an
online softmax (Milakov and Gimelshein 2018, arXiv:1805.02867), from the first slot that the mask allows for any query
to the last. So the cost of a step depends on the valid length, not on the allocated slots. Where a step has new keys
and values to cache, the program writes those of its head first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, no_type_check

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mallang.kernels.dispatch import tl, tried_once, triton

MOST = 16
"""The maximum number of queries per head."""
WIDEST = 256
"""The maximum size of a key or value vector, in bytes."""
FEW = 256
"""Programs that a GPU runs at the same time with large blocks."""
GLANCE = 512
"""Slots of the mask that are read together."""
BYTES = 2**15
"""Size of the keys of a large block, in bytes; its values have as many."""


def is_made_for(
    queries: Float[Tensor, "batch heads query key_dim"],
    keys: Float[Tensor, "batch heads key key_dim"],
    values: Float[Tensor, "batch heads key value_dim"],
    mask: Any,
) -> bool:
    """Whether this is a decode step on a GPU with an additive mask."""
    return (
        queries.is_cuda
        and queries.shape[2] <= MOST
        and max(queries.shape[3], values.shape[3]) * queries.element_size() <= WIDEST
        and queries.dtype == keys.dtype == values.dtype != torch.float64
        and isinstance(mask, Tensor)
        and mask.is_floating_point()
        and not (torch.is_grad_enabled() and any(part.requires_grad for part in (queries, keys, values, mask)))
        and works()
    )


@tried_once("decode-attention")
def works() -> bool:
    """Self-test: whether the kernel agrees with the formula, for the largest keys, with few and with many programs."""
    return all(works_in(programs) for programs in (1, FEW + 1))


def works_in(programs: int) -> bool:
    """Whether the kernel agrees with the formula in `programs` programs. Triton raises an error on a GPU whose shared
    memory is too small for a block."""
    dim = WIDEST // 4
    given = torch.linspace(-1, 1, 2 * dim, dtype=torch.float32, device="cuda").view(1, 1, 2, dim)
    given = given.expand(programs, 1, 2, dim).contiguous()
    mask = torch.zeros(1, 1, 2, 2, dtype=torch.float32, device="cuda")
    mask[..., 1, 1] = -torch.inf
    found = decode(given, given, given, mask)
    wanted = (given @ given.transpose(2, 3) / dim**0.5 + mask).softmax(dim=3) @ given
    slots = given.clone()
    projected = given.transpose(1, 2).reshape(programs, 2, dim).repeat(1, 1, 3)
    written = write_and_decode(projected, torch.arange(2, device="cuda"), slots, slots.clone(), mask)
    # Tolerant, since torch's matmuls may be set to TF32.
    return torch.allclose(found, wanted, atol=1e-2) and torch.allclose(written, wanted[:, 0], atol=1e-2)


def decode(
    queries: Float[Tensor, "batch heads query key_dim"],
    keys: Float[Tensor, "batch heads key key_dim"],
    values: Float[Tensor, "batch heads key value_dim"],
    mask: Float[Tensor, "#batch #heads #query #key"],
) -> Float[Tensor, "batch heads query value_dim"]:
    """softmax(Q Kᵀ / √key_dim + mask) V."""
    return start(queries, Pair(keys, values), mask, None, None)


@torch.library.custom_op(
    "mallang::write_and_decode",
    mutates_args=("keys", "values"),
    schema="(Tensor projected, Tensor at, Tensor(a!) keys, Tensor(b!) values, Tensor mask) -> Tensor",
)
def write_and_decode(
    projected: Float[Tensor, "batch query queries_keys_values"],
    at: Int[Tensor, " query"],
    keys: Float[Tensor, "batch heads key key_dim"],
    values: Float[Tensor, "batch heads key value_dim"],
    mask: Float[Tensor, "#batch #heads #query #key"],
) -> Float[Tensor, "batch query heads_value_dim"]:
    """`decode` from the projected queries, keys and values in one tensor; keys and values go to the slots `at`.

    It is a custom op, which a compiler does not trace: it would copy the cache that is written to.
    """
    (_, heads, _, key_dim), value_dim = keys.shape, values.shape[3]
    parts = projected.split_with_sizes((heads * key_dim, heads * key_dim, heads * value_dim), dim=2)
    queries, *new = (part.view(*part.shape[:2], heads, -1).transpose(1, 2) for part in parts)
    context = start(queries, Pair(keys, values), mask, Pair(*new), at)
    return context.transpose(1, 2).flatten(2)


@write_and_decode.register_fake
def allocate_context(projected: Tensor, at: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """An empty output of the right shape, for tracing."""
    return projected.new_empty(*projected.shape[:2], values.shape[1] * values.shape[3])


class Pair(NamedTuple):
    """Keys and values."""

    keys: Tensor
    values: Tensor


def start(
    queries: Tensor, seen: Pair, mask: Tensor, new: Pair | None, at: Tensor | None
) -> Float[Tensor, "batch heads query value_dim"]:
    """Launch the kernel."""
    batch, heads, count, key_dim = queries.shape
    slots, value_dim = seen.values.shape[2:]
    context = queries.new_empty(batch, count, heads, value_dim).transpose(1, 2)
    mask = mask.expand(batch, heads, count, slots)
    fresh = new or Pair(queries, queries)  # a placeholder that is not read
    _attend[(batch * heads,)](
        queries, *seen, mask, context, *fresh, queries if at is None else at,
        *queries.stride(), *seen.keys.stride(), *seen.values.stride(), *mask.stride(), *context.stride(),
        *fresh.keys.stride(), *fresh.values.stride(), heads, count, slots, key_dim, value_dim,
        scale=key_dim**-0.5,
        key_width=triton.next_power_of_2(max(16, key_dim)),
        value_width=triton.next_power_of_2(max(16, value_dim)),
        writes=new is not None,
        most=MOST,
        glance=GLANCE,
        **launch(batch * heads, max(key_dim, value_dim) * queries.element_size()),
    )  # fmt: skip
    return context


def launch(programs: int, longest: int) -> dict[str, int]:
    """Launch parameters: slots per block, warps and pipeline stages.

    Tuned on an H200. Many small programs hide each other's memory latency; few programs must be fast alone.
    """
    if programs > FEW:
        return {"block": 16, "num_warps": 1, "num_stages": 3}
    return {"block": min(256, BYTES // triton.next_power_of_2(longest)), "num_warps": 8, "num_stages": 1}


if TYPE_CHECKING:
    _attend: Any
elif triton is not None:

    @triton.jit
    @no_type_check
    def _visible_range(mask, count, slots, m_query, m_slot, glance: tl.constexpr, block: tl.constexpr):
        """The range of slots that any query may see; its start is rounded down to a block."""
        nearest, furthest = tl.full((glance,), slots, tl.int32), tl.zeros((glance,), tl.int32)
        for first in range(0, slots, glance):
            slot = first + tl.arange(0, glance)
            for one in range(count):
                seen = tl.load(mask + one * m_query + slot * m_slot, mask=slot < slots, other=float("-inf"))
                nearest = tl.where(seen > float("-inf"), tl.minimum(nearest, slot), nearest)
                furthest = tl.where(seen > float("-inf"), slot + 1, furthest)
        return tl.min(nearest) // block * block, tl.max(furthest)

    @triton.jit
    @no_type_check
    def _attend(
        queries, keys, values, mask, context, new_keys, new_values, at,
        q_batch, q_head, q_query, q_dim, k_batch, k_head, k_slot, k_dim, v_batch, v_head, v_slot, v_dim,
        m_batch, m_head, m_query, m_slot, c_batch, c_head, c_query, c_dim,
        nk_batch, nk_head, nk_query, nk_dim, nv_batch, nv_head, nv_query, nv_dim, heads, count, slots,
        key_dim, value_dim, scale: tl.constexpr, key_width: tl.constexpr, value_width: tl.constexpr,
        writes: tl.constexpr, most: tl.constexpr, block: tl.constexpr, glance: tl.constexpr,
    ):  # fmt: skip
        """Decode attention of one head of one sentence."""
        sentence, head = (tl.program_id(0) // heads).to(tl.int64), tl.program_id(0) % heads
        query, of_key, of_value = tl.arange(0, most), tl.arange(0, key_width), tl.arange(0, value_width)
        asks, key_part, value_part = query < count, of_key < key_dim, of_value < value_dim
        own_key, own_value = asks[:, None] & key_part[None, :], asks[:, None] & value_part[None, :]
        queries += sentence * q_batch + head * q_head
        q = tl.load(queries + query[:, None] * q_query + of_key[None, :] * q_dim, mask=own_key, other=0.0)
        keys += sentence * k_batch + head * k_head
        values += sentence * v_batch + head * v_head
        mask += sentence * m_batch + head * m_head
        if writes:  # loaded before the mask is read and stored after it, to hide the memory latency
            place = tl.load(at + query, mask=asks, other=0)
            new_keys += sentence * nk_batch + head * nk_head
            new_values += sentence * nv_batch + head * nv_head
            new_key = tl.load(new_keys + query[:, None] * nk_query + of_key[None, :] * nk_dim, mask=own_key)
            new_value = tl.load(new_values + query[:, None] * nv_query + of_value[None, :] * nv_dim, mask=own_value)
        # Slots at the end are not filled yet, and slots before a window are hidden: the mask is scanned first.
        start, end = _visible_range(mask, count, slots, m_query, m_slot, glance, block)
        if writes:
            tl.store(keys + place[:, None] * k_slot + of_key[None, :] * k_dim, new_key, mask=own_key)
            tl.store(values + place[:, None] * v_slot + of_value[None, :] * v_dim, new_value, mask=own_value)
            tl.debug_barrier()  # other threads are about to read what one thread has written
        highest = tl.full((most,), float("-inf"), tl.float32)
        total = tl.zeros((most,), tl.float32)
        found = tl.zeros((most, value_width), tl.float32)
        for first in range(start, end, block):
            slot = first + tl.arange(0, block)
            there = slot < end
            key = tl.load(
                keys + slot[None, :] * k_slot + of_key[:, None] * k_dim,
                mask=there[None, :] & key_part[:, None], other=0.0,
            )  # fmt: skip
            value = tl.load(
                values + slot[:, None] * v_slot + of_value[None, :] * v_dim,
                mask=there[:, None] & value_part[None, :], other=0.0,
            )  # fmt: skip
            seen = tl.load(
                mask + query[:, None] * m_query + slot[None, :] * m_slot,
                mask=asks[:, None] & there[None, :], other=float("-inf"),
            ).to(tl.float32)  # fmt: skip
            scores = tl.dot(q, key, input_precision="ieee") * scale + seen
            higher = tl.maximum(highest, tl.max(scores, axis=1))
            base = tl.where(higher == float("-inf"), 0.0, higher)  # a query without any key so far: avoids −∞ − (−∞)
            weights, before = tl.exp(scores - base[:, None]), tl.exp(highest - base)
            total = total * before + tl.sum(weights, axis=1)
            found = found * before[:, None]
            found += tl.dot(weights.to(value.dtype), value, input_precision="ieee")
            highest = higher
        context += sentence * c_batch + head * c_head + query[:, None] * c_query + of_value[None, :] * c_dim
        mean = found / tl.where(total == 0.0, 1.0, total)[:, None]
        tl.store(context, mean.to(context.dtype.element_ty), mask=own_value)
