"""A linear layer, y = x Wᵀ + b, by the fastest kernel available (kernels/linear.py)."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from mallang.kernels.linear import linear


class Linear(nn.Linear):
    """y = x Wᵀ + b."""

    def forward(self, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        """The new x."""
        return linear(x, self.weight, self.bias)
