"""Stable top-k: the k highest values of every row, where ties go to the lower index.

`torch.topk` does not define the order of ties. Long rows are searched in blocks: the top k are in the k blocks with the
highest maxima. On a GPU Triton kernels find the maxima and the top k of a short row (stable_top_k.py).
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from mallang.kernels.stable_top_k import block_maxima, is_made_for, stable_top_k, works

BLOCK = 64
"""Columns per block of a long row."""
SHORT = 64
"""Rows of at most this many columns are sorted as a whole."""


def top_k(
    scores: Float[Tensor, "rows places"], count: int
) -> tuple[Float[Tensor, "rows count"], Int[Tensor, "rows count"]]:
    """The `count` highest scores of each row and their indices, best first; ties go to the lower index."""
    if count == 1 and not scores.is_cuda:
        return _numbers(scores).max(dim=1, keepdim=True)
    if scores.shape[1] < 4 * BLOCK * count:
        return _top_k_of_few(scores, count)
    return _top_k_of_many(scores.new_zeros(len(scores), 1), scores, count)


def top_k_sums(
    totals: Float64[Tensor, "sentences width"], scores: Float[Tensor, "rows places"], count: int
) -> tuple[Float64[Tensor, "sentences count"], Int[Tensor, "sentences count"]]:
    """Top-k of totals[sentence, hypothesis] + scores[hypothesis, place], with indices into the table of a sentence.

    That table is width × places; ties go to the earlier hypothesis, then to the lower place. NaN counts as −∞: a row
    in which nothing may follow, as in a table of counts.
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
    """Top-k of long rows: only the `count` blocks with the highest maxima are searched.

    Every value of another block ranks behind these `count` maxima, each higher, or equal and in an earlier block.
    """
    (sentences, width), places = totals.shape, scores.shape[1]
    maxima = _maxima(scores)
    blocks = maxima.shape[1]
    sums = totals[:, :, None] + _numbers(maxima).view(sentences, width, blocks)
    chosen = _top_k_of_few(sums.flatten(1), count)[1].sort(dim=1).values  # sorted, for ties
    row = chosen // blocks
    place = (chosen % blocks * BLOCK)[:, :, None] + torch.arange(BLOCK, device=scores.device)
    cells = row[:, :, None] * places + place.clamp(max=places - 1)
    inside = _numbers(scores.view(sentences, -1).gather(1, cells.flatten(1)))
    inside = inside.view_as(cells).masked_fill(place >= places, -torch.inf) + totals.gather(1, row)[:, :, None]
    values, found = _top_k_of_few(inside.flatten(1), count)
    return values, cells.flatten(1).gather(1, found)


def _maxima(scores: Float[Tensor, "rows places"]) -> Float[Tensor, "rows blocks"]:
    """The maximum of every block of a row."""
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
    """Stable top-k of short rows, by a stable sort, a maximum or a kernel, since `torch.topk` is not stable.

    On a CPU sorting long rows is slow, so there `torch.topk` runs first and a sort only where there are ties. On a GPU
    that check would have to wait for the host; it has a kernel instead.
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
