"""Int8 quantization of a whole model for a CPU: linear layers and output projections compute in 8-bit integers.

The formula and its kernels are in kernels/int8.py. Embeddings, norms, attention and softmax stay in float32, and so do
recurrent layers, which torch computes in one fused call.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn

from mallang.errors import UserError
from mallang.kernels.int8 import matrix_class, quantize_rows
from mallang.layers.convolution import fold_weights
from mallang.layers.head import Projection
from mallang.layers.linear import Linear

Module = TypeVar("Module", bound=nn.Module)


def quantize(model: Module) -> Module:
    """Quantize every linear layer and output projection of a model in place; it can then no longer be trained."""
    place = next(model.parameters()).device
    if place.type != "cpu":
        raise UserError(f"int8 weights work on the CPU only, but the model is on {place}", todo='device = "cpu"')
    fold_weights(model)
    # Not subclasses of these: they may use their weight in other ways.
    linears = [
        (module, name, part)
        for module in list(model.modules())
        for name, part in module.named_children()
        if isinstance(part, nn.Linear | Projection) and type(part) in (nn.Linear, Linear, Projection)
    ]
    if not linears:
        raise UserError("int8 weights have no effect on this model: it has no linear layers", todo="leave int8 out")
    for module, name, part in linears:
        setattr(module, name, Int8Linear(part.weight, part.bias))
    return model


class Int8Linear(nn.Module):
    """y = x Wᵀ + b with x and W quantized to int8."""

    def __init__(self, weight: Float[Tensor, "outputs inputs"], bias: Float[Tensor, " outputs"] | None = None) -> None:
        super().__init__()
        integers, scale = quantize_rows(weight.detach().float())
        self.out_features, self.in_features = weight.shape
        # Its tensors are not buffers: nn.Module looks those up slowly, and a step has many matmuls.
        self.matrix = matrix_class(self.in_features)(integers, scale.flatten())
        self.bias = None if bias is None else bias.detach().float().contiguous()

    def forward(self, x: Float[Tensor, "*batch inputs"]) -> Float32[Tensor, "*batch outputs"]:
        """x Wᵀ + b, back in float32."""
        if x.requires_grad or x.dtype != torch.float32:  # the check is cheaper than the calls
            x = x.detach().float()
        return self.matrix.multiply(x, self.bias)
