"""What kernels share: the switch for all of them, and what those in triton need, which comes with torch for GPUs."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch
from torch import Tensor

from mallang.errors import UserError

__all__ = ["are_off", "asked_once", "is_plain_product", "start_early", "tl", "tried_once", "triton"]

try:
    import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
    import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
except ImportError:  # a build of torch for CPUs alone
    triton = tl = None


def is_plain_product(x: Tensor, weight: Tensor) -> bool:
    """Whether nothing but the product of these is asked for, on a GPU: it may then be computed in another way.

    Gradients, and a change of precision on the way, need the product itself.
    """
    return (
        x.is_cuda and x.dtype == weight.dtype and not torch.is_grad_enabled() and not torch.is_autocast_enabled("cuda")
    )


def start_early() -> dict[str, bool]:
    """Options of a kernel that may start before the one before it has ended, on NVIDIA's Hopper, where that was tried.

    To start a kernel takes as long as a small one runs. Such a kernel may read what nobody changes at once, but must
    wait (`gdc_wait`) before it reads anything else and before it writes; only then may it let the next one start
    (`gdc_launch_dependents`). So when a kernel starts, all are done but the one right before it.

    For operators that no compiler looks into: it would believe that a kernel which waits writes to all it is given.
    """
    is_nvidia = torch.cuda.is_available() and torch.version.hip is None
    able = is_nvidia and not is_off("early-launch") and torch.cuda.get_device_capability()[0] == 9
    return {"early": True, "launch_pdl": True} if able else {"early": False}


def are_off() -> bool:
    """Whether MALLANG_KERNELS=off asks for plain torch: no kernel of ours then runs, neither in C nor in triton."""
    value = os.environ.get("MALLANG_KERNELS") or "on"
    if value not in ("on", "off") and not value.startswith("-"):
        raise UserError(f"MALLANG_KERNELS is {value!r}, but must be on or off", todo="unset it, or set it to off")
    return value == "off"


def is_off(name: str) -> bool:
    """Whether this kernel is switched off alone: MALLANG_KERNELS=-top-k."""
    return os.environ.get("MALLANG_KERNELS", "") == f"-{name}"


def tried_once(name: str) -> Callable[[Callable[[], bool]], Callable[[], bool]]:
    """Whether the kernel of this name may be used and does here what it should, by a trial that is made once."""

    def decorate(trial: Callable[[], bool]) -> Callable[[], bool]:
        @wraps(trial)
        def allowed() -> bool:
            return not are_off() and not is_off(name) and trial()

        return asked_once(allowed)

    return decorate


def asked_once(trial: Callable[[], bool]) -> Callable[[], bool]:
    """Whether a GPU can do something, by a trial that is made once: triton needs a C compiler, GPUs differ.

    Compiled code takes the answer as a constant.
    """

    @cache
    def outcome() -> bool:
        try:
            with torch.autocast("cuda", enabled=False):
                return trial()
        except (torch.OutOfMemoryError, UserError):
            raise
        except Exception:  # whatever the compiler or the driver raises: there is another way
            return False

    @wraps(trial)
    def works() -> bool:
        return outcome()

    if not torch.cuda.is_available():  # nothing will ask, and the compiler takes two seconds to import
        return works
    constant: Any = torch.compiler.assume_constant_result(works)  # type: ignore[no-untyped-call, unused-ignore]
    checked: Callable[[], bool] = constant
    return checked
