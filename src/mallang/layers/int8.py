"""Matrix products in 8-bit integers, for faster and smaller models on a CPU (after LLM.int8(), arXiv:2208.07339).

    weight ≈ integer weight · scale of its output         once, when a model is changed
    x      ≈ integer x · scale of its row                 for every row as it comes: no calibration data is needed
    y      = (integer x · integer weight) · scale of the row · scale of the output + bias

The integers lie in −127 … 127 around zero and are added up in 32 bits, so the product itself is exact; only the two
roundings lose something. Three kernels can compute it. oneDNN's is the fastest, but for more than one row it
brings the matrix into an order of its own each time, which pays for many rows. FBGEMM's keeps the matrix in such an
order (`Packed`): better for a few rows and a large matrix. Where no instruction helps there is a product in float64.

What is no matrix product stays in float32: embeddings, norms, attention, softmax. So do recurrent layers, whose
products torch computes together with all else in one call.
"""

from __future__ import annotations

import functools
import math
import threading
import warnings
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Float32, Int8, Int32
from torch import Tensor, nn

from mallang.errors import UserError
from mallang.layers.convolution import fold_weights
from mallang.layers.head import Projection

LARGEST = 127
"""The integers are symmetric around zero, so −128 is not used."""
SMALLEST = 1e-30
"""The least scale: a row of zeros has one, and stays zeros."""
LARGE, MANY = 2**20, 32
"""FBGEMM takes matrices of at least so many weights, for more than one row and fewer than so many."""
PACKING = threading.Lock()
"""Held while a matrix is packed, for which a setting of all of torch is changed: searches run side by side."""
Module = TypeVar("Module", bound=nn.Module)


def quantize(model: Module) -> Module:
    """Replace every linear map and every projection to words inside a model; it can then no longer be trained."""
    place = next(model.parameters()).device
    if place.type != "cpu":
        raise UserError(f"int8 weights work on the CPU only, but the model is on {place}", todo='device = "cpu"')
    fold_weights(model)
    for module in list(model.modules()):
        for name, part in module.named_children():
            # Not of a class made from these: it may use its weight otherwise.
            if isinstance(part, nn.Linear | Projection) and type(part) in (nn.Linear, Projection):
                setattr(module, name, Int8Linear(part.weight, part.bias))
    return model


class Int8Linear(nn.Module):
    """y = x Wᵀ + b with both factors as 8-bit integers."""

    weight: Int8[Tensor, "outputs inputs"]
    scale: Float32[Tensor, " outputs"]
    bias: Float32[Tensor, " outputs"] | None

    def __init__(self, weight: Float[Tensor, "outputs inputs"], bias: Float[Tensor, " outputs"] | None = None) -> None:
        super().__init__()
        integers, scale = quantize_rows(weight.detach().float())
        self.out_features, self.in_features = weight.shape
        self.register_buffer("weight", integers)
        self.register_buffer("scale", scale.flatten())
        self.register_buffer("bias", None if bias is None else bias.detach().float())
        self.packed: Packed | None = None

    @torch.no_grad()
    def forward(self, x: Float[Tensor, "*batch inputs"]) -> Float32[Tensor, "*batch outputs"]:
        """The product, back in float32."""
        rows = x.reshape(-1, self.in_features).float()
        if is_for_packed(len(rows), self.weight.numel()):
            with PACKING:
                self.packed = self.packed or Packed(self.weight, self.scale)
            y = self.packed.multiply(rows)
            y = y if self.bias is None else y.add_(self.bias)
        else:
            y = self.multiply(rows)
        return y.view(*x.shape[:-1], self.out_features)

    def multiply(self, x: Float32[Tensor, "rows inputs"]) -> Float32[Tensor, "rows outputs"]:
        """The formula above in few passes over y: for a single row their number is what counts."""
        ends = [abs(end.item()) for end in torch.aminmax(x)] if len(x) == 1 else [math.inf]
        if all(map(math.isfinite, ends)):
            largest = max(SMALLEST, *ends)
            y = to_float(multiply((x * (LARGEST / largest)).round_().to(torch.int8), self.weight.t()))
            if self.bias is None:
                return y.mul_(self.scale).mul_(largest / LARGEST)
            return torch.addcmul(self.bias, y, self.scale, value=largest / LARGEST, out=y)
        integers, scale = quantize_rows(x)
        y = to_float(multiply(integers, self.weight.t())).mul_(scale)
        return y.mul_(self.scale) if self.bias is None else torch.addcmul(self.bias, y, self.scale, out=y)


