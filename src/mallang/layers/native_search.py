"""What a search on a CPU does with log-probabilities, in kernels of our own: see native.c, and native.py for when."""

from __future__ import annotations

import ctypes

import torch
from jaxtyping import Float, Float32, Float64, Int
from torch import Tensor

from mallang.layers import native
from mallang.layers.kernel import is_off

MOST = 64
"""Cells that are listed; each new one is moved past lower ones one by one."""


def finds_best(totals: Float[Tensor, "sentences width"], scores: Float[Tensor, "rows places"], count: int) -> bool:
    """Whether `best_sums` can be asked for the best `count` of these."""
    return (
        not is_off("c-top-k")
        and native.may_take(scores)
        and totals.dtype == torch.float64
        and totals.is_cpu
        and scores.stride(1) == 1
        and 0 < count <= min(MOST, totals.shape[1] * scores.shape[1])
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
    cells = totals.new_empty(sentences, count, dtype=torch.long)
    kernels.best_sums(
        totals.data_ptr(), scores.data_ptr(), sentences, width, places, scores.stride(0), count,
        values.data_ptr(), cells.data_ptr(), native.threads(scores.numel()),
    )  # fmt: skip
    return values, cells


class Paths(ctypes.Structure):
    """What `follow` reads and writes: as in native.c."""

    _fields_ = [
        *((name, ctypes.c_long) for name in ("sentences", "listed", "open", "limit")),
        *((name, ctypes.c_long) for name in ("candidates", "places", "row", "said", "nothing")),
        *((name, ctypes.c_void_p) for name in ("chosen", "cells", "labels", "scores", "token_scores")),
        *((name, ctypes.c_void_p) for name in ("new_labels", "tokens", "rows", "new_token_scores")),
    ]


def follows(scores: Float[Tensor, "rows places"], token_scores: Tensor, *others: Tensor) -> bool:
    """Whether `follow` can be given these: both scores, and all else in any order."""
    may = not is_off("c-beam-update") and native.may_take(scores, token_scores) and scores.stride(1) == 1
    return may and all(each.is_contiguous() for each in (token_scores, *others))


def follow(
    chosen: Int[Tensor, "sentences paths"],
    cells: Int[Tensor, "sentences candidates"],
    scores: Float32[Tensor, "rows places"],
    labels: Int[Tensor, "sentences paths limit"],
    token_scores: Float32[Tensor, "sentences paths limit"],
    said: int,
    nothing: int,
) -> tuple[
    Int[Tensor, "sentences paths limit"],
    Float32[Tensor, "sentences paths limit"],
    Int[Tensor, " rows"],
    Int[Tensor, " rows"],
]:
    """The paths of the chosen, one token longer; what the open ones say now, and which row each of them goes on from.

    The chosen are counted through the list, whose paths say `nothing` more, and then through the candidates.
    """
    kernels, (sentences, paths, limit), (rows, places) = native.library(), labels.shape, scores.shape
    assert kernels is not None
    new_labels, new_scores = torch.empty_like(labels), torch.empty_like(token_scores)
    tokens, origins = cells.new_empty(rows), cells.new_empty(rows)
    width = rows // sentences
    given = Paths(
        sentences=sentences, listed=paths - width, open=width, limit=limit, candidates=cells.shape[1], places=places,
        row=scores.stride(0), said=said, nothing=nothing, chosen=chosen.data_ptr(), cells=cells.data_ptr(),
        labels=labels.data_ptr(), scores=scores.data_ptr(), token_scores=token_scores.data_ptr(),
        new_labels=new_labels.data_ptr(), tokens=tokens.data_ptr(), rows=origins.data_ptr(),
        new_token_scores=new_scores.data_ptr(),
    )  # fmt: skip
    kernels.follow(ctypes.byref(given))
    return new_labels, new_scores, tokens, origins
