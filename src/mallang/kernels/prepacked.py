"""Prepacked (GEMM) weights: copies of a search's weights in the order in which our float32 matmul reads them (CPU).

    first use of a weight    torch's linear, but for matmuls of many rows, as of an encoder: those pay at once
    second                   the weight is prepacked, in about the time of one matmul of a few rows
    further ones             the matmul with the prepacked weight

Prepacked weights last as long as the search: after it weights may change. Searches that run side by side share them.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mallang.kernels import c_library
from mallang.kernels.c_matmul import FloatMatrix, beats_torch
from mallang.kernels.dispatch import is_off

PREPACK_AT = 2
"""The use at which a weight is prepacked."""
MANY = 512
"""Rows of which a single matmul pays for prepacking."""
LEAST = 2**16
"""Numbers that a weight must have: with fewer, torch multiplies sooner than a kernel is called from here."""
MOST = 2**28
"""Numbers that a search prepacks, 1 GiB of them: larger models are not to take up their memory twice."""
CURRENT = threading.local()
"""Has the prepacked weights of the search that a thread runs."""


def find(
    x: Float[Tensor, "*batch inputs"], weight: Float[Tensor, "outputs inputs"], bias: Tensor | None
) -> FloatMatrix | None:
    """The prepacked weight to multiply x with, if this thread runs a search and has one for it."""
    weights: PrepackedWeights | None = getattr(CURRENT, "weights", None)
    return weights.find(weight, x) if weights is not None and can_prepack(x, weight, bias) else None


def can_prepack(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether the kernel can multiply these, and the weight is a parameter, which will be used again."""
    return (
        not is_off("c-prepacked-matmul")
        and beats_torch()
        and weight.numel() >= LEAST
        and type(weight) is nn.Parameter
        and is_in_floats(weight)
        and not weight.is_inference()  # of such torch does not count the changes
        and (bias is None or (is_in_floats(bias) and bias.shape == weight.shape[:1]))
        and x.numel() > 0
        and x.shape[-1] == weight.shape[1]
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
        and c_library.may_take(x)
    )


def is_in_floats(tensor: Tensor) -> bool:
    """Whether it is of 32-bit floats in the memory of a CPU."""
    return tensor.dtype == torch.float32 and tensor.is_cpu


class Prepacked:
    """A prepacked weight, and how to see that it is still the same."""

    def __init__(self, weight: Tensor) -> None:
        self.weight, self.state = weight, state_of(weight)
        self.matrix = FloatMatrix(weight)

    def is_of(self, weight: Tensor) -> bool:
        """Whether this is the weight, unchanged."""
        return self.weight is weight and self.state == state_of(weight)


def state_of(weight: Tensor) -> tuple[int, int]:
    """Where it lies, and how often it was changed there."""
    return weight.data_ptr(), weight._version


SHARED: WeakValueDictionary[int, Prepacked] = WeakValueDictionary()
"""The prepacked weights of all searches, by the id of the weight: one goes with the last search that holds it."""
PACKING = threading.Lock()
"""Held while a search looks there and prepacks."""


class PrepackedWeights:
    """The prepacked weights of one search.

    When one is used depends on this search alone, not on those beside it: its results can be had again, bit by bit.
    """

    def __init__(self) -> None:
        self.uses: Counter[int] = Counter()
        self.held: dict[int, Prepacked] = {}
        self.numbers = 0

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Let the linear layers of this thread use them."""
        before = getattr(CURRENT, "weights", None)
        CURRENT.weights = self
        try:
            yield
        finally:
            CURRENT.weights = before

    def find(self, weight: Tensor, x: Tensor) -> FloatMatrix | None:
        """The prepacked weight to multiply x with, if it is time for it and there is room."""
        pack = self.held.get(id(weight))
        if pack is None or not pack.is_of(weight):
            self.uses[id(weight)] += 1
            pays = self.uses[id(weight)] >= PREPACK_AT or x.numel() >= MANY * x.shape[-1]
            if not pays or self.numbers + weight.numel() > MOST:
                return None
            pack = self.held[id(weight)] = prepack(weight)
            self.numbers += weight.numel()
        return pack.matrix


def prepack(weight: Tensor) -> Prepacked:
    """The weight, prepacked by whichever search comes first."""
    with PACKING:
        pack = SHARED.get(id(weight))
        if pack is None or not pack.is_of(weight):
            pack = SHARED[id(weight)] = Prepacked(weight)
        return pack
