"""Products of numbers with 8 bits, which newer GPUs compute twice as fast as those of 16.

FP8 Formats for Deep Learning. Micikevicius et al. 2022, arXiv:2209.05433. Of 8 bits four are the exponent and three the
fraction (e4m3): numbers up to 448 with two digits. Every row of either matrix is divided by a scale of its own that
makes its largest number 448, and the product is multiplied by both scales:

    x Wᵀ ≈ (x / s) (W / t)ᵀ · s tᵀ             s, t: the largest of each row / 448

So are the products forward and those that give the gradient of x. The gradient of the weight, a sum over all positions
of a batch, is computed with 16 bits: there the rows of both would be single words of a vocabulary, or dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

HIGHEST = 448.0
"""The largest number of the format."""
ALIGN = 16
"""Both sides of a weight must be multiples of this."""

_wanted = False


@contextmanager
def products_in_8_bits() -> Iterator[None]:
    """Let linear maps multiply in 8 bits where they can."""
    global _wanted
    before, _wanted = _wanted, True
    try:
        yield
    finally:
        _wanted = before


def is_wanted(x: Tensor, weight: Tensor) -> bool:
    """Whether products are to be in 8 bits, and these can be."""
    return _wanted and x.dtype == weight.dtype == torch.bfloat16 and not any(side % ALIGN for side in weight.shape)


def are_computed_by(device: torch.device) -> bool:
    """Whether a device has such products."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9)


def multiply(
    x: Float[Tensor, "rows inputs"], weight: Float[Tensor, "outputs inputs"], bias: Float[Tensor, " outputs"] | None
) -> Float[Tensor, "rows outputs"]:
    """x Wᵀ + b."""
    rows, row_scales = rounded(x)
    columns, column_scales = rounded(weight)
    return torch._scaled_mm(
        rows, columns.T, scale_a=row_scales, scale_b=column_scales.T, bias=bias, out_dtype=x.dtype, use_fast_accum=True
    )


def rounded(table: Float[Tensor, "rows columns"]) -> tuple[Float[Tensor, "rows columns"], Float[Tensor, "rows 1"]]:
    """The table in 8 bits, and what each row is to be multiplied by."""
    largest = table.abs().amax(dim=1, keepdim=True).float()
    scales = largest.clamp(min=torch.finfo(torch.bfloat16).tiny * HIGHEST) / HIGHEST  # a row of zeros has one, too
    return (table / scales).to(torch.float8_e4m3fn, memory_format=torch.contiguous_format), scales


class Product(torch.autograd.Function):
    """x Wᵀ + b with its gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The product."""
        ctx.save_for_backward(x, weight)
        return multiply(x.flatten(0, -2), weight, bias).view(*x.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """With G the gradient of the product: G W in 8 bits, Gᵀ X in 16, and the sum of G."""
        x, weight = ctx.saved_tensors
        wanted, rows = ctx.needs_input_grad, gradient.reshape(-1, len(weight))
        return (
            multiply(rows, weight.T, None).view_as(x) if wanted[0] else None,
            rows.T @ x.reshape(-1, x.shape[-1]) if wanted[1] else None,
            rows.sum(dim=0) if wanted[2] else None,
        )
