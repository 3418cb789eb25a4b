"""What sits on top of hidden vectors and turns them into answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, no_type_check

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mallang.layers.kernel import is_off, is_plain_product, tl, tried_once, triton
from mallang.layers.packed import linear

ALIGN = 8
"""A GPU is fast at products whose rows have a multiple of so many numbers."""
PIECE = 64
"""The side of the squares in which a table is turned around."""
MOST = 1024
"""Rows that a step of a search has: of more it would take much memory to turn the logits around."""


class Projection(nn.Module):
    """Hidden vectors to one score (logit) per word, with a weight of its own or that of an embedding table.

    It takes any shape of hidden vectors, so a loss projects only the positions it needs, or in chunks; `weight` and
    `bias` are there for losses that fuse the projection.
    """

    def __init__(self, dim: int, words: int, tied: nn.Embedding | None = None, bias: bool = False) -> None:
        super().__init__()
        if tied is not None and tied.weight.shape != (words, dim):
            raise ValueError(f"{words} words of {dim} cannot share a table of {tuple(tied.weight.shape)}")
        self.own = nn.Linear(dim, words, bias=False) if tied is None else None
        # In a tuple, where torch does not look: the weight is saved and counted once, by its owner.
        self.tied: tuple[nn.Embedding, ...] = () if tied is None else (tied,)
        self.bias = nn.Parameter(torch.zeros(words)) if bias else None

    @property
    def weight(self) -> Float[Tensor, "words dim"]:
        """The vector of every word, whoever owns it."""
        return self.tied[0].weight if self.own is None else self.own.weight

    def forward(self, hidden: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch words"]:
        """One logit per word."""
        if is_worth_turning(hidden, self.weight):
            logits: Tensor = project_turned(hidden.flatten(0, -2), self.weight).view(*hidden.shape[:-1], -1)
            return logits if self.bias is None else logits + self.bias
        return linear(hidden, self.weight, self.bias)


def is_worth_turning(hidden: Tensor, weight: Tensor) -> bool:
    """Whether this is a step of a search on a GPU over a number of words that its fast products do not take."""
    rows = hidden.numel() // hidden.shape[-1]
    return (
        not is_off("transposed-projection")
        and len(weight) % ALIGN != 0
        and 4 <= rows <= MOST
        and is_plain_product(hidden, weight)
    )


@torch.library.custom_op("mallang::project_turned", mutates_args=(), schema="(Tensor hidden, Tensor weight) -> Tensor")
def project_turned(
    hidden: Float[Tensor, "rows dim"], weight: Float[Tensor, "words dim"]
) -> Float[Tensor, "rows words"]:
    """hidden · weightᵀ as (weight · hiddenᵀ)ᵀ, whose rows begin at round addresses: of 64 × 50,257 logits an H200 made
    the one in 155 µs, the other in 24. A compiler is not to look inside, for it would undo it."""
    turned = weight @ hidden.T
    if not turned.is_cuda or not turns():
        return turned.T.contiguous()
    logits = torch.empty_like(turned.T, memory_format=torch.contiguous_format)
    turn(turned, logits)
    return logits


@project_turned.register_fake
def allocate_logits(hidden: Tensor, weight: Tensor) -> Tensor:
    """Memory of that shape."""
    return hidden.new_empty(len(hidden), len(weight))


@tried_once("transposed-projection")
def turns() -> bool:
    """Whether the kernel that turns a table around does so."""
    table = torch.arange(6, dtype=torch.float32, device="cuda").view(3, 2)
    turn(table, turned := torch.empty(2, 3, dtype=torch.float32, device="cuda"))
    return torch.equal(turned, table.T)


def turn(table: Float[Tensor, "words rows"], turned: Float[Tensor, "rows words"]) -> None:
    """Write a table turned around; torch's own copy reads it number by number."""
    words, rows = table.shape
    _turn[(-(-words // PIECE), -(-rows // PIECE))](table, turned, words, rows, piece=PIECE, num_warps=4)


if TYPE_CHECKING:
    _turn: Any
elif triton is not None:

    @triton.jit
    @no_type_check
    def _turn(table, turned, words, rows, piece: tl.constexpr):
        """One square piece."""
        word, row = tl.program_id(0) * piece + tl.arange(0, piece), tl.program_id(1) * piece + tl.arange(0, piece)
        inside = (word < words)[:, None] & (row < rows)[None, :]
        x = tl.load(table + word[:, None] * rows + row[None, :], mask=inside)
        tl.store(turned + row[:, None].to(tl.int64) * words + word[None, :], tl.trans(x), mask=tl.trans(inside))


class Capped(nn.Module):
    """A projection whose logits bend: cap · tanh(logit / cap) (Gemma 2, arXiv:2408.00118, section 2).

    It is no Projection itself: a loss that fuses the projection would forget the cap.
    """

    def __init__(self, projection: Projection, cap: float) -> None:
        super().__init__()
        self.projection, self.cap = projection, cap

    @property
    def weight(self) -> Float[Tensor, "words dim"]:
        """The vector of every word."""
        return self.projection.weight

    def forward(self, hidden: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch words"]:
        """One logit per word, none beyond the cap."""
        logits: Tensor = self.projection(hidden)
        return self.cap * torch.tanh(logits / self.cap)
