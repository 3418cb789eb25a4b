"""FP8 matmuls for training, which newer GPUs compute twice as fast as those of 16 bits.

FP8 Formats for Deep Learning. Micikevicius et al. 2022, arXiv:2209.05433. Of 8 bits four are the exponent and three the
fraction (e4m3): numbers up to 448 with two digits. Every row of either matrix is divided by a scale of its own that
makes its largest number 448, and the product is multiplied by both scales:

    x Wᵀ ≈ (x / s) (W / t)ᵀ · s tᵀ             s, t: the largest of each row / 448

Linear layers compute the forward pass and the gradient of x in FP8. The gradient of the weight, a sum over all
positions of a batch, stays in 16 bits: it is where small numbers add up. The output projection over the vocabulary
computes its forward pass alone in FP8.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, no_type_check

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from mallang.kernels.dispatch import tl, tried_once, triton

HIGHEST = 448.0
"""The largest number of the format."""
LOWEST = 2.0**-100
"""The least scale: a row of zeros has one, too."""
ALIGN = 16
"""Both sides of a weight must be multiples of this."""
WIDEST = 8192
"""Columns that a program of the kernel holds."""
HELD = 4096
"""Of narrower rows it takes as many as have so many columns together."""
ADDED = 64
"""Rows that a program adds up."""

_wanted = False


@contextmanager
def fp8_matmuls() -> Iterator[None]:
    """Let linear layers compute in FP8 where they can, in the whole process."""
    global _wanted
    before, _wanted = _wanted, True
    try:
        yield
    finally:
        _wanted = before


def is_wanted(x: Tensor, weight: Tensor) -> bool:
    """Whether FP8 is asked for, and this matmul and its gradients can be computed in it."""
    return is_wanted_forward(x, weight) and len(weight) <= WIDEST


def is_wanted_forward(x: Tensor, weight: Tensor) -> bool:
    """Whether FP8 is asked for, and this matmul can be computed in it."""
    return _wanted and x.dim() > 1 and x.numel() > 0 and x.dtype == weight.dtype == torch.bfloat16 and fits(weight)


def fits(weight: Tensor) -> bool:
    """Whether a weight has the shape for it."""
    return weight.shape[1] <= WIDEST and not any(side % ALIGN for side in weight.shape)


def is_supported(device: torch.device) -> bool:
    """Whether a device computes FP8 matmuls."""
    return device.type == "cuda" and has_fp8()


@tried_once(None)
def has_fp8() -> bool:
    """Whether the GPU computes FP8 matmuls."""
    matrix = torch.linspace(-1, 1, 32 * ALIGN, device="cuda").view(32, ALIGN).bfloat16()
    rows, scales = quantize_plainly(matrix)
    found = torch._scaled_mm(
        rows, rows.T, scale_a=scales, scale_b=scales.T, out_dtype=matrix.dtype, use_fast_accum=True
    )
    exact = matrix.float()
    return torch.allclose(found.float(), exact @ exact.T, rtol=0.1, atol=0.2)


class Linear(torch.autograd.Function):
    """x Wᵀ + b with its gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """x must be a matrix: of anything else a view is made outside, since others may write into the result."""
        ctx.save_for_backward(x, weight)
        return multiply(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """With G the gradient of the result: G W in FP8, Gᵀ X in 16 bits, and the sum of G."""
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        rough, sums = quantize_with_sums(gradient) if of_bias else (quantize(gradient), None)
        back = multiply_quantized(rough, weight.T, None) if of_x else None
        return back, gradient.T @ x if of_weight else None, sums


def linear(
    x: Float[Tensor, "*batch inputs"], weight: Float[Tensor, "outputs inputs"], bias: Float[Tensor, " outputs"] | None
) -> Float[Tensor, "*batch outputs"]:
    """x Wᵀ + b, whatever the shape of x."""
    y: Tensor = Linear.apply(x.flatten(0, -2), weight, bias)  # type: ignore[no-untyped-call]
    return y.view(*x.shape[:-1], -1)


def multiply(
    x: Float[Tensor, "rows inputs"], weight: Float[Tensor, "outputs inputs"], bias: Float[Tensor, " outputs"] | None
) -> Float[Tensor, "rows outputs"]:
    """x Wᵀ + b."""
    return multiply_quantized(quantize(x), weight, bias)


Quantized = tuple[Float[Tensor, "rows columns"], Float[Tensor, "rows 1"]]
"""A matrix in FP8, and the scale of each of its rows."""


def multiply_quantized(
    x: Quantized, weight: Float[Tensor, "outputs inputs"], bias: Float[Tensor, " outputs"] | None
) -> Float[Tensor, "rows outputs"]:
    """x Wᵀ + b where x is quantized already."""
    rows, row_scales = x
    columns, column_scales = quantize(weight)
    return torch._scaled_mm(
        rows, columns.T, scale_a=row_scales, scale_b=column_scales.T, bias=bias, out_dtype=weight.dtype,
        use_fast_accum=True,
    )  # fmt: skip


def quantize(matrix: Float[Tensor, "rows columns"]) -> Quantized:
    """A matrix in FP8, scaled row by row."""
    matrix = matrix.contiguous()
    if matrix.is_cuda and works():
        found: Quantized = quantize_rows(matrix)
        return found
    return quantize_plainly(matrix)


def quantize_plainly(matrix: Float[Tensor, "rows columns"]) -> Quantized:
    """`quantize` in plain torch."""
    # Numbers, not names: a compiler for many shapes stumbles over the latter here.
    scales = (matrix.abs().amax(dim=1, keepdim=True).float() / 448.0).clamp(min=2.0**-100)
    return (matrix / scales).to(torch.float8_e4m3fn), scales


def quantize_with_sums(matrix: Float[Tensor, "rows columns"]) -> tuple[Quantized, Float[Tensor, " columns"]]:
    """A matrix in FP8, and the sums of its columns: for a gradient they are the gradient of the bias."""
    matrix = matrix.contiguous()
    if matrix.is_cuda and works():
        small, scales, sums = quantize_and_sum_rows(matrix)
        return (small, scales), sums.sum(dim=0).to(matrix.dtype)
    return quantize_plainly(matrix), matrix.sum(dim=0)


@tried_once("fp8-quantize")
def works() -> bool:
    """Whether the kernel gives what the formula gives."""
    matrix = torch.tensor([[1.0, -3.0, 0.1], [0.0, 0.0, 0.0]], device="cuda").bfloat16()
    (found, scales), (_, wanted_scales) = quantize_rows(matrix), quantize_plainly(matrix)
    near = torch.allclose(found.float() * scales, matrix.float(), rtol=2**-4, atol=0)
    *same, sums = quantize_and_sum_rows(matrix)
    alike = torch.equal(same[0].float(), found.float()) and torch.equal(same[1], scales)
    return near and alike and torch.allclose(scales, wanted_scales) and torch.equal(sums[0], matrix[0].float())


@torch.library.custom_op("mallang::quantize_rows", mutates_args=(), schema="(Tensor matrix) -> (Tensor, Tensor)")
def quantize_rows(matrix: Float[Tensor, "rows columns"]) -> Quantized:
    """`quantize` in one kernel. A compiler must not look inside: where rows are long, it would read them twice."""
    small, scales = allocate_quantized(matrix)
    launch(matrix, small, scales)
    return small, scales


@quantize_rows.register_fake
def allocate_quantized(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Memory of that shape."""
    small = torch.empty_like(matrix, dtype=torch.float8_e4m3fn)
    return small, matrix.new_empty(len(matrix), 1, dtype=torch.float32)


@torch.library.custom_op(
    "mallang::quantize_and_sum_rows", mutates_args=(), schema="(Tensor matrix) -> (Tensor, Tensor, Tensor)"
)
def quantize_and_sum_rows(matrix: Float[Tensor, "rows columns"]) -> tuple[Tensor, Tensor, Tensor]:
    """`quantize_rows`, and for every `ADDED` rows their sum."""
    small, scales, sums = allocate_with_sums(matrix)
    launch(matrix, small, scales, sums)
    return small, scales, sums


@quantize_and_sum_rows.register_fake
def allocate_with_sums(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Memory of those shapes."""
    rows, columns = matrix.shape
    return *allocate_quantized(matrix), matrix.new_empty(-(-rows // ADDED), columns, dtype=torch.float32)


def launch(matrix: Tensor, small: Tensor, scales: Tensor, sums: Tensor | None = None) -> None:
    """Start the kernel; without sums its programs are as small as can be."""
    rows, columns = matrix.shape
    block = triton.next_power_of_2(columns)
    together = max(1, min(HELD // block, ADDED))
    many = 1 if sums is None else ADDED // together
    _quantize_rows[(-(-rows // (together * many)),)](
        matrix, small, scales, scales if sums is None else sums, rows, columns, highest=HIGHEST, lowest=LOWEST,
        together=together, many=many, block=block, adds=sums is not None, num_warps=8,
    )  # fmt: skip


if TYPE_CHECKING:
    _quantize_rows: Any
elif triton is not None:

    @triton.jit
    @no_type_check
    def _quantize_rows(
        matrix, small, scales, sums, rows, columns,
        highest: tl.constexpr, lowest: tl.constexpr, together: tl.constexpr, many: tl.constexpr, block: tl.constexpr,
        adds: tl.constexpr,
    ):  # fmt: skip
        """Some rows, a few at once."""
        program, column = tl.program_id(0).to(tl.int64), tl.arange(0, block)
        total = tl.zeros((together, block), tl.float32)
        for number in range(many):
            row = (program * many + number) * together + tl.arange(0, together)
            place = row[:, None] * columns + column[None, :]
            inside = (row < rows)[:, None] & (column < columns)[None, :]
            x = tl.load(matrix + place, mask=inside, other=0.0).to(tl.float32)
            scale = tl.maximum(tl.max(tl.abs(x), axis=1) / highest, lowest)
            tl.store(small + place, (x * (1 / scale)[:, None]).to(small.dtype.element_ty), mask=inside)
            tl.store(scales + row, scale, mask=row < rows)
            if adds:
                total += x
        if adds:
            tl.store(sums + program * columns + column, tl.sum(total, axis=0), mask=column < columns)
