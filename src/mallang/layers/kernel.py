"""What kernels share that are written in triton, which comes with the builds of torch for GPUs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch

__all__ = ["tl", "tried_once", "triton"]

try:
    import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
    import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
except ImportError:  # a build of torch for CPUs alone
    triton = tl = None


def tried_once(trial: Callable[[], bool]) -> Callable[[], bool]:
    """Whether a kernel does here what it should, by a trial that is made once: triton needs a C compiler, GPUs differ.

    Compiled code takes the answer as a constant.
    """

    @cache
    def outcome() -> bool:
        try:
            with torch.autocast("cuda", enabled=False):
                return trial()
        except torch.OutOfMemoryError:
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
