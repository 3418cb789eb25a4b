"""Matrix products in 8-bit integers, for faster and smaller models on a CPU (after LLM.int8(), arXiv:2208.07339).

    weight ≈ integer weight · scale of its output         once, when a model is changed
    x      ≈ integer x · scale of its row                 for every row as it comes: no calibration data is needed
    y      = (integer x · integer weight) · scale of the row · scale of the output + bias

The integers lie in −127 … 127 around zero and are added up in 32 bits, so the product itself is exact; only the two
roundings lose something. A kernel of our own computes all of it in one call (native.c). Where there is none, FBGEMM's
does (`Packed`), and where no instruction helps, a product in float64.

What is no matrix product stays in float32: embeddings, norms, attention, softmax. So do recurrent layers, whose
products torch computes together with all else in one call.
"""

from __future__ import annotations

import functools
import threading
import warnings
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Float32, Int8
from torch import Tensor, nn

from mallang.errors import UserError
from mallang.layers import native
from mallang.layers.convolution import fold_weights
from mallang.layers.head import Projection
from mallang.layers.kernel import is_off
from mallang.layers.packed import Linear

LARGEST = 127
"""The integers are symmetric around zero, so −128 is not used."""
SMALLEST = 1e-30
"""The least scale: a row of zeros has one, and stays zeros."""
LONGEST = 2**16
"""Products whose sum 32 bits may not hold."""
PACKING = threading.Lock()
"""Held while a matrix is packed, for which a setting of all of torch is changed: searches run side by side."""
Module = TypeVar("Module", bound=nn.Module)


def quantize(model: Module) -> Module:
    """Replace every linear map and every projection to words inside a model; it can then no longer be trained."""
    place = next(model.parameters()).device
    if place.type != "cpu":
        raise UserError(f"int8 weights work on the CPU only, but the model is on {place}", todo='device = "cpu"')
    fold_weights(model)
    # Not of a class made from these: it may use its weight otherwise.
    maps = [
        (module, name, part)
        for module in list(model.modules())
        for name, part in module.named_children()
        if isinstance(part, nn.Linear | Projection) and type(part) in (nn.Linear, Linear, Projection)
    ]
    if not maps:
        raise UserError("int8 weights have no effect on this model: it has no linear maps", todo="leave int8 out")
    for module, name, part in maps:
        setattr(module, name, Int8Linear(part.weight, part.bias))
    return model


class Int8Linear(nn.Module):
    """y = x Wᵀ + b with both factors as 8-bit integers."""

    def __init__(self, weight: Float[Tensor, "outputs inputs"], bias: Float[Tensor, " outputs"] | None = None) -> None:
        super().__init__()
        integers, scale = quantize_rows(weight.detach().float())
        self.out_features, self.in_features = weight.shape
        # Its tensors are no buffers: nn.Module looks those up slowly, and a step has many products.
        self.matrix = kernel(self.in_features)(integers, scale.flatten())
        self.bias = None if bias is None else bias.detach().float().contiguous()

    def forward(self, x: Float[Tensor, "*batch inputs"]) -> Float32[Tensor, "*batch outputs"]:
        """The product, back in float32."""
        if x.requires_grad or x.dtype != torch.float32:  # to ask is quicker than to do it, and products are many
            x = x.detach().float()
        return self.matrix.multiply(x, self.bias)


def kernel(inputs: int) -> type[native.IntegerMatrix] | type[Packed] | type[Plain]:
    """The fastest that this machine has for sums of so many products."""
    if inputs >= LONGEST:
        return Plain
    if native.library() is not None and not is_off("c-int8-matmul"):
        return native.IntegerMatrix
    return Packed if is_packed_exact() else Plain


class Packed:
    """An integer matrix in the order in which FBGEMM reads it.

    This kernel rounds x, multiplies and scales in one call, on integers from 0 to 255, 128 of which stands for zero.
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
def is_packed_exact() -> bool:
    """Whether torch has that kernel here, and it is exact.

    On processors without an instruction for it such kernels may add pairs of products up in 16 bits, which overflows:
    they fail on the largest numbers, which are tried here.
    """
    largest = torch.full((32, 256), LARGEST, dtype=torch.int8)
    try:
        found = Packed(largest, torch.ones(32)).scaled(torch.tensor([[1.0], [-1.0]]).expand(2, 256), 1 / LARGEST)
        return bool((LARGEST * found).round().eq(256 * LARGEST**2 * torch.tensor([[1], [-1]])).all())
    except (AttributeError, NotImplementedError, RuntimeError):
        return False


class Plain:
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
