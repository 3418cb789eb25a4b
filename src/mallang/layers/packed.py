"""Linear maps by products of our own on a CPU: their matrices are laid out for many steps of a search, or for training.

A matrix product copies pieces of both matrices into the order in which it reads them. A search multiplies with the same
weights at every step, so their copy can be made once: it is packed, and a kernel of our own multiplies with it
(native.c). Of 160 rows that takes three quarters of the time, of 32 half of it, of a few a third.

    first meeting     the product of torch, but for products of many rows, as of an encoder: those pay at once
    second            the weight is packed, in about the time of one product of a few rows
    further ones      the product by the packed weight

Packs last as long as the search: after it weights may change. Searches that run side by side share them.

In training every product packs what it needs, which takes a few hundredths of its time; it is still a tenth faster.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakValueDictionary

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from mallang.layers import float8, native
from mallang.layers.kernel import is_off

PACK_AT = 2
"""The meeting at which a weight is packed."""
MANY = 512
"""Rows of which a single product pays for packing."""
LEAST = 2**16
"""Numbers that a weight must have: with fewer, torch multiplies sooner than a kernel is called from here."""
MOST = 2**28
"""Numbers that a search packs, 1 GiB of them: larger models are not to take up their memory twice."""
FEW = 64
"""Rows from which on a product in training is ours: of fewer, packing takes too large a part."""
LARGE = 2**23
"""Multiplications that it must have: with fewer, torch is done before Python has called our kernel."""
AT_HAND = threading.local()
"""Has the packs of the search that a thread is at."""


class Linear(nn.Linear):
    """y = x Wᵀ + b, by the packed weight where a search has it."""

    def forward(self, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        """The product."""
        return linear(x, self.weight, self.bias)


def linear(
    x: Float[Tensor, "*batch inputs"], weight: Float[Tensor, "outputs inputs"], bias: Float[Tensor, " outputs"] | None
) -> Float[Tensor, "*batch outputs"]:
    """x Wᵀ + b."""
    if float8.is_wanted(x, weight):
        return float8.linear(x, weight, bias)
    if not torch.compiler.is_compiling():
        packs: Packs | None = getattr(AT_HAND, "packs", None)
        if (
            not is_off("c-prepacked-matmul")
            and packs is not None
            and is_for_packs(x, weight, bias)
            and (matrix := packs.find(weight, x)) is not None
        ):
            return matrix.multiply(x, bias)
        if is_for_training(x, weight, bias):
            product: Tensor = LinearProduct.apply(x, weight, bias)  # type: ignore[no-untyped-call]
            return product
    return F.linear(x, weight, bias)


def is_for_training(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether gradients will be asked for, and the products are large enough for our own."""
    return (
        not is_off("c-training-linear")
        and torch.is_grad_enabled()
        and (x.requires_grad or weight.requires_grad)
        and pays(x, weight)
        and x.shape[-1] == weight.shape[1]
        and fits(bias, weight)
        and not torch.is_autocast_enabled("cpu")
    )


def fits(bias: Tensor | None, weight: Tensor) -> bool:
    """Whether the kernel can add it."""
    return bias is None or (bias.shape == weight.shape[:1] and native.are_plain(bias))


