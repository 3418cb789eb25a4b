"""A feed-forward network with GELU in FP8 matmuls (fp8.py), with few passes over memory.

    h = x W₁ᵀ + b₁        g = GELU(h)        y = g W₂ᵀ + b₂

The hidden vectors h and g are four times as wide as x, and an extra pass over them costs more time than FP8 saves.
Forward, one kernel reads h and writes g in FP8, as the second matmul needs it. Backward, one kernel reads h and the
gradient of g; it writes g and the gradient of h, in 16 bits for the gradient of W₁ and in FP8 for the gradient of x,
and sums the gradient of b₁.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, no_type_check

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from mallang.kernels import fp8
from mallang.kernels.dispatch import tl, tried_once, triton
from mallang.kernels.fp8 import Quantized, multiply, multiply_quantized, quantize

HIGHEST, LOWEST = 448.0, 2.0**-100
"""The largest number of the format, and the least scale: a row of zeros has one, too."""
TWICE = 2 * math.sqrt(2 / math.pi)
CUBE = 0.044715
"""GELU(x) = x σ(TWICE (x + CUBE x³)): the tanh approximation, written with a sigmoid."""
ROWS = 32
"""Rows that a program goes through backward."""


def feed_forward(x: Float[Tensor, "*batch dim"], up: nn.Module, down: nn.Module) -> Float[Tensor, "*batch dim"] | None:
    """The network of two linear layers, if FP8 is asked for and the kernels can take its sizes; None otherwise."""
    if not isinstance(up, nn.Linear) or not isinstance(down, nn.Linear) or not x.is_cuda:
        return None
    if not (fp8.is_wanted(x, up.weight) and fp8.is_wanted(x, down.weight) and works()):
        return None
    weights = up.weight, up.bias, down.weight, down.bias
    y: Tensor = FeedForward.apply(x.flatten(0, -2), *weights)  # type: ignore[no-untyped-call]
    return y.view_as(x)


@tried_once("fp8-feed-forward")
def works() -> bool:
    """Self-test: whether the kernels agree with the formulas."""
    inner = torch.linspace(-3, 3, 2 * 48, device="cuda").view(2, 48).bfloat16()
    small, scales = gelu(inner)
    g, back, (rough, rough_scales), sums = gelu_backward(torch.ones_like(inner), inner)
    exact = inner.float().requires_grad_()
    wanted = torch.nn.functional.gelu(exact, approximate="tanh")
    (slope,) = torch.autograd.grad(wanted.sum(), exact)
    pairs = (
        (small.float() * scales, wanted),
        (g, wanted),
        (back, slope),
        (rough.float() * rough_scales, slope),
    )
    near = all(torch.allclose(found.float(), right, rtol=0.07, atol=0.02) for found, right in pairs)
    return near and torch.allclose(sums, slope.sum(dim=0), atol=0.02)


class FeedForward(torch.autograd.Function):
    """y of a matrix x, with the gradients of all."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, up: Tensor, up_bias: Tensor | None, down: Tensor, down_bias: Tensor | None
    ) -> Tensor:
        """The network."""
        inner = multiply(x, up, up_bias)
        ctx.save_for_backward(x, inner, up, down)
        return multiply_quantized(gelu(inner), down, down_bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Back through the second linear layer, GELU and the first."""
        x, inner, up, down = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        hidden_gradient = multiply_quantized(quantize(gradient), down.T, None)
        hidden, inner_gradient, quantized_inner, up_sums = gelu_backward(hidden_gradient, inner)
        return (
            multiply_quantized(quantized_inner, up.T, None) if wanted[0] else None,
            inner_gradient.T @ x if wanted[1] else None,
            up_sums.to(x.dtype) if wanted[2] else None,
            gradient.T @ hidden if wanted[3] else None,
            gradient.sum(dim=0) if wanted[4] else None,
        )


def gelu(inner: Float[Tensor, "rows columns"]) -> Quantized:
    """GELU, quantized."""
    found: Quantized = gelu_rows(inner)
    return found


def gelu_backward(
    gradient: Float[Tensor, "rows columns"], inner: Float[Tensor, "rows columns"]
) -> tuple[Float[Tensor, "rows columns"], Float[Tensor, "rows columns"], Quantized, Float[Tensor, " columns"]]:
    """GELU(inner); with its gradient given, that of the inner numbers, its quantized form, and its sum."""
    hidden, back, small, scales, sums = gelu_backward_rows(gradient, inner)
    return hidden, back, (small, scales), sums.sum(dim=0)


def allocate_quantized(matrix: Tensor) -> Quantized:
    """Memory for a matrix in FP8 and its scales."""
    small = torch.empty_like(matrix, dtype=torch.float8_e4m3fn)
    return small, matrix.new_empty(len(matrix), 1, dtype=torch.float32)


@torch.library.custom_op("mallang::gelu_rows", mutates_args=(), schema="(Tensor inner) -> (Tensor, Tensor)")
def gelu_rows(inner: Float[Tensor, "rows columns"]) -> Quantized:
    """The kernel forward, for a compiler that must not look inside."""
    small, scales = allocate_quantized(inner)
    rows, columns = inner.shape
    _gelu[(rows,)](
        inner, small, scales, columns, twice=TWICE, cube=CUBE, highest=HIGHEST, lowest=LOWEST,
        block=triton.next_power_of_2(columns), num_warps=8,
    )  # fmt: skip
    return small, scales


gelu_rows.register_fake(allocate_quantized)


@torch.library.custom_op(
    "mallang::gelu_backward_rows",
    mutates_args=(),
    schema="(Tensor gradient, Tensor inner) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def gelu_backward_rows(
    gradient: Float[Tensor, "rows columns"], inner: Float[Tensor, "rows columns"]
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The kernel backward; each of its programs has sums of its own."""
    rows, columns = inner.shape
    programs = -(-rows // ROWS)
    found: tuple[Tensor, Tensor, Tensor, Tensor, Tensor] = allocate_back(gradient, inner)
    _gelu_backward[(programs,)](
        gradient, inner, *found, rows, columns, twice=TWICE, cube=CUBE, highest=HIGHEST, lowest=LOWEST, many=ROWS,
        block=triton.next_power_of_2(columns), num_warps=16,
    )  # fmt: skip
    return found


@gelu_backward_rows.register_fake
def allocate_back(gradient: Tensor, inner: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Output tensors of the right shapes, for the compiler."""
    rows, columns = inner.shape
    hidden, back = torch.empty_like(inner), torch.empty_like(inner)
    sums = inner.new_empty(-(-rows // ROWS), columns, dtype=torch.float32)
    return hidden, back, *allocate_quantized(inner), sums


if TYPE_CHECKING:
    _gelu: Any
    _gelu_backward: Any
elif triton is not None:

    @triton.jit
    @no_type_check
    def _gelu(
        inner, small, scales, columns,
        twice: tl.constexpr, cube: tl.constexpr, highest: tl.constexpr, lowest: tl.constexpr, block: tl.constexpr,
    ):  # fmt: skip
        """One row."""
        row, column = tl.program_id(0).to(tl.int64), tl.arange(0, block)
        place, inside = row * columns + column, column < columns
        x = tl.load(inner + place, mask=inside, other=0.0).to(tl.float32)
        g = x * tl.sigmoid(x * (twice + twice * cube * x * x))
        scale = tl.maximum(tl.max(tl.abs(g), axis=0) / highest, lowest)
        tl.store(small + place, (g * (1 / scale)).to(small.dtype.element_ty), mask=inside)
        tl.store(scales + row, scale)

    @triton.jit
    @no_type_check
    def _gelu_backward(
        gradient, inner, hidden, back, small, scales, sums, rows, columns,
        twice: tl.constexpr, cube: tl.constexpr, highest: tl.constexpr, lowest: tl.constexpr,
        many: tl.constexpr, block: tl.constexpr,
    ):  # fmt: skip
        """Some rows, one after the other."""
        program, column = tl.program_id(0).to(tl.int64), tl.arange(0, block)
        total = tl.zeros((block,), tl.float32)
        for number in range(many):
            row = program * many + number
            place = row * columns + column
            # Compared in a block: the interpreter makes no mask of a block and a single comparison.
            inside = (column < columns) & (row + tl.zeros_like(column) < rows)
            x = tl.load(inner + place, mask=inside, other=0.0).to(tl.float32)
            given = tl.load(gradient + place, mask=inside, other=0.0).to(tl.float32)
            share = tl.sigmoid(x * (twice + twice * cube * x * x))
            tl.store(hidden + place, (x * share).to(hidden.dtype.element_ty), mask=inside)
            slope = share + x * share * (1 - share) * (twice + 3 * twice * cube * x * x)
            found = given * slope
            tl.store(back + place, found.to(back.dtype.element_ty), mask=inside)
            scale = tl.maximum(tl.max(tl.abs(found), axis=0) / highest, lowest)
            tl.store(small + place, (found * (1 / scale)).to(small.dtype.element_ty), mask=inside)
            tl.store(scales + row, scale, mask=row < rows)
            total += found
        tl.store(sums + program * columns + column, total, mask=column < columns)
