"""How much arithmetic a computation takes, counted while it runs, not guessed from the number of parameters.

    with counting() as count:
        task.loss(model, batch, None).sums["loss"].backward()
    count.flops

A multiplication and an addition are two floating-point operations (FLOPs). Matrix products and convolutions are
counted, those of the backward pass too; what is done to each number by itself (activations, norms, the optimiser) is
not: it is a small share of the arithmetic, and everyone leaves it out. Attention is counted over the whole square of
positions, with or without a mask.

Fused kernels do their products out of sight: those of LSTMs and of attention are taken apart while it is counted. So
that the number does not depend on the device, `flops_per_token` counts on the CPU.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from mallang.data.batch import Batch


class Count:
    """What has been counted so far."""

    def __init__(self, counter: FlopCounterMode) -> None:
        self.counter = counter

    @property
    def flops(self) -> int:
        """Floating-point operations."""
        return int(self.counter.get_total_flops())


@contextmanager
def counting() -> Iterator[Count]:
    """Count the products of all that runs in the block."""
    counter = FlopCounterMode(display=False, custom_mapping=UNKNOWN)
    with unfused(), counter:
        yield Count(counter)


@contextmanager
def unfused() -> Iterator[None]:
    """Let attention and recurrent layers run as plain products while the block runs."""
    with warnings.catch_warnings():
        # Some builds of torch warn of a setting for other devices whenever this one is changed.
        warnings.filterwarnings("ignore", message="TF32 acceleration on top of oneDNN")
        backends = torch.backends
        with sdpa_kernel(SDPBackend.MATH), backends.mkldnn.flags(enabled=False), backends.cudnn.flags(enabled=False):
            yield


def flops_per_token(task: Any, model: nn.Module, batches: Iterable[Batch]) -> float | None:
    """What training takes for each token that the loss counts, forward and backward, over some of its batches.

    None where nothing is trained by gradients.
    """
    model = model.to("cpu").train()
    total, tokens = 0, 0
    for batch in batches:
        with counting() as count:
            sums = task.loss(model, batch, None).sums
            loss = torch.stack([part.float() for part in sums.values()]).sum()
            if not loss.requires_grad:
                return None
            loss.backward()  # type: ignore[no-untyped-call]
        model.zero_grad(set_to_none=True)
        total += count.flops
        tokens += max(task.counts(batch).values())
    return total / tokens if tokens else None


def _product(left: torch.Size, right: torch.Size | None = None, *_: Any, **__: Any) -> int:
    """Two matrices, two stacks of them, a matrix and a vector, or two vectors."""
    columns = 1 if right is None or len(right) < 2 else right[-1]
    return 2 * math.prod(left) * columns


def _added_product(_: torch.Size, left: torch.Size, right: torch.Size, *__: Any, **___: Any) -> int:
    return _product(left, right)


aten = torch.ops.aten
UNKNOWN = {
    aten.mv: _product,
    aten.dot: _product,
    aten.addmv: _added_product,
    aten.addmv_: _added_product,
    aten.addmm_: _added_product,
    aten.baddbmm_: _added_product,
    aten.addbmm: _added_product,
    aten.addbmm_: _added_product,
}
"""Products that torch does not count."""
