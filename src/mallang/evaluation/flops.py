"""How much arithmetic a computation takes, counted while it runs, not guessed from the number of parameters.

    with counting() as count:
        task.loss(model, batch, None).sums["loss"].backward()
    count.flops

A multiplication and an addition are two floating-point operations (FLOPs). Matrix products and convolutions are
counted, those of the backward pass too; what is done to each number by itself (activations, norms, the optimizer) is
not: it is a small share of the arithmetic, and everyone leaves it out. A model that is fitted without gradients may
have no products at all: of a fit every number counts that is computed or added. Attention is counted over the whole
square of positions, with or without a mask.

Fused kernels do their products out of sight: those of LSTMs and of attention are taken apart while it is counted. So
that the number does not depend on the device, `flops_per_token` counts on the CPU.
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
    """Sees every operation and adds up the products.

    It does what torch's FlopCounterMode does, by the same formulas, without a record of modules, which made each
    operation take many times as long.
    """

    def __init__(self, *, everything: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.everything = everything
        """Whether what is done to each number by itself counts too."""
        self.flops = 0
        """Floating-point operations so far."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation; one that is made of others, such as a linear layer outside of training, is taken apart."""
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
    """Whether an operation is made of others."""
    return bool(func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd))


def numbers_of(func: Any, args: Sequence[Any], out: Any) -> int:
    """The numbers that an operation computes one by one, or adds up; to look up and to compare is no arithmetic."""
    if not isinstance(out, Tensor) or not out.is_floating_point():
        return 0
    if func.overloadpacket in SUMS:
        return max(arg.numel() for arg in args if isinstance(arg, Tensor) and arg.is_floating_point())
    return out.numel() if torch.Tag.pointwise in func.tags and func.overloadpacket is not aten.where else 0


@contextmanager
def counting(*, everything: bool = False) -> Iterator[Count]:
    """Count the products of all that runs in the block; with `everything` what is done to single numbers too."""
    with unfused(), Count(everything=everything) as count:
        yield count


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


class Read:
    """Batches that are read as often as a fit likes, and how many tokens that were."""

    def __init__(self, task: Any, batches: Iterable[Batch]) -> None:
        self.task, self.batches, self.tokens = task, list(batches), 0

    def __iter__(self) -> Iterator[Batch]:
        for batch in self.batches:
            self.tokens += max(self.task.counts(batch).values())
            yield batch


def flops_of_fit(task: Any, model: Any, batches: Iterable[Batch]) -> float | None:
    """What a model that learns by its own `fit` takes for each token that it reads, however often it reads them.

    There are few products in it, so that every number counts which is computed or added. None where it reads nothing.
    """
    stream = Read(task, batches)
    with torch.no_grad(), counting(everything=True) as count:
        for _ in model.to("cpu").fit(stream):
            pass
    return count.flops / stream.tokens if stream.tokens else None


def product(left: Tensor, right: Tensor, **_: Any) -> int:
    """Two matrices, two stacks of them, a matrix and a vector, or two vectors."""
    return 2 * left.numel() * (1 if right.dim() < 2 else right.shape[-1])


def added_product(_: Tensor, left: Tensor, right: Tensor, **__: Any) -> int:
    """A product that is added to something."""
    return product(left, right)


aten = torch.ops.aten
UNKNOWN = {
    aten.mv: product,
    aten.dot: product,
    aten.addmv: added_product,
    aten.addmv_: added_product,
    aten.addmm_: added_product,
    aten.baddbmm_: added_product,
    aten.addbmm: added_product,
    aten.addbmm_: added_product,
}
"""Products that torch does not count."""
SUMS = (aten.sum, aten.cumsum, aten.index_add, aten.index_add_, aten.scatter_add, aten.scatter_add_, aten.bincount)
"""What adds up all that it is given."""
