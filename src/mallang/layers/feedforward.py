"""The position-wise feed-forward network of a block (Vaswani et al. 2017, section 3.3): f(x W1 + b1) W2 + b2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

Activation: TypeAlias = Literal["relu", "gelu"]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": torch.relu_, "gelu": F.gelu}
"""They are given what nobody else holds, so ReLU writes where it reads: new memory would take longer than the ReLU."""


class FeedForward(nn.Module):
    """Two linear maps with an activation between them, the same at every position."""

    def __init__(self, dim: int, hidden_dim: int, activation: Activation = "relu") -> None:
        super().__init__()
        self.widen = nn.Linear(dim, hidden_dim)
        self.activation = ACTIVATIONS[activation]
        self.narrow = nn.Linear(hidden_dim, dim)

    def forward(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """The new x."""
        fed: Tensor = self.narrow(self.activation(self.widen(x)))
        return fed
