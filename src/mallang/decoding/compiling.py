"""The step of a search, compiled for a GPU: fewer and larger kernels, which `runner` then captures."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from mallang.decoding.progress import Progress


def compiled(rows: int) -> Any:
    """The step for so many rows; shapes beyond the first few that the compiler remembers run as they are."""
    return compiled_for_one() if rows == 1 else compiled_for_many()


@cache
def compiled_for_many() -> Any:
    """Matrix products are left to the library."""
    return torch.compile(Progress.advance, dynamic=False)


@cache
def compiled_for_one() -> Any:
    """The products of a single row become sums, which melt into what follows them and read the weights once.

    The compiler does so where it may search for the best blocks, and where a product has no bias.
    """
    # Not imported above: the compiler takes two seconds to import, and few searches need it.
    from mallang.decoding.rewriting import ForOneRow

    options: dict[str, Any] = {"coordinate_descent_tuning": True, "pre_grad_custom_pass": ForOneRow()}
    return torch.compile(Progress.advance, dynamic=False, options=options)
