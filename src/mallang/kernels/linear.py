"""x Wᵀ + b: torch's linear, FP8 matmuls on a GPU that has them, and our own float32 matmuls in C on a CPU.

A matmul copies parts of both matrices into the order in which it reads them. A search multiplies with the same weights
at every step, so prepacked.py keeps their copy for as long as the search lasts. In training every matmul prepacks what
it needs, which takes a few hundredths of its time.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from mallang.kernels import c_library, fp8, prepacked
from mallang.kernels.c_matmul import FloatMatrix, beats_torch
from mallang.kernels.dispatch import is_off

FEW = 64
"""Rows from which on a matmul in training is ours: with fewer, prepacking takes too large a part."""
LARGE = 2**23
"""Multiplications that it must have: with fewer, torch is done before Python has called our kernel."""


def linear(
    x: Float[Tensor, "*batch inputs"], weight: Float[Tensor, "outputs inputs"], bias: Float[Tensor, " outputs"] | None
) -> Float[Tensor, "*batch outputs"]:
    """x Wᵀ + b."""
    if fp8.is_wanted(x, weight):
        return fp8.linear(x, weight, bias)
    if not torch.compiler.is_compiling():
        if (matrix := prepacked.find(x, weight, bias)) is not None:
            return matrix.multiply(x, bias)
        if is_for_training(x, weight, bias):
            y: Tensor = TrainingLinear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
            return y
    return F.linear(x, weight, bias)


def is_for_training(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether gradients will be asked for, and the matmul is large enough for our own."""
    return (
        torch.is_grad_enabled()
        and (x.requires_grad or weight.requires_grad)
        and pays(x, weight)
        and x.shape[-1] == weight.shape[1]
        and fits(bias, weight)
        and not torch.is_autocast_enabled("cpu")
    )


def fits(bias: Tensor | None, weight: Tensor) -> bool:
    """Whether the kernel can add it."""
    return bias is None or (bias.shape == weight.shape[:1] and c_library.are_plain(bias))


def pays(x: Tensor, weight: Tensor) -> bool:
    """Whether these can be multiplied by our kernel, packing included, sooner than by torch."""
    if torch.compiler.is_compiling():  # asked first: a compiler is not to compare sizes
        return False
    if is_off("c-training-matmul") or not beats_torch():
        return False
    rows = x.numel() // max(1, x.shape[-1])
    return rows >= FEW and rows * weight.numel() >= LARGE and c_library.are_plain(x, weight)


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x Wᵀ + b, without a gradient."""
    ours = pays(x, weight) and fits(bias, weight)
    return FloatMatrix(weight).multiply(x, bias) if ours else F.linear(x, weight, bias)


def multiply_back(x: Tensor, weight: Tensor) -> Tensor:
    """x W, without a gradient."""
    return FloatMatrix(weight.T).multiply(x) if pays(x, weight) else x @ weight


def add_matmul_(total: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """total + leftᵀ · right, the total in full precision whatever the others have; it may be overwritten."""
    if left.dtype != total.dtype:
        return total + left.T @ right
    if not pays(left.T, right.T) or not c_library.are_plain(total) or not total.is_contiguous():
        return total.addmm_(left.T, right)
    FloatMatrix(right.T).add_transposed_(total, left)
    return total


class TrainingLinear(torch.autograd.Function):
    """x Wᵀ + b with its gradients, which have none of their own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """x Wᵀ + b."""
        ctx.save_for_backward(x, weight)
        return FloatMatrix(weight).multiply(x, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """With G the gradient of the result: G W, Gᵀ X, and the sum of G."""
        x, weight = ctx.saved_tensors
        wanted, rows = ctx.needs_input_grad, gradient.reshape(-1, len(weight))
        return (
            FloatMatrix(weight.T).multiply(gradient) if wanted[0] else None,
            FloatMatrix(x.reshape(-1, x.shape[-1]).T).multiply_transposed(rows) if wanted[1] else None,
            rows.sum(dim=0) if wanted[2] else None,
        )
