"""Prepacked (GEMM) weights: during a search, copies of the weights in the order that our float32 CPU matmul reads.

    first use of a weight    torch's linear, except for matmuls of many rows, as in an encoder, which prepack at once
    second use               the weight is prepacked, in about the time of one matmul of a few rows
    further uses             the matmul with the prepacked weight

Prepacked weights last as long as the search: after it weights may change. Concurrent searches share them.
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
"""Rows from which prepacking pays off for a single matmul."""
LEAST = 2**16
"""The minimum size of a weight: for smaller ones torch is faster than the call of our kernel."""
MOST = 2**28
"""The maximum total size that a search prepacks, 1 GiB: larger models should not take up their memory twice."""
CURRENT = threading.local()
"""Holds the prepacked weights of the search that a thread runs."""


def find(
    x: Float[Tensor, "*batch inputs"], weight: Float[Tensor, "outputs inputs"], bias: Tensor | None
) -> FloatMatrix | None:
    """The prepacked weight for a matmul with x, if this thread runs a search and has one."""
    weights: PrepackedWeights | None = getattr(CURRENT, "weights", None)
    return weights.find(weight, x) if weights is not None and can_prepack(x, weight, bias) else None


def can_prepack(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether the kernel supports this matmul, and the weight is a parameter, which will be used again."""
    return (
        not is_off("c-prepacked-matmul")
        and beats_torch()
        and weight.numel() >= LEAST
        and type(weight) is nn.Parameter
        and is_in_floats(weight)
        and not weight.is_inference()  # torch keeps no version counter for these
        and (bias is None or (is_in_floats(bias) and bias.shape == weight.shape[:1]))
        and x.numel() > 0
        and x.shape[-1] == weight.shape[1]
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
        and c_library.may_take(x)
    )


def is_in_floats(tensor: Tensor) -> bool:
    """Whether this is a float32 CPU tensor."""
    return tensor.dtype == torch.float32 and tensor.is_cpu


class Prepacked:
    """A prepacked weight, and the state of its original, to detect changes."""

    def __init__(self, weight: Tensor) -> None:
        self.weight, self.state = weight, state_of(weight)
        self.matrix = FloatMatrix(weight)

    def is_of(self, weight: Tensor) -> bool:
        """Whether this was prepacked from the weight, and the weight is unchanged."""
        return self.weight is weight and self.state == state_of(weight)


def state_of(weight: Tensor) -> tuple[int, int]:
    """The address of a weight and its version counter."""
    return weight.data_ptr(), weight._version


SHARED: WeakValueDictionary[int, Prepacked] = WeakValueDictionary()
"""The prepacked weights of all searches, by the id of the weight: freed with the last search that holds them."""
PACKING = threading.Lock()
"""Held while a search looks up `SHARED` and prepacks."""


class PrepackedWeights:
    """The prepacked weights of one search.

    When one is used depends on this search alone, not on concurrent ones: its results are reproducible bit by bit.
    """

    def __init__(self) -> None:
        self.uses: Counter[int] = Counter()
        self.held: dict[int, Prepacked] = {}
        self.numbers = 0

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Let the linear layers of this thread use these weights."""
        before = getattr(CURRENT, "weights", None)
        CURRENT.weights = self
        try:
            yield
        finally:
            CURRENT.weights = before

    def find(self, weight: Tensor, x: Tensor) -> FloatMatrix | None:
        """The prepacked weight for a matmul with x, unless it is too early to prepack or the limit is reached."""
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
    """The weight, prepacked by the search that needs it first."""
    with PACKING:
        pack = SHARED.get(id(weight))
        if pack is None or not pack.is_of(weight):
            pack = SHARED[id(weight)] = Prepacked(weight)
        return pack
