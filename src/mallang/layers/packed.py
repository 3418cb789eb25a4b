"""Linear maps whose matrices are laid out beforehand for the steps of a search, on a CPU.

A matrix product first copies pieces of both matrices into the order in which it reads them. A search multiplies the
same weights with the same number of rows at every step, so their copy can be made once: MKL calls that packing, and
with few rows it saves up to a third of the time. The copies last as long as the search: weights may change after it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

AT_HAND = threading.local()
"""The packs of the search that a thread is at."""


class Linear(nn.Linear):
    """y = x Wᵀ + b, by the packed matrix if a search has one for as many rows."""

    def forward(self, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        """The product."""
        return linear(x, self.weight, self.bias)


def linear(
    x: Float[Tensor, "*batch inputs"], weight: Float[Tensor, "outputs inputs"], bias: Float[Tensor, " outputs"] | None
) -> Float[Tensor, "*batch outputs"]:
    """x Wᵀ + b."""
    if not torch.compiler.is_compiling():
        packs: Packs | None = getattr(AT_HAND, "packs", None)
        if packs is not None and packs.fit(x, weight):
            return packs.multiply(x, weight, bias)
    return F.linear(x, weight, bias)


@contextmanager
def packed_for(rows: int) -> Iterator[None]:
    """Let products of this thread with so many rows use packed matrices, each packed when it is first met."""
    AT_HAND.packs = Packs(rows) if has_packed_product() else None
    try:
        yield
    finally:
        AT_HAND.packs = None


class Packs:
    """Matrices packed for one number of rows."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.made: dict[int, tuple[Tensor, Tensor]] = {}

    def fit(self, x: Tensor, weight: Tensor) -> bool:
        """Whether a product is one of those."""
        return (
            x.numel() == self.rows * x.shape[-1]
            and x.dtype == weight.dtype == torch.float32
            and not x.is_cuda
            and not torch.is_grad_enabled()
        )

    def multiply(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The product by the packed matrix."""
        made = self.made.get(id(weight))
        if made is None:  # kept with its weight, so that no other gets its number
            packed = torch.ops.mkl._mkl_reorder_linear_weight(weight.detach(), self.rows)
            made = self.made[id(weight)] = weight, packed
        product: Tensor = torch.ops.mkl._mkl_linear(x, made[1], weight, bias, self.rows)
        return product


@cache
def has_packed_product() -> bool:
    """Whether torch has MKL here, and its packed product is the product."""
    x, weight = torch.arange(6.0).view(2, 3), torch.arange(12.0).view(4, 3)
    try:
        with torch.inference_mode():
            return torch.equal(Packs(2).multiply(x, weight, torch.ones(4)), x @ weight.T + 1)
    except (AttributeError, NotImplementedError, RuntimeError):
        return False
