"""The decode step, compiled for a GPU: fewer and larger kernels, which `runner` then captures as a CUDA graph."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from mallang.decoding.progress import Progress


def compiled(rows: int) -> Any:
    """The compiled step for `rows` rows; after the first few shapes, the compiler runs new ones eagerly."""
    return compiled_for_one() if rows == 1 else compiled_for_many()


@cache
def compiled_for_many() -> Any:
    """The compiled step for several rows: matmuls stay calls of cuBLAS."""
    return torch.compile(Progress.advance, dynamic=False)


@cache
def compiled_for_one() -> Any:
    """The compiled step for one row: each matmul becomes a reduction that is fused with the operations after it.

    The compiler does this where coordinate descent tuning is on and where a matmul has no bias.
    """
    # Not imported above: the compiler takes two seconds to import, and few searches need it.
    from mallang.decoding.rewriting import ForOneRow

    options: dict[str, Any] = {"coordinate_descent_tuning": True, "pre_grad_custom_pass": ForOneRow()}
    return torch.compile(Progress.advance, dynamic=False, options=options)
