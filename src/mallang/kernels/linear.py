"""x Wᵀ + b: torch's linear, FP8 matmuls on a GPU that supports them, and our own float32 matmuls in C on a CPU.

A matmul packs parts of both matrices into the order in which it reads them. A search uses the same weights at every
step, so prepacked.py keeps them packed for as long as the search lasts. In training every matmul packs its own
operands, which takes a few percent of its time.
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
"""Rows from which training uses our matmul: with fewer, packing takes too large a share of the time."""
LARGE = 2**23
"""Multiplications from which training uses our matmul: with fewer, torch is faster than the call of our kernel."""


def linear(
    x: Float[Tensor, "*batch inputs"], weight: Float[Tensor, "outputs inputs"], bias: Float[Tensor, " outputs"] | None
) -> Float[Tensor, "*batch outputs"]:
    """x Wᵀ + b, by the fastest kernel available."""
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
    """Whether gradients are needed, and our matmul is faster than torch's at this size."""
    return (
        torch.is_grad_enabled()
        and (x.requires_grad or weight.requires_grad)
        and pays(x, weight)
        and x.shape[-1] == weight.shape[1]
        and fits(bias, weight)
        and not torch.is_autocast_enabled("cpu")
    )


def fits(bias: Tensor | None, weight: Tensor) -> bool:
    """Whether the kernel can add this bias."""
    return bias is None or (bias.shape == weight.shape[:1] and c_library.are_plain(bias))


def pays(x: Tensor, weight: Tensor) -> bool:
    """Whether our kernel, packing included, supports this matmul and is faster than torch's."""
    if torch.compiler.is_compiling():  # checked first: a comparison of sizes would specialize compiled code
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
    """total + leftᵀ · right, with the total in float32 for any dtype of the others; it may be overwritten."""
    if left.dtype != total.dtype:
        return total + left.T @ right
    if not pays(left.T, right.T) or not c_library.are_plain(total) or not total.is_contiguous():
        return total.addmm_(left.T, right)
    FloatMatrix(right.T).add_transposed_(total, left)
    return total


class TrainingLinear(torch.autograd.Function):
    """x Wᵀ + b by our C matmul, and its gradients, which cannot be differentiated again."""

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
