"""Int8 matmuls for faster and smaller models on a CPU, with dynamic quantization (after LLM.int8(), arXiv:2208.07339).

    weight ≈ integer weight · scale of its output         once, when a model is quantized
    x      ≈ integer x · scale of its row                 dynamically, for every row: no calibration data is needed
    y      = (integer x · integer weight) · scale of the row · scale of the output + bias

The integers are symmetric, −127 … 127, and are accumulated in int32, so the matmul itself is exact; only the two
quantizations lose precision. A C kernel computes all of it in one call (c_matmul.py). Where there is none, FBGEMM's
kernel does, and where the processor has no suitable instruction, a matmul in float64.
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
"""The largest integer; the range is symmetric around zero, so −128 is not used."""
SMALLEST = 1e-30
"""The smallest scale: so a row of zeros has one, and stays zeros."""
LONGEST = 2**16
"""Inputs from which the int32 accumulator could overflow."""
PACKING = threading.Lock()
"""Held while FBGEMM prepacks a matrix, which changes a global setting of torch: searches may run concurrently."""


def matrix_class(inputs: int) -> type[Int8Matrix] | type[FbgemmMatrix] | type[PlainMatrix]:
    """The fastest int8 matrix class of this machine for this many inputs."""
    if inputs >= LONGEST:
        return PlainMatrix
    if c_library.library() is not None and not is_off("c-int8-matmul"):
        return Int8Matrix
    return FbgemmMatrix if is_fbgemm_exact() else PlainMatrix


class FbgemmMatrix:
    """An int8 weight, prepacked by FBGEMM.

    Its kernel quantizes x, multiplies and rescales in one call, with unsigned integers whose zero point is 128.
    """

    def __init__(self, integers: Int8[Tensor, "outputs inputs"], scale: Float32[Tensor, " outputs"]) -> None:
        engines, zero = torch.backends.quantized, torch.zeros(len(integers), dtype=torch.long)
        with PACKING, warnings.catch_warnings():  # torch has deprecated its quantized tensors
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
        """x Wᵀ + b, with every row of x quantized by its largest absolute value."""
        rows = x.reshape(-1, x.shape[-1])
        largest = rows.abs().amax(dim=1, keepdim=True).clamp_min_(SMALLEST)
        y = self.scaled(rows * largest.reciprocal(), 1 / LARGEST).mul_(largest)
        y = y.view(*x.shape[:-1], y.shape[1])
        return y if bias is None else y.add_(bias)

    def scaled(self, x: Float32[Tensor, "rows inputs"], scale: float) -> Float32[Tensor, "rows outputs"]:
        """x Wᵀ, with x quantized by this scale."""
        y: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(x, scale, 128, self.weight)
        return y


@functools.cache
def is_fbgemm_exact() -> bool:
    """Whether torch has FBGEMM's kernel here, and it is exact.

    On processors without VNNI such kernels may accumulate pairs in int16, which overflows for the largest values: these
    are tested here.
    """
    largest = torch.full((32, 256), LARGEST, dtype=torch.int8)
    try:
        found = FbgemmMatrix(largest, torch.ones(32)).scaled(torch.tensor([[1.0], [-1.0]]).expand(2, 256), 1 / LARGEST)
        return bool((LARGEST * found).round().eq(256 * LARGEST**2 * torch.tensor([[1], [-1]])).all())
    except (AttributeError, NotImplementedError, RuntimeError):
        return False


class PlainMatrix:
    """The formula at the top of this file in plain torch. The 53 bits of a float64 hold any sum of integers exactly."""

    def __init__(self, integers: Int8[Tensor, "outputs inputs"], scale: Float32[Tensor, " outputs"]) -> None:
        self.integers, self.scale = integers, scale

    def multiply(
        self, x: Float32[Tensor, "*batch inputs"], bias: Float32[Tensor, " outputs"] | None = None
    ) -> Float32[Tensor, "*batch outputs"]:
        """x Wᵀ + b, with x quantized row by row."""
        integers, scale = quantize_rows(x)
        y = (integers.double() @ self.integers.double().T).float() * scale * self.scale
        return y if bias is None else y + bias


def quantize_rows(
    x: Float32[Tensor, "*batch inputs"],
) -> tuple[Int8[Tensor, "*batch inputs"], Float32[Tensor, "*batch 1"]]:
    """Each row as int8 values and a scale; a row with a NaN or an infinity dequantizes to NaN."""
    scale = x.abs().amax(dim=-1, keepdim=True).div_(LARGEST).clamp_min_(SMALLEST)
    return x.div(scale).round_().to(torch.int8), scale
