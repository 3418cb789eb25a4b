"""Kernel dispatch: the switch MALLANG_KERNELS, Triton if it is installed, and a self-test before the first use."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch

from mallang.errors import UserError, nearest

__all__ = ["NAMES", "is_left_out", "is_off", "tl", "tried_once", "triton"]

try:
    import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
    import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
except ImportError:  # a CPU-only build of torch
    triton = tl = None


NAMES = (
    "allocator", "argmax", "c-bag", "c-cache-write", "c-cross-entropy", "c-decode-attention", "c-glove",
    "c-int8-matmul", "c-log-softmax", "c-prepacked-matmul", "c-training-attention", "c-training-matmul",
    "c-word-vectors", "cache-write-attention", "cpu-dropout", "cross-entropy", "decode-attention",
    "deferred-gradients", "fp8-feed-forward", "fused-cell", "norm-linear", "sdpa-backend", "top-k",
    "transposed-projection", "varlen-attention", "word-vectors",
)  # fmt: skip
"""Every kernel that can be left out; `python -m benchmarks ablation` measures each of them."""


def is_off(name: str = "") -> bool:
    """Whether the kernel of this name must not run: MALLANG_KERNELS=off stops all of them, =-top-k that one."""
    value = os.environ.get("MALLANG_KERNELS")
    if not value or value == "on":  # first, since hot paths ask
        return False
    if value != "off" and not (value[0] == "-" and value[1:] in NAMES):
        raise UserError(
            f"MALLANG_KERNELS is {value!r}, but must be on, off, or a kernel to leave out, as -top-k",
            todo=nearest(value, [f"-{each}" for each in NAMES]) if value[0] == "-" else "unset it, or set it to off",
        )
    return value in ("off", f"-{name}")


def is_left_out(name: str) -> bool:
    """Whether this one alone is off: for what is no kernel of ours, as a backend of torch or a random generator."""
    return is_off(name) and not is_off()


def tried_once(name: str | None) -> Callable[[Callable[[], bool]], Callable[[], bool]]:
    """Decorate a self-test, which runs once: whether the kernel of this name is enabled and correct on this GPU.

    Triton needs a C compiler, and GPUs differ. Compiled code takes the result as a constant. A test without a name is
    not of a kernel of ours, and no switch disables it.
    """

    def decorate(trial: Callable[[], bool]) -> Callable[[], bool]:
        @cache
        def outcome() -> bool:
            if name is not None and is_off(name):
                return False
            try:
                with torch.autocast("cuda", enabled=False):
                    return trial()
            except (torch.OutOfMemoryError, UserError):
                raise
            except Exception:  # whatever the compiler or the driver raises: the plain version runs instead
                return False

        @wraps(trial)
        def works() -> bool:
            return outcome()

        if not torch.cuda.is_available():  # no one will call it, and torch.compile takes two seconds to import
            return works
        constant: Any = torch.compiler.assume_constant_result(works)  # type: ignore[no-untyped-call, unused-ignore]
        checked: Callable[[], bool] = constant
        return checked

    return decorate
