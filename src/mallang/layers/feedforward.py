"""The position-wise feed-forward network of a block (Vaswani et al. 2017, section 3.3): f(x W1 + b1) W2 + b2."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mallang.layers import float8_feedforward
from mallang.layers.kernel import asked_once, is_off, is_plain_product
from mallang.layers.packed import Linear


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU as 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))): the approximation that GPT was trained with.

    A compiler makes much of a tanh; 0.5 (1 + tanh(z)) is the sigmoid of 2 z, which is little more than an exponential.
    """
    if torch.compiler.is_compiling() and x.is_cuda and not is_off("gelu-sigmoid"):
        return gelu_by_sigmoid(x)
    return F.gelu(x, approximate="tanh")


def gelu_by_sigmoid(x: Tensor) -> Tensor:
    """The same in other words. A GPU takes two thirds of the time for it."""
    twice = 2 * math.sqrt(2 / math.pi)
    return x * torch.sigmoid(x * (twice + twice * 0.044715 * x * x))


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
"""They are given what nobody else holds, so ReLU writes where it reads: new memory would take longer than the ReLU."""


class FeedForward(nn.Module):
    """Two linear maps with an activation between them, the same at every position."""

    def __init__(self, dim: int, hidden_dim: int, activation: Activation = "relu", bias: bool = True) -> None:
        super().__init__()
        self.widen = Linear(dim, hidden_dim, bias=bias)
        self.kind = activation
        self.activation = ACTIVATIONS[activation]
        self.narrow = Linear(hidden_dim, dim, bias=bias)

    def forward(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """The new x."""
        fed: Tensor
        if self.is_in_8_bits(x):
            weights = self.widen.weight, self.widen.bias, self.narrow.weight, self.narrow.bias
            fed = float8_feedforward.FedForward.apply(x.flatten(0, -2), *weights)  # type: ignore[no-untyped-call]
            return fed.view_as(x)
        if self.kind in AT_ONCE and activates_at_once(x, self.widen):
            inner = widen_activated(x.flatten(0, -2), self.widen.weight, self.widen.bias, self.kind == "gelu-tanh")
            inner = inner.view(*x.shape[:-1], -1)
        else:
            inner = self.activation(self.widen(x))
        fed = self.narrow(inner)
        return fed

    def is_in_8_bits(self, x: Tensor) -> bool:
        """Whether products are to be, and there are kernels for all of it."""
        if self.kind != "gelu-tanh" or not isinstance(self.widen, nn.Linear):
            return False
        return float8_feedforward.is_wanted(x, self.widen.weight, self.narrow.weight)


AT_ONCE = ("relu", "gelu-tanh")
"""Activations that the products of a GPU apply to what they are about to write."""


def activates_at_once(x: Tensor, widen: nn.Module) -> bool:
    """Whether a GPU can do both in one product; of a single row a compiler makes something better."""
    return (
        isinstance(widen, nn.Linear)
        and widen.bias is not None
        and x.numel() > x.shape[-1]
        and is_plain_product(x, widen.weight)
        and not is_off("activation-epilogue")
        and means_the_same()
    )


@asked_once
def means_the_same() -> bool:
    """Whether GELU is the approximation by tanh to the products of this GPU, too."""
    x = torch.arange(-32, 32, dtype=torch.float32, device="cuda").view(8, 8) / 8
    same = torch.eye(8, dtype=torch.float32, device="cuda")
    return torch.allclose(widen_activated(x, same, x.new_zeros(8), True), gelu_tanh(x), atol=1e-4)


@torch.library.custom_op(
    "mallang::widen_activated", mutates_args=(), schema="(Tensor x, Tensor weight, Tensor bias, bool gelu) -> Tensor"
)
def widen_activated(
    x: Float[Tensor, "rows dim"], weight: Float[Tensor, "hidden dim"], bias: Float[Tensor, " hidden"], gelu: bool
) -> Float[Tensor, "rows hidden"]:
    """f(x Wᵀ + b) in one kernel. A compiler is not to look inside, for it would make two of it."""
    return torch._addmm_activation(bias, x, weight.T, use_gelu=gelu)


@widen_activated.register_fake
def allocate_hidden(x: Tensor, weight: Tensor, bias: Tensor, gelu: bool) -> Tensor:
    """Memory of that shape."""
    return x.new_empty(len(x), len(weight))
