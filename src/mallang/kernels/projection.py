"""The output projection: from hidden vectors to one logit per word of the vocabulary.

The fast matmuls of a GPU need a vocabulary size that is a multiple of 8. For other sizes a decode step computes the
transposed matmul, and a Triton kernel transposes the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, no_type_check

import torch
from jaxtyping import Float
from torch import Tensor

from mallang.kernels.dispatch import is_off, tl, tried_once, triton
from mallang.kernels.linear import linear

ALIGN = 8
"""Fast matmuls of a GPU need rows with a multiple of this many elements."""
PIECE = 64
"""The side of the square tiles in which a table is transposed."""
MOST = 1024
"""The maximum number of rows of a decode step: for more, the transposed logits would take much memory."""


def project(
    hidden: Float[Tensor, "*batch dim"], weight: Float[Tensor, "words dim"], bias: Float[Tensor, " words"] | None
) -> Float[Tensor, "*batch words"]:
    """One logit per word."""
    if is_worth_transposing(hidden, weight):
        logits: Tensor = project_transposed(hidden.flatten(0, -2), weight).view(*hidden.shape[:-1], -1)
        return logits if bias is None else logits + bias
    return linear(hidden, weight, bias)


def is_worth_transposing(hidden: Tensor, weight: Tensor) -> bool:
    """Whether this is a decode step on a GPU over a vocabulary whose size is not a multiple of 8.

    With gradients or autocast the plain matmul runs.
    """
    rows = hidden.numel() // hidden.shape[-1]
    plain = not torch.is_grad_enabled() and not torch.is_autocast_enabled("cuda")
    return (
        hidden.is_cuda
        and hidden.dtype == weight.dtype
        and plain
        and len(weight) % ALIGN != 0
        and 4 <= rows <= MOST
        and not is_off("transposed-projection")
    )


@torch.library.custom_op(
    "mallang::project_transposed", mutates_args=(), schema="(Tensor hidden, Tensor weight) -> Tensor"
)
def project_transposed(
    hidden: Float[Tensor, "rows dim"], weight: Float[Tensor, "words dim"]
) -> Float[Tensor, "rows words"]:
    """hidden · weightᵀ as (weight · hiddenᵀ)ᵀ, whose rows are aligned: for 64 × 50,257 logits an H200 took 24 µs
    instead of 155. It is a custom op, which a compiler does not trace: it would undo the transposition."""
    transposed = weight @ hidden.T
    if not transposed.is_cuda or not transposes():
        return transposed.T.contiguous()
    logits = torch.empty_like(transposed.T, memory_format=torch.contiguous_format)
    transpose(transposed, logits)
    return logits


@project_transposed.register_fake
def allocate_logits(hidden: Tensor, weight: Tensor) -> Tensor:
    """Empty logits of the right shape, for tracing."""
    return hidden.new_empty(len(hidden), len(weight))


@tried_once("transposed-projection")
def transposes() -> bool:
    """Self-test: whether the kernel transposes a table."""
    table = torch.arange(6, dtype=torch.float32, device="cuda").view(3, 2)
    transpose(table, transposed := torch.empty(2, 3, dtype=torch.float32, device="cuda"))
    return torch.equal(transposed, table.T)


def transpose(table: Float[Tensor, "words rows"], transposed: Float[Tensor, "rows words"]) -> None:
    """Write a table transposed; torch's own copy reads it element by element."""
    words, rows = table.shape
    _transpose[(-(-words // PIECE), -(-rows // PIECE))](table, transposed, words, rows, piece=PIECE, num_warps=4)


if TYPE_CHECKING:
    _transpose: Any
elif triton is not None:

    @triton.jit
    @no_type_check
    def _transpose(table, transposed, words, rows, piece: tl.constexpr):
        """One square tile."""
        word, row = tl.program_id(0) * piece + tl.arange(0, piece), tl.program_id(1) * piece + tl.arange(0, piece)
        inside = (word < words)[:, None] & (row < rows)[None, :]
        x = tl.load(table + word[:, None] * rows + row[None, :], mask=inside)
        tl.store(transposed + row[:, None].to(tl.int64) * words + word[None, :], tl.trans(x), mask=tl.trans(inside))
