"""FP8 matmuls for training, which newer GPUs compute twice as fast as 16-bit matmuls.

FP8 Formats for Deep Learning. Micikevicius et al. 2022, arXiv:2209.05433. The format e4m3 has four exponent bits and
three mantissa bits: values up to 448, with about two significant digits. Every row of both matrices is divided by its
own scale, which maps its largest absolute value to 448, and the result is multiplied by both scales:

    x Wᵀ ≈ (x / s) (W / t)ᵀ · s tᵀ             s, t: the largest absolute value of each row / 448

Linear layers compute the forward pass and the gradient of x in FP8. The gradient of the weight, a sum over all
positions of a batch, stays in 16 bits: there small values accumulate. The output projection over the vocabulary
computes only its forward pass in FP8.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from mallang.kernels.dispatch import tried_once

ALIGN = 16
"""Inputs and outputs of a weight must be multiples of this."""
WIDEST = 8192
"""Outputs beyond which a linear layer is an output projection, whose gradients stay in 16 bits."""

_wanted = False


@contextmanager
def fp8_matmuls() -> Iterator[None]:
    """Let linear layers compute in FP8 where supported, in the whole process."""
    global _wanted
    before, _wanted = _wanted, True
    try:
        yield
    finally:
        _wanted = before


def is_wanted(x: Tensor, weight: Tensor) -> bool:
    """Whether FP8 is enabled, and this matmul and its gradients can be computed in it."""
    return is_wanted_forward(x, weight) and len(weight) <= WIDEST


def is_wanted_forward(x: Tensor, weight: Tensor) -> bool:
    """Whether FP8 is enabled, and this matmul can be computed in it."""
    return _wanted and x.dim() > 1 and x.numel() > 0 and x.dtype == weight.dtype == torch.bfloat16 and fits(weight)


def fits(weight: Tensor) -> bool:
    """Whether the shape of a weight allows FP8 matmuls."""
    return not any(side % ALIGN for side in weight.shape)


def is_supported(device: torch.device) -> bool:
    """Whether a device supports FP8 matmuls."""
    return device.type == "cuda" and has_fp8()


@tried_once(None)
def has_fp8() -> bool:
    """Self-test: whether the GPU supports FP8 matmuls."""
    matrix = torch.linspace(-1, 1, 32 * ALIGN, device="cuda").view(32, ALIGN).bfloat16()
    rows, scales = quantize(matrix)
    found = torch._scaled_mm(
        rows, rows.T, scale_a=scales, scale_b=scales.T, out_dtype=matrix.dtype, use_fast_accum=True
    )
    exact = matrix.float()
    return torch.allclose(found.float(), exact @ exact.T, rtol=0.1, atol=0.2)


class Linear(torch.autograd.Function):
    """x Wᵀ + b and its gradients in FP8."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """x Wᵀ + b for a matrix x. The caller reshapes: a view made in here could not be modified in place."""
        ctx.save_for_backward(x, weight)
        return multiply(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """With G the gradient of the result: G W in FP8, Gᵀ X in 16 bits, and the sum of G."""
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        return (
            multiply(gradient, weight.T, None) if of_x else None,
            gradient.T @ x if of_weight else None,
            gradient.sum(dim=0) if of_bias else None,
        )


def linear(
    x: Float[Tensor, "*batch inputs"], weight: Float[Tensor, "outputs inputs"], bias: Float[Tensor, " outputs"] | None
) -> Float[Tensor, "*batch outputs"]:
    """x Wᵀ + b in FP8, for x of any shape, with gradients."""
    y: Tensor = Linear.apply(x.flatten(0, -2), weight, bias)  # type: ignore[no-untyped-call]
    return y.view(*x.shape[:-1], -1)


def multiply(
    x: Float[Tensor, "rows inputs"], weight: Float[Tensor, "outputs inputs"], bias: Float[Tensor, " outputs"] | None
) -> Float[Tensor, "rows outputs"]:
    """x Wᵀ + b in FP8, without gradients."""
    return multiply_quantized(quantize(x), weight, bias)


Quantized = tuple[Float[Tensor, "rows columns"], Float[Tensor, "rows 1"]]
"""A matrix in FP8, and the scale of each of its rows."""


def multiply_quantized(
    x: Quantized, weight: Float[Tensor, "outputs inputs"], bias: Float[Tensor, " outputs"] | None
) -> Float[Tensor, "rows outputs"]:
    """x Wᵀ + b where x is quantized already."""
    (rows, row_scales), (columns, column_scales) = x, quantize(weight)
    return torch._scaled_mm(
        rows, columns.T, scale_a=row_scales, scale_b=column_scales.T, bias=bias, out_dtype=weight.dtype,
        use_fast_accum=True,
    )  # fmt: skip


def quantize(matrix: Float[Tensor, "rows columns"]) -> Quantized:
    """A matrix in FP8 and the scale of each row; a compiler fuses this with the operations before it."""
    # Clamped, so that a row of zeros has a scale. Literals, not constants: torch.compile with dynamic shapes fails on
    # the latter here.
    scales = (matrix.abs().amax(dim=1, keepdim=True).float() / 448.0).clamp(min=2.0**-100)
    return (matrix / scales).to(torch.float8_e4m3fn).contiguous(), scales
