"""x W + b with the same W at every step of a loop over time: the gradient of W is computed once, after the loop.

y_i = x_i W + b          dW = Σ_i x_iᵀ dy_i = [x_1; x_2; …]ᵀ [dy_1; dy_2; …]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from mallang.kernels.dispatch import is_left_out


def repeated(*layers: nn.Module) -> Callable[[Tensor], tuple[Tensor, ...]]:
    """Linear layers of the same input, used at every step: in training one matmul for all of them, and one gradient.

    Layers other than plain nn.Linear, such as quantized ones, run unchanged.
    """
    plain = all(type(each) is nn.Linear for each in layers)
    if not plain or not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return lambda x: tuple(each(x) for each in layers)
    weights = [each.weight for each in layers if isinstance(each, nn.Linear)]
    biases = [each.bias for each in layers if isinstance(each, nn.Linear)]
    sizes = [len(weight) for weight in weights]
    bias = None
    if any(each is not None for each in biases):
        pairs = zip(biases, weights, strict=True)
        bias = torch.cat([weight.new_zeros(len(weight)) if each is None else each for each, weight in pairs])
    matmul = RepeatedMatmul(torch.cat(weights).t(), bias)
    if len(layers) == 1:  # a split into one part would be copied in backward
        return lambda x: (matmul(x),)
    return lambda x: matmul(x).split_with_sizes(sizes, dim=-1)


class RepeatedMatmul:
    """x W + b with the same W and b at every step; their gradients are computed once, after the last step.

    W is one matrix for all rows, or one per sentence, such as the memory of attention.
    """

    def __init__(self, matrix: Float[Tensor, "*sentences inputs outputs"], bias: Tensor | None = None) -> None:
        self.matrix, self.bias = at_precision(matrix), None if bias is None else at_precision(bias)
        self.plain_bias = None if self.bias is None else self.bias.detach()
        needs = self.matrix.requires_grad or (self.bias is not None and self.bias.requires_grad)
        self.deferred = (
            not is_left_out("deferred-gradients")
            and needs
            and torch.is_grad_enabled()
            and not torch.compiler.is_compiling()
        )
        if self.deferred:
            self.inputs: list[Tensor] = []
            self.gradients: list[Tensor | None] = []
            self.token: Tensor = Once.apply(self.matrix, self.bias, self.inputs, self.gradients)  # type: ignore[no-untyped-call]

    def __call__(self, x: Float[Tensor, "*rows inputs"]) -> Float[Tensor, "*rows outputs"]:
        """x W + b of this step."""
        x = x.to(self.matrix.dtype)
        if not self.deferred:
            return multiply(x, self.matrix, self.bias)
        number = len(self.inputs)
        self.inputs.append(x.detach())
        self.gradients.append(None)
        y: Tensor = Repeat.apply(x, self.token, self.matrix.detach(), self.plain_bias, (number, self.gradients))  # type: ignore[no-untyped-call]
        return y


class Repeat(torch.autograd.Function):
    """The matmul of one step. Backward returns the gradient of the input and stores that of the output for `Once`.

    An empty tensor, the token, connects the two: autograd runs the backward of `Once` after that of all steps.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, token: Tensor, matrix: Tensor, bias: Tensor | None, place: tuple[int, list[Tensor | None]]
    ) -> Tensor:
        """x W + b."""
        ctx.save_for_backward(token, matrix)
        ctx.place = place
        return multiply(x, matrix, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of x."""
        token, matrix = ctx.saved_tensors
        number, gradients = ctx.place
        gradients[number] = gradient
        back = gradient @ matrix.mT if ctx.needs_input_grad[0] else None
        return back, token, None, None, None


class Once(torch.autograd.Function):
    """The gradients of a matrix and a bias that many steps have used, in one matmul."""

    @staticmethod
    def forward(
        ctx: Any, matrix: Tensor, bias: Tensor | None, inputs: list[Tensor], gradients: list[Tensor | None]
    ) -> Tensor:
        """The token, an input of every step."""
        ctx.has_bias, ctx.steps = bias is not None, (inputs, gradients)
        ctx.is_transposed = not matrix.is_contiguous()
        return matrix.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, token: Tensor) -> tuple[Tensor | None, ...]:
        """One matmul over all steps that received a gradient; the result has the strides of the matrix."""
        pairs = [(x, gradient) for x, gradient in zip(*ctx.steps, strict=True) if gradient is not None]
        x, gradient = (torch.cat(side, dim=-2) for side in zip(*pairs, strict=True))
        back = (gradient.mT @ x).mT if ctx.is_transposed else x.mT @ gradient
        return back, gradient.flatten(0, -2).sum(dim=0) if ctx.has_bias else None, None, None


def multiply(x: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
    """x W + b."""
    return x @ matrix if matrix.dim() > 2 else F.linear(x, matrix.t(), bias)


def at_precision(weight: Tensor) -> Tensor:
    """A weight as autocast would convert it: once, instead of at every step."""
    kind = weight.device.type
    return weight.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else weight