class Packed:
    """An integer matrix in the order in which FBGEMM reads it.

    This kernel rounds x, multiplies and scales in one call, on integers from 0 to 255, 128 of which stands for zero.
    """

    def __init__(self, integers: Int8[Tensor, "outputs inputs"], scale: Float32[Tensor, " outputs"]) -> None:
        engine, engines = torch.backends.quantized.engine, torch.backends.quantized
        zero = torch.zeros(len(integers), dtype=torch.long)
        try:
            engines.engine = "fbgemm"
            with warnings.catch_warnings():  # torch means to give up tensors that hold integers and their scale
                warnings.simplefilter("ignore")
                weight = torch._make_per_channel_quantized_tensor(integers, scale.double(), zero, 0)
            self.weight: Any = torch.ops.quantized.linear_prepack(weight, None)
        finally:
            engines.engine = engine

    def multiply(self, x: Float32[Tensor, "rows inputs"]) -> Float32[Tensor, "rows outputs"]:
        """The product of x, each row rounded to 127ths of its largest number, with the matrix."""
        largest = x.abs().amax(dim=1, keepdim=True).clamp_min_(SMALLEST)
        return self.scaled(x * largest.reciprocal(), 1 / LARGEST).mul_(largest)

    def scaled(self, x: Float32[Tensor, "rows inputs"], scale: float) -> Float32[Tensor, "rows outputs"]:
        """The product of x, rounded to so many times this scale, with the matrix."""
        y: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(x, scale, 128, self.weight)
        return y


def is_for_packed(rows: int, weights: int) -> bool:
    """Whether FBGEMM is the faster one for so many rows and a matrix of so many weights."""
    is_better = weights >= LARGE and 1 < rows < MANY
    return (is_better or not has_fast_product()) and has_packed_product()


@functools.cache
def has_packed_product() -> bool:
    """Whether torch has that kernel here, and it is exact."""
    largest = torch.full((32, 256), LARGEST, dtype=torch.int8)
    try:
        found = Packed(largest, torch.ones(32)).scaled(torch.tensor([[1.0], [-1.0]]).expand(2, 256), 1 / LARGEST)
        return bool((LARGEST * found).round().eq(256 * LARGEST**2 * torch.tensor([[1], [-1]])).all())
    except (AttributeError, NotImplementedError, RuntimeError):
        return False


def quantize_rows(x: Float32[Tensor, "rows inputs"]) -> tuple[Int8[Tensor, "rows inputs"], Float32[Tensor, "rows 1"]]:
    """Each row as integers and the scale that gives it back; a row with a NaN or an infinity gives NaN back."""
    scale = x.abs().amax(dim=1, keepdim=True).div_(LARGEST).clamp_min_(SMALLEST)
    return x.div(scale).round_().to(torch.int8), scale


def multiply(left: Int8[Tensor, "rows inputs"], right: Int8[Tensor, "inputs outputs"]) -> Int32[Tensor, "rows outputs"]:
    """The exact product of integer matrices."""
    if has_fast_product():
        return torch._int_mm(left, right)
    return (left.double() @ right.double()).int()  # 53 bits hold any such sum exactly


def to_float(integers: Int32[Tensor, "rows outputs"]) -> Float32[Tensor, "rows outputs"]:
    """The same numbers, in the memory of the integers: new memory for each product would take longer to get."""
    return integers.view(torch.float32).copy_(integers)


@functools.cache
def has_fast_product() -> bool:
    """Whether this machine's 8-bit product is there and exact.

    Processors without an instruction for it (VNNI) add pairs of products up in 16 bits, which overflows: such
    a kernel fails on the largest numbers, which are tried here.
    """
    largest = torch.full((32, 256), LARGEST, dtype=torch.int8)
    try:
        found = torch._int_mm(largest, largest.t().contiguous())
        return bool((found == 256 * LARGEST**2).all()) and bool((torch._int_mm(largest, -largest.t()) == -found).all())
    except (AttributeError, NotImplementedError, RuntimeError):
        return False
