"""The position-wise feed-forward network of a block (Vaswani et al. 2017, section 3.3): f(x W1 + b1) W2 + b2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mallang.kernels.feed_forward import feed_forward, gelu_tanh
from mallang.layers.linear import Linear


def relu_squared(x: Tensor) -> Tensor:
    """max(x, 0)² (So et al. 2021, Primer, arXiv:2109.08668)."""
    return torch.relu_(x).square()


Activation: TypeAlias = Literal["relu", "gelu", "gelu-tanh", "relu-squared"]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu_,
    "gelu": F.gelu,  # Hendrycks and Gimpel 2016, arXiv:1606.08415
    "gelu-tanh": gelu_tanh,
    "relu-squared": relu_squared,
}
"""ReLU works in place, since no one else holds its input: allocating new memory would take longer than the ReLU."""


class FeedForward(nn.Module):
    """Two linear layers with an activation between them, applied to every position."""

    def __init__(self, dim: int, hidden_dim: int, activation: Activation = "relu", bias: bool = True) -> None:
        super().__init__()
        self.up_proj = Linear(dim, hidden_dim, bias=bias)
        self.activation = ACTIVATIONS[activation]
        self.down_proj = Linear(hidden_dim, dim, bias=bias)

    def forward(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """The new x."""
        return feed_forward(x, self.up_proj, self.down_proj, self.activation)
