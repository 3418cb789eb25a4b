"""What a search on a CPU does with log-probabilities, in kernels of our own: see native.c, and native.py for when."""

from __future__ import annotations

import torch
from jaxtyping import Float, Float32, Float64, Int
from torch import Tensor

from mallang.layers import native

MOST = 64
"""Cells that are listed; each new one is moved past lower ones one by one."""


def finds_best(totals: Float[Tensor, "sentences width"], scores: Float[Tensor, "rows places"], count: int) -> bool:
    """Whether `best_sums` can be asked for the best `count` of these."""
    return (
        native.may_take(scores)
        and totals.dtype == torch.float64
        and totals.is_cpu
        and scores.stride(1) == 1
        and count <= min(MOST, totals.shape[1] * scores.shape[1])
    )


def best_sums(
    totals: Float64[Tensor, "sentences width"], scores: Float32[Tensor, "rows places"], count: int
) -> tuple[Float64[Tensor, "sentences count"], Int[Tensor, "sentences count"]]:
    """The highest of totals[sentence, hypothesis] + scores[hypothesis, place], and their places in the whole table.

    Among equals the earlier one wins; what is not a number counts as −∞.
    """
    kernels, (sentences, width), places = native.library(), totals.shape, scores.shape[1]
    assert kernels is not None
    totals = totals.contiguous()
    values = totals.new_empty(sentences, count)
    cells = torch.empty(sentences, count, dtype=torch.long)
    kernels.best_sums(
        totals.data_ptr(), scores.data_ptr(), sentences, width, places, scores.stride(0), count,
        values.data_ptr(), cells.data_ptr(), native.threads(scores.numel()),
    )  # fmt: skip
    return values, cells
