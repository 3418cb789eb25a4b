"""Going back through an activation and the bias before it on a GPU, in one kernel instead of two.

Of y = f(x + b) the gradient of x is that of y times f′(x + b), and the gradient of b is the sum of that over all
positions. A compiler writes the one and reads all of it again for the other. Here a program goes down some positions of
a few columns, writes the one and adds up the other on its way.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, no_type_check

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mallang.layers.kernel import tl, tried_once, triton

ROWS, COLUMNS, STEPS = 32, 128, 32
"""A program has a piece of so many positions and columns at a time, and goes so many pieces down."""
ROOT = 2 * math.sqrt(2 / math.pi)
CUBE = 0.044715


def is_worth(x: Tensor, widen: nn.Module) -> bool:
    """Whether this is a compiled training step on a GPU, for which it is made."""
    return (
        torch.compiler.is_compiling()
        and x.is_cuda
        and torch.is_grad_enabled()
        and isinstance(widen, nn.Linear)
        and widen.bias is not None
        and works()
    )


@tried_once
def works() -> bool:
    """Whether the kernel gives what the formula gives."""
    x = torch.linspace(-3, 3, 96, dtype=torch.float32, device="cuda").view(2, 48)
    gradient, bias = go_back(torch.ones_like(x), x, x.new_zeros(48))
    with torch.enable_grad():
        given = x.clone().requires_grad_()
        (wanted,) = torch.autograd.grad(nn.functional.gelu(given, approximate="tanh").sum(), given)
    return torch.allclose(gradient, wanted, atol=1e-4) and torch.allclose(bias, wanted.sum(dim=0), atol=1e-4)


def by_sigmoid(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """GELU by its approximation 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))), where 0.5 (1 + tanh(z)) = sigmoid(2 z)."""
    return x * torch.sigmoid(x * (ROOT + ROOT * CUBE * x * x))


class BiasedGelu(torch.autograd.Function):
    """GELU of x + b."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor) -> Tensor:
        """A compiler makes one kernel of all of it."""
        ctx.save_for_backward(x, bias)
        return by_sigmoid(x + bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of both."""
        x, bias = ctx.saved_tensors
        back, summed = go_back(gradient.contiguous().view_as(x), x, bias)
        return back, summed.to(bias.dtype)


def go_back(
    gradient: Float[Tensor, "positions width"], x: Float[Tensor, "positions width"], bias: Float[Tensor, " width"]
) -> tuple[Float[Tensor, "positions width"], Float[Tensor, " width"]]:
    """The gradients of x and of b, given that of GELU(x + b)."""
    positions, width = x.shape
    back, pieces = torch.empty_like(x), -(-positions // (ROWS * STEPS))
    sums = torch.empty(pieces, width, dtype=torch.float32, device=x.device)
    _go_back[(pieces, -(-width // COLUMNS))](
        gradient, x, bias, back, sums, positions, width,
        root=ROOT, cube=CUBE, rows=ROWS, columns=COLUMNS, steps=STEPS, num_warps=4,
    )  # fmt: skip
    return back, sums.sum(dim=0)


if TYPE_CHECKING:
    _go_back: Any
elif triton is not None:

    @triton.jit
    @no_type_check
    def _go_back(
        gradient, x, bias, back, sums, positions, width, root: tl.constexpr, cube: tl.constexpr,
        rows: tl.constexpr, columns: tl.constexpr, steps: tl.constexpr,
    ):  # fmt: skip
        """Some positions of a few columns."""
        column = tl.program_id(1) * columns + tl.arange(0, columns)
        offset = tl.load(bias + column, mask=column < width, other=0.0).to(tl.float32)
        total = tl.zeros((columns,), tl.float32)
        for step in range(steps):
            row = (tl.program_id(0) * steps + step) * rows + tl.arange(0, rows)
            place = row[:, None].to(tl.int64) * width + column[None, :]
            inside = (row < positions)[:, None] & (column < width)[None, :]
            moved = tl.load(x + place, mask=inside, other=0.0).to(tl.float32) + offset[None, :]
            share = tl.sigmoid(moved * (root + root * cube * moved * moved))
            slope = share + moved * share * (1 - share) * (root + 3 * root * cube * moved * moved)
            found = tl.load(gradient + place, mask=inside, other=0.0).to(tl.float32) * slope
            tl.store(back + place, found.to(back.dtype.element_ty), mask=inside)
            total += tl.sum(found, axis=0)
        tl.store(sums + tl.program_id(0) * width + column, total, mask=column < width)
