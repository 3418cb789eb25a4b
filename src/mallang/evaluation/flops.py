"""Counts FLOPs while a computation runs, instead of estimating them from the number of parameters.

    with counting() as count:
        task.loss(model, batch, None).sums["loss"].backward()
    count.flops

A multiplication and an addition are two floating-point operations (FLOPs). Matmuls and convolutions are counted, those
of the backward pass included. Pointwise operations (activations, norms, the optimizer) are not counted: they are a
small share, and it is usual to leave them out. A model that is fitted without gradients may have no matmuls at all: for
a fit every computed or added number counts. Attention is counted over all pairs of positions, with or without a mask.

Fused kernels hide their matmuls, so LSTMs and attention run unfused while they are counted. `flops_per_token` counts on
the CPU, so that the number does not depend on the device.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from mallang.data.batch import Batch


class Count(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that adds up the FLOPs of every operation.

    It uses the formulas of torch's FlopCounterMode without its record of modules, which makes each operation many times
    slower.
    """

    def __init__(self, *, everything: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.everything = everything
        """Whether pointwise operations and sums count too."""
        self.flops = 0
        """Floating-point operations so far."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run and count an operation; a composite one, such as a linear layer without gradients, is decomposed."""
        given, kind = kwargs or {}, func.overloadpacket
        formula: Any = UNKNOWN.get(kind) or flop_registry.get(kind)
        if formula is None and is_composed(func):
            with self:
                return func.decompose(*args, **given)
        out = func(*args, **given)
        if formula is not None:
            self.flops += int(formula(*args, **given, out_val=out))
        elif self.everything:
            self.flops += numbers_of(func, args, out)
        return out


@cache
def is_composed(func: Any) -> bool:
    """Whether an operation is a composite of others."""
    return bool(func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd))


def numbers_of(func: Any, args: Sequence[Any], out: Any) -> int:
    """The numbers that a pointwise operation computes, or a sum adds up; lookups and comparisons count as 0."""
    if not isinstance(out, Tensor) or not out.is_floating_point():
        return 0
    if func.overloadpacket in SUMS:
        return max(arg.numel() for arg in args if isinstance(arg, Tensor) and arg.is_floating_point())
    return out.numel() if torch.Tag.pointwise in func.tags and func.overloadpacket is not aten.where else 0


@contextmanager
def counting(*, everything: bool = False) -> Iterator[Count]:
    """Count the matmuls and convolutions of the block; with `everything` also pointwise operations and sums."""
    with unfused(), Count(everything=everything) as count:
        yield count


@contextmanager
def unfused() -> Iterator[None]:
    """Run attention and recurrent layers unfused, as separate matmuls, inside the block."""
    with warnings.catch_warnings():
        # Some builds of torch warn about a setting of another device whenever this one is changed.
        warnings.filterwarnings("ignore", message="TF32 acceleration on top of oneDNN")
        backends = torch.backends
        with sdpa_kernel(SDPBackend.MATH), backends.mkldnn.flags(enabled=False), backends.cudnn.flags(enabled=False):
            yield


def flops_per_token(task: Any, model: nn.Module, batches: Iterable[Batch]) -> float | None:
    """Training FLOPs per token of the loss, forward and backward, averaged over some batches.

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


class Read:
    """Batches that a fit may read several times, and the number of tokens read."""

    def __init__(self, task: Any, batches: Iterable[Batch]) -> None:
        self.task, self.batches, self.tokens = task, list(batches), 0

    def __iter__(self) -> Iterator[Batch]:
        for batch in self.batches:
            self.tokens += max(self.task.counts(batch).values())
            yield batch


def flops_of_fit(task: Any, model: Any, batches: Iterable[Batch]) -> float | None:
    """FLOPs per token read, of a model that learns by its own `fit`, which may read each token several times.

    A fit has few matmuls, so every computed or added number counts. None where it reads nothing.
    """
    stream = Read(task, batches)
    with torch.no_grad(), counting(everything=True) as count:
        for _ in model.to("cpu").fit(stream):
            pass
    return count.flops / stream.tokens if stream.tokens else None


def matmul_flops(left: Tensor, right: Tensor, **_: Any) -> int:
    """FLOPs of a matmul of two matrices, two stacks of them, a matrix and a vector, or two vectors."""
    return 2 * left.numel() * (1 if right.dim() < 2 else right.shape[-1])


def addmm_flops(_: Tensor, left: Tensor, right: Tensor, **__: Any) -> int:
    """FLOPs of a matmul whose result is added to a tensor."""
    return matmul_flops(left, right)


aten = torch.ops.aten
UNKNOWN = {
    aten.mv: matmul_flops,
    aten.dot: matmul_flops,
    aten.addmv: addmm_flops,
    aten.addmv_: addmm_flops,
    aten.addmm_: addmm_flops,
    aten.baddbmm_: addmm_flops,
    aten.addbmm: addmm_flops,
    aten.addbmm_: addmm_flops,
}
"""Matmuls that torch's registry has no formula for."""
SUMS = (aten.sum, aten.cumsum, aten.index_add, aten.index_add_, aten.scatter_add, aten.scatter_add_, aten.bincount)
"""Operations that add up all their inputs."""
