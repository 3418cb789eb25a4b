"""A feed-forward network, f(x W₁ + b₁) W₂ + b₂: two linear layers, or one pass in FP8 where the activation is GELU."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mallang.kernels import fp8_feed_forward


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU as 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))): the approximation that GPT was trained with."""
    return F.gelu(x, approximate="tanh")


def feed_forward(
    x: Float[Tensor, "*batch dim"], up: nn.Module, down: nn.Module, activation: Callable[[Tensor], Tensor]
) -> Float[Tensor, "*batch dim"]:
    """down(activation(up(x)))."""
    if activation is gelu_tanh and (fused := fp8_feed_forward.feed_forward(x, up, down)) is not None:
        return fused
    y: Tensor = down(activation(up(x)))
    return y
