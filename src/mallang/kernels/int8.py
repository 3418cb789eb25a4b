"""Matmuls in 8-bit integers for faster and smaller models on a CPU (after LLM.int8(), arXiv:2208.07339).

    weight ≈ integer weight · scale of its output         once, when a model is quantized
    x      ≈ integer x · scale of its row                 for every row as it comes: no calibration data is needed
    y      = (integer x · integer weight) · scale of the row · scale of the output + bias

The integers lie in −127 … 127 around zero and are added up in 32 bits, so the matmul itself is exact; only the two
quantizations lose something. A C kernel computes all of it in one call (c_matmul.py). Where there is none, FBGEMM's
does, and where no instruction helps, a matmul in float64.
"""

from __future__ import annotations

import functools
import threading
import warnings
from typing import Any

import torch
from jaxtyping import Float32, Int8
from torch import Tensor

from mallang.kernels import c_library
from mallang.kernels.c_matmul import Int8Matrix
from mallang.kernels.dispatch import is_off

LARGEST = 127
"""The integers are symmetric around zero, so −128 is not used."""
SMALLEST = 1e-30
"""The least scale: a row of zeros has one, and stays zeros."""
LONGEST = 2**16
"""Inputs whose sum 32 bits may not hold."""
PACKING = threading.Lock()
"""Held while FBGEMM prepacks a matrix, for which a setting of all of torch is changed: searches run side by side."""


def matrix_class(inputs: int) -> type[Int8Matrix] | type[FbgemmMatrix] | type[PlainMatrix]:
    """The fastest that this machine has for so many inputs."""
    if inputs >= LONGEST:
        return PlainMatrix
    if c_library.library() is not None and not is_off("c-int8-matmul"):
        return Int8Matrix
    return FbgemmMatrix if is_fbgemm_exact() else PlainMatrix


class FbgemmMatrix:
    """An integer matrix in the order in which FBGEMM reads it.

    This kernel quantizes x, multiplies and scales in one call, on integers from 0 to 255, 128 of which stands for zero.
    """

    def __init__(self, integers: Int8[Tensor, "outputs inputs"], scale: Float32[Tensor, " outputs"]) -> None:
        engines, zero = torch.backends.quantized, torch.zeros(len(integers), dtype=torch.long)
        with PACKING, warnings.catch_warnings():  # torch means to give up tensors that hold integers and their scale
            warnings.simplefilter("ignore")
            engine, engines.engine = engines.engine, "fbgemm"
            try:
                weight = torch._make_per_channel_quantized_tensor(integers, scale.double(), zero, 0)
                self.weight: Any = torch.ops.quantized.linear_prepack(weight, None)
            finally:
                engines.engine = engine

    def multiply(
        self, x: Float32[Tensor, "*batch inputs"], bias: Float32[Tensor, " outputs"] | None = None
    ) -> Float32[Tensor, "*batch outputs"]:
        """The product of x, each row rounded to 127ths of its largest number, with the matrix."""
        rows = x.reshape(-1, x.shape[-1])
        largest = rows.abs().amax(dim=1, keepdim=True).clamp_min_(SMALLEST)
        y = self.scaled(rows * largest.reciprocal(), 1 / LARGEST).mul_(largest)
        y = y.view(*x.shape[:-1], y.shape[1])
        return y if bias is None else y.add_(bias)

    def scaled(self, x: Float32[Tensor, "rows inputs"], scale: float) -> Float32[Tensor, "rows outputs"]:
        """The product of x, rounded to so many times this scale, with the matrix."""
        y: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(x, scale, 128, self.weight)
        return y


@functools.cache
def is_fbgemm_exact() -> bool:
    """Whether torch has that kernel here, and it is exact.

    On processors without an instruction for it such kernels may add pairs of products up in 16 bits, which overflows:
    they fail on the largest numbers, which are tried here.
    """
    largest = torch.full((32, 256), LARGEST, dtype=torch.int8)
    try:
        found = FbgemmMatrix(largest, torch.ones(32)).scaled(torch.tensor([[1.0], [-1.0]]).expand(2, 256), 1 / LARGEST)
        return bool((LARGEST * found).round().eq(256 * LARGEST**2 * torch.tensor([[1], [-1]])).all())
    except (AttributeError, NotImplementedError, RuntimeError):
        return False


class PlainMatrix:
    """The formula at the top of this file as it stands. The 53 bits of a float64 hold any sum of integers exactly."""

    def __init__(self, integers: Int8[Tensor, "outputs inputs"], scale: Float32[Tensor, " outputs"]) -> None:
        self.integers, self.scale = integers, scale

    def multiply(
        self, x: Float32[Tensor, "*batch inputs"], bias: Float32[Tensor, " outputs"] | None = None
    ) -> Float32[Tensor, "*batch outputs"]:
        """The product of x, rounded row by row, with the matrix."""
        integers, scale = quantize_rows(x)
        y = (integers.double() @ self.integers.double().T).float() * scale * self.scale
        return y if bias is None else y + bias


def quantize_rows(
    x: Float32[Tensor, "*batch inputs"],
) -> tuple[Int8[Tensor, "*batch inputs"], Float32[Tensor, "*batch 1"]]:
    """Each row as integers and the scale that gives it back; a row with a NaN or an infinity gives NaN back."""
    scale = x.abs().amax(dim=-1, keepdim=True).div_(LARGEST).clamp_min_(SMALLEST)
    return x.div(scale).round_().to(torch.int8), scale
