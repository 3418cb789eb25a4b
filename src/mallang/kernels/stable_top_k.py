"""Stable top-k of every row on a GPU, in one Triton kernel, for the steps of beam search.

`torch.topk` does not define the order of ties, and a stable sort orders the whole row where ten of its elements
matter. Here one program holds a row in registers and removes its maximum k times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, no_type_check

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mallang.kernels.dispatch import tl, tried_once, triton

LONGEST = 4096
"""The maximum number of columns, which a program holds."""
TOGETHER = 32
"""Blocks of a long row whose maxima one program finds."""
MOST = 32
"""The maximum k: for more, sorting is as fast."""


def is_made_for(scores: Float[Tensor, "rows places"], count: int) -> bool:
    """Whether the kernel supports rows of this length and this k."""
    fits = scores.shape[1] <= LONGEST and count <= min(MOST, scores.shape[1])
    return scores.is_cuda and scores.is_floating_point() and fits and works()


@tried_once("top-k")
def works() -> bool:
    """Self-test: whether the kernel finds the right values and indices."""
    scores = torch.tensor([[1.0, 3.0, 3.0], [-torch.inf, 2.0, -torch.inf]], dtype=torch.float64, device="cuda")
    values, places = stable_top_k(scores, 2)
    if block_maxima(scores, 2).tolist() != [[3.0, 3.0], [2.0, -torch.inf]]:
        return False
    return values.tolist() == [[3.0, 3.0], [2.0, -torch.inf]] and places.tolist() == [[1, 2], [1, 0]]


def stable_top_k(
    scores: Float[Tensor, "rows places"], count: int
) -> tuple[Float[Tensor, "rows count"], Int[Tensor, "rows count"]]:
    """The `count` highest values of each row and their indices, best first; NaN counts as −∞."""
    scores = scores.contiguous()
    values = scores.new_empty(len(scores), count)
    places = torch.empty(len(scores), count, dtype=torch.long, device=scores.device)
    columns = scores.shape[1]
    _stable_top_k[(len(scores),)](
        scores, values, places, columns, count, block=triton.next_power_of_2(columns), num_warps=4
    )  # fmt: skip
    return values, places


def block_maxima(scores: Float[Tensor, "rows places"], size: int) -> Float[Tensor, "rows blocks"]:
    """The maximum of every block of `size` columns of a row; NaN counts as −∞."""
    blocks = -(-scores.shape[1] // size)
    maxima = scores.new_empty(len(scores), blocks)
    _block_maxima[(len(scores), -(-blocks // TOGETHER))](
        scores, maxima, scores.stride(0), scores.shape[1], blocks, size=size, together=TOGETHER, num_warps=4
    )
    return maxima


if TYPE_CHECKING:
    _stable_top_k: Any
    _block_maxima: Any
elif triton is not None:

    @triton.jit
    @no_type_check
    def _block_maxima(scores, maxima, stride, columns, blocks, size: tl.constexpr, together: tl.constexpr):
        """The maxima of `together` blocks of one row."""
        row, block = tl.program_id(0).to(tl.int64), tl.program_id(1) * together + tl.arange(0, together)
        column = block[:, None] * size + tl.arange(0, size)[None, :]
        x = tl.load(scores + row * stride + column, mask=column < columns, other=float("-inf"))
        x = tl.where(x == x, x, float("-inf"))
        tl.store(maxima + row * blocks + block, tl.max(x, axis=1), mask=block < blocks)

    @triton.jit
    @no_type_check
    def _stable_top_k(scores, values, places, columns, count, block: tl.constexpr):
        """The top-k of one row."""
        row, column = tl.program_id(0).to(tl.int64), tl.arange(0, block)
        x = tl.load(scores + row * columns + column, mask=column < columns, other=float("-inf"))
        x = tl.where(x == x, x, float("-inf"))
        left = column < columns
        for rank in range(count):
            highest = tl.max(tl.where(left, x, float("-inf")), axis=0)
            place = tl.min(tl.where(left & (x == highest), column, block), axis=0)
            tl.store(values + row * count + rank, highest)
            tl.store(places + row * count + rank, place.to(tl.int64))
            left = left & (column != place)
