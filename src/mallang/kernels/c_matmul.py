"""Linear layers in C on a CPU, with prepacked (GEMM) weights, in float32 and int8. See kernels.c."""

from __future__ import annotations

import ctypes
import functools

import torch
from jaxtyping import Float32, Int8, Int32
from torch import Tensor

from mallang.kernels import c_library
from mallang.kernels.c_library import Count, Pointer

PANEL = 64
"""Columns of a matrix that are multiplied together, as in kernels.c."""
FURTHEST = 2**27
"""The largest stride, in elements, that the kernel supports."""


@functools.cache
def beats_torch() -> bool:
    """Whether our float32 matmul is faster than torch's here: MKL wins on Intel processors, ours on AMD's."""
    return "GenuineIntel" not in c_library.processor()


class Int8Matrix:
    """A prepacked int8 weight."""

    def __init__(self, integers: Int8[Tensor, "outputs inputs"], scale: Float32[Tensor, " outputs"]) -> None:
        kernels, (outputs, inputs), integers = c_library.library(), integers.shape, integers.contiguous()
        assert kernels is not None
        padded = -(-outputs // PANEL) * PANEL
        self.inputs, self.outputs, self.scale = inputs, outputs, scale.contiguous()
        self.prepacked: Int8[Tensor, " numbers"] = integers.new_empty(padded * -(-inputs // 4) * 4)
        self.totals: Int32[Tensor, " padded"] = integers.new_empty(padded, dtype=torch.int32)
        kernels.prepack_int8(integers.data_ptr(), outputs, inputs, self.prepacked.data_ptr(), self.totals.data_ptr())

    def multiply(
        self, x: Float32[Tensor, "*batch inputs"], bias: Float32[Tensor, " outputs"] | None = None
    ) -> Float32[Tensor, "*batch outputs"]:
        """x Wᵀ + b, with x quantized row by row, by the formula of int8.py."""
        kernels, inputs = c_library.library(), x.shape[-1]
        assert kernels is not None
        if not x.is_cpu or x.dtype != torch.float32 or inputs != self.inputs:
            raise ValueError(f"{x.dtype} of {inputs} on {x.device} for a matrix of float32 of {self.inputs} on the CPU")
        y, rows = x.new_empty(*x.shape[:-1], self.outputs), x.numel() // inputs
        # Checked first: every call into torch may release the GIL, and then waits for other Python threads.
        x = x if x.is_contiguous() else x.contiguous()
        bias = bias if bias is None or bias.is_contiguous() else bias.contiguous()
        kernels.int8_linear(
            x.data_ptr(), rows, inputs, self.prepacked.data_ptr(), self.totals.data_ptr(), self.scale.data_ptr(),
            None if bias is None else bias.data_ptr(), y.data_ptr(), self.outputs,
            c_library.threads(rows * inputs * self.outputs),
        )  # fmt: skip
        return y


class MatmulArguments(ctypes.Structure):
    """The arguments of `matmul`, as declared in kernels.c."""

    _fields_ = [
        ("x", Pointer), ("x_row", Count), ("x_column", Count), ("inputs", Count), ("packed", Pointer),
        ("start", Pointer), ("start_row", Count), ("y", Pointer), ("outputs", Count),
    ]  # fmt: skip


class FloatMatrix:
    """A prepacked float32 weight."""

    def __init__(self, weight: Float32[Tensor, "outputs inputs"]) -> None:
        kernels, (outputs, inputs) = c_library.library(), weight.shape
        assert kernels is not None
        weight = weight if max(weight.stride()) < FURTHEST else weight.contiguous()
        self.inputs, self.outputs = inputs, outputs
        self.prepacked: Float32[Tensor, " numbers"] = weight.new_empty(-(-outputs // PANEL) * PANEL * inputs)
        kernels.prepack(
            weight.data_ptr(),
            outputs,
            inputs,
            *weight.stride(),
            self.prepacked.data_ptr(),
            c_library.threads(weight.numel()),
        )

    def multiply(
        self, x: Float32[Tensor, "*batch inputs"], bias: Float32[Tensor, " outputs"] | None = None
    ) -> Float32[Tensor, "*batch outputs"]:
        """x Wᵀ + b."""
        y = x.new_empty(*x.shape[:-1], self.outputs)
        bias = bias if bias is None or bias.is_contiguous() else bias.contiguous()
        return self.put(x if x.is_contiguous() else x.contiguous(), bias, 0, y)

    def multiply_transposed(self, x: Float32[Tensor, "inputs rows"]) -> Float32[Tensor, "rows outputs"]:
        """xᵀ Wᵀ."""
        return self.put(x.T, None, 0, x.new_empty(x.shape[1], self.outputs))

    def add_transposed_(self, total: Float32[Tensor, "rows outputs"], x: Float32[Tensor, "inputs rows"]) -> None:
        """total += xᵀ Wᵀ, in place."""
        assert total.is_contiguous() and total.shape == (x.shape[1], self.outputs)
        self.put(x.T, total, self.outputs, total)

    def put(self, x: Tensor, start: Tensor | None, start_row: int, y: Tensor) -> Tensor:
        """Write start + x Wᵀ into y, whose leading axes are those of x; `start` is a bias or a table of totals."""
        kernels, inputs, rows = c_library.library(), x.shape[-1], x.shape[:-1].numel()
        assert kernels is not None
        if not x.is_cpu or x.dtype != torch.float32 or inputs != self.inputs:
            raise ValueError(f"{x.dtype} of {inputs} on {x.device} for a matrix of float32 of {self.inputs} on the CPU")
        row, column = x.stride() if x.dim() == 2 else (inputs, 1)
        given = MatmulArguments(
            x=x.data_ptr(), x_row=row, x_column=column, inputs=inputs, packed=self.prepacked.data_ptr(),
            start=None if start is None else start.data_ptr(), start_row=start_row, y=y.data_ptr(),
            outputs=self.outputs,
        )  # fmt: skip
        kernels.matmul(ctypes.byref(given), rows, c_library.threads(rows * inputs * self.outputs))
        return y
