"""Stable top-k: the best k of every row, where among equals the one that comes first wins.

`torch.topk` does not promise which of several equals it takes. Long rows are looked at in blocks: the best k lie in the
k blocks whose maxima are best. On a GPU Triton kernels find the maxima and the best of a short row (stable_top_k.py).
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from mallang.kernels.stable_top_k import block_maxima, is_made_for, stable_top_k, works

BLOCK = 64
"""Columns of a long row whose maximum is looked at first."""
SHORT = 64
"""Rows of at most so many columns are sorted whole."""


def top_k(
    scores: Float[Tensor, "rows places"], count: int
) -> tuple[Float[Tensor, "rows count"], Int[Tensor, "rows count"]]:
    """The highest scores of each row and their places, best first; among equals the lower place wins."""
    if scores.shape[1] < 4 * BLOCK * count:
        return _top_k_of_few(scores, count)
    return _top_k_of_many(scores.new_zeros(len(scores), 1), scores, count)


def top_k_sums(
    totals: Float64[Tensor, "sentences width"], scores: Float[Tensor, "rows places"], count: int
) -> tuple[Float64[Tensor, "sentences count"], Int[Tensor, "sentences count"]]:
    """The highest of totals[sentence, hypothesis] + scores[hypothesis, place], and their places in the whole table.

    The table of a sentence is width × places; among equals the earlier hypothesis wins, then the lower place. NaN
    counts as −∞: a row in which nothing may follow, as in a table of counts.
    """
    sentences, width = totals.shape
    places = scores.shape[1]
    if width * places < 4 * BLOCK * count:
        table = totals[:, :, None] + _numbers(scores).view(sentences, width, places)
        return _top_k_of_few(table.flatten(1), count)
    return _top_k_of_many(totals, scores, count)


def _top_k_of_many(
    totals: Float[Tensor, "sentences width"], scores: Float[Tensor, "rows places"], count: int
) -> tuple[Float[Tensor, "sentences count"], Int[Tensor, "sentences count"]]:
    """The best `count` lie in the `count` blocks whose maxima are best, so only those blocks are looked into.

    For whatever lies in another block has `count` maxima before it, each higher, or equal and in an earlier block.
    """
    (sentences, width), places = totals.shape, scores.shape[1]
    maxima = _maxima(scores)
    blocks = maxima.shape[1]
    sums = totals[:, :, None] + _numbers(maxima).view(sentences, width, blocks)
    chosen = _top_k_of_few(sums.flatten(1), count)[1].sort(dim=1).values  # in order, so that places are, too
    row = chosen // blocks
    place = (chosen % blocks * BLOCK)[:, :, None] + torch.arange(BLOCK, device=scores.device)
    cells = row[:, :, None] * places + place.clamp(max=places - 1)
    inside = _numbers(scores.view(sentences, -1).gather(1, cells.flatten(1)))
    inside = inside.view_as(cells).masked_fill(place >= places, -torch.inf) + totals.gather(1, row)[:, :, None]
    values, found = _top_k_of_few(inside.flatten(1), count)
    return values, cells.flatten(1).gather(1, found)


def _maxima(scores: Float[Tensor, "rows places"]) -> Float[Tensor, "rows blocks"]:
    """The highest of every block of a row."""
    if scores.is_cuda and scores.stride(1) == 1 and works():
        return block_maxima(scores, BLOCK)
    whole = scores.shape[1] - scores.shape[1] % BLOCK
    maxima = scores[:, :whole].view(len(scores), -1, BLOCK).amax(dim=2)
    if whole < scores.shape[1]:
        maxima = torch.cat([maxima, scores[:, whole:].amax(dim=1, keepdim=True)], dim=1)
    return maxima


def _top_k_of_few(
    scores: Float[Tensor, "rows places"], count: int
) -> tuple[Float[Tensor, "rows count"], Int[Tensor, "rows count"]]:
    """`torch.topk` does not promise which of several equals it takes; a stable sort does, and so does the maximum.

    On a CPU sorting long rows is slow, so there it is done only where any of the best are equal; to know that, a GPU
    would have to wait for the host, but it has a kernel for the purpose.
    """
    if count == 1:
        return scores.max(dim=1, keepdim=True)
    if is_made_for(scores, count):
        return stable_top_k(scores, count)
    if not scores.is_cuda and scores.shape[1] > SHORT:
        values, places = scores.topk(min(count + 1, scores.shape[1]), dim=1)
        if not bool((values[:, :-1] == values[:, 1:]).any()):
            return values[:, :count], places[:, :count]
    values, places = scores.sort(dim=1, descending=True, stable=True)
    return values[:, :count], places[:, :count]


def _numbers(scores: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """−∞ in place of NaN."""
    return scores.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