def pays(x: Tensor, weight: Tensor) -> bool:
    """Whether these can be multiplied by our kernel, packing included, sooner than by torch."""
    if is_off("c-training-matmul") or torch.compiler.is_compiling():  # asked first: a compiler is not to compare sizes
        return False
    rows = x.numel() // max(1, x.shape[-1])
    return rows >= FEW and rows * weight.numel() >= LARGE and native.are_plain(x, weight)


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x Wᵀ + b, without a gradient."""
    ours = pays(x, weight) and fits(bias, weight)
    return native.FloatMatrix(weight).multiply(x, bias) if ours else F.linear(x, weight, bias)


def multiply_back(x: Tensor, weight: Tensor) -> Tensor:
    """x W, without a gradient."""
    return native.FloatMatrix(weight.T).multiply(x) if pays(x, weight) else x @ weight


def add_product(total: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """total + leftᵀ · right, the total in full precision whatever the others have; it may be overwritten."""
    if left.dtype != total.dtype:
        return total + left.T @ right
    if not pays(left.T, right.T) or not native.are_plain(total) or not total.is_contiguous():
        return total.addmm_(left.T, right)
    native.FloatMatrix(right.T).add_turned_(total, left)
    return total


class LinearProduct(torch.autograd.Function):
    """x Wᵀ + b and its gradients; those have none of their own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The product."""
        ctx.save_for_backward(x, weight)
        return native.FloatMatrix(weight).multiply(x, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """With G the gradient of the product: G W, Gᵀ X, and the sum of G."""
        x, weight = ctx.saved_tensors
        wanted, rows = ctx.needs_input_grad, gradient.reshape(-1, len(weight))
        return (
            native.FloatMatrix(weight.T).multiply(gradient) if wanted[0] else None,
            native.FloatMatrix(x.reshape(-1, x.shape[-1]).T).multiply_turned(rows) if wanted[1] else None,
            rows.sum(dim=0) if wanted[2] else None,
        )


def is_for_packs(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether the kernel can multiply these, and the weight is one that will be met again: no result of a formula."""
    return (
        weight.numel() >= LEAST
        and type(weight) is nn.Parameter
        and is_in_floats(weight)
        and not weight.is_inference()  # of such torch does not count the changes
        and (bias is None or (is_in_floats(bias) and bias.shape == weight.shape[:1]))
        and x.numel() > 0
        and x.shape[-1] == weight.shape[1]
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
        and native.may_take(x)
    )


def is_in_floats(tensor: Tensor) -> bool:
    """Whether it is of 32-bit floats in the memory of a CPU."""
    return tensor.dtype == torch.float32 and tensor.is_cpu


class Pack:
    """A packed weight, and how to see that it is still the same."""

    def __init__(self, weight: Tensor) -> None:
        self.weight, self.state = weight, state_of(weight)
        self.matrix = native.FloatMatrix(weight)

    def is_of(self, weight: Tensor) -> bool:
        """Whether this is the weight, unchanged."""
        return self.weight is weight and self.state == state_of(weight)


def state_of(weight: Tensor) -> tuple[int, int]:
    """Where it lies, and how often it was changed there."""
    return weight.data_ptr(), weight._version


SHARED: WeakValueDictionary[int, Pack] = WeakValueDictionary()
"""The packs of all searches, by the id of the weight: one goes with the last search that holds it."""
PACKING = threading.Lock()
"""Held while one looks there and packs."""


class Packs:
    """The packed weights of one search.

    When one is used depends on this search alone, not on those beside it: its results can be had again, bit by bit.
    """

    def __init__(self) -> None:
        self.meetings: Counter[int] = Counter()
        self.held: dict[int, Pack] = {}
        self.numbers = 0

    @contextmanager
    def at_hand(self) -> Iterator[None]:
        """Let the products of this thread use them."""
        before = getattr(AT_HAND, "packs", None)
        AT_HAND.packs = self
        try:
            yield
        finally:
            AT_HAND.packs = before

    def find(self, weight: Tensor, x: Tensor) -> native.FloatMatrix | None:
        """The packed weight to multiply x with, if it is time for it and there is room."""
        pack = self.held.get(id(weight))
        if pack is None or not pack.is_of(weight):
            self.meetings[id(weight)] += 1
            pays = self.meetings[id(weight)] >= PACK_AT or x.numel() >= MANY * x.shape[-1]
            if not pays or self.numbers + weight.numel() > MOST:
                return None
            pack = self.held[id(weight)] = packed(weight)
            self.numbers += weight.numel()
        return pack.matrix


def packed(weight: Tensor) -> Pack:
    """The weight, packed by whichever search comes first."""
    with PACKING:
        pack = SHARED.get(id(weight))
        if pack is None or not pack.is_of(weight):
            pack = SHARED[id(weight)] = Pack(weight)
        return pack
