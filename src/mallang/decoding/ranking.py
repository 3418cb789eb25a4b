"""What is better: length penalties, and the best of many where equals go to the one that comes first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from mallang.decoding.contract import Config, Hypothesis, NoOutputError
from mallang.layers import native_search
from mallang.layers.first_best import find_first_best, find_maxima, is_made_for, works
from mallang.text.vocabulary import Vocabulary

BLOCK = 64
"""Columns of a long row whose maximum is looked at first."""
SHORT = 64
"""Rows of at most so many columns are sorted whole."""


def best(
    scores: Float[Tensor, "rows places"], count: int
) -> tuple[Float[Tensor, "rows count"], Int[Tensor, "rows count"]]:
    """The highest scores of each row and their places, best first; among equals the lower place wins."""
    if scores.shape[1] < 4 * BLOCK * count:
        return _best_of_few(scores, count)
    nothing = scores.new_zeros(len(scores), 1, dtype=torch.float64)
    if native_search.finds_best(nothing, scores, count):
        values, places = native_search.best_sums(nothing, scores, count)
        return values.float(), places
    return _best_of_many(nothing.to(scores.dtype), scores, count)


def best_sums(
    totals: Float64[Tensor, "sentences width"], scores: Float[Tensor, "rows places"], count: int
) -> tuple[Float64[Tensor, "sentences count"], Int[Tensor, "sentences count"]]:
    """The highest of totals[sentence, hypothesis] + scores[hypothesis, place], and their places in the whole table.

    The table of a sentence is width × places; among equals the earlier hypothesis wins, then the lower place. What is
    not a number counts as −∞: a row in which nothing may follow, as in a table of counts.
    """
    if native_search.finds_best(totals, scores, count):
        return native_search.best_sums(totals, scores, count)
    sentences, width = totals.shape
    places = scores.shape[1]
    if width * places < 4 * BLOCK * count:
        table = totals[:, :, None] + _numbers(scores).view(sentences, width, places)
        return _best_of_few(table.flatten(1), count)
    return _best_of_many(totals, scores, count)


def _best_of_many(
    totals: Float[Tensor, "sentences width"], scores: Float[Tensor, "rows places"], count: int
) -> tuple[Float[Tensor, "sentences count"], Int[Tensor, "sentences count"]]:
    """The best `count` lie in the `count` blocks whose maxima are best, so only those blocks are looked into.

    For whatever lies in another block has `count` maxima before it, each higher, or equal and in an earlier block.
    """
    (sentences, width), places = totals.shape, scores.shape[1]
    maxima = _maxima(scores)
    blocks = maxima.shape[1]
    sums = totals[:, :, None] + _numbers(maxima).view(sentences, width, blocks)
    chosen = _best_of_few(sums.flatten(1), count)[1].sort(dim=1).values  # in order, so that places are, too
    row = chosen // blocks
    place = (chosen % blocks * BLOCK)[:, :, None] + torch.arange(BLOCK, device=scores.device)
    cells = row[:, :, None] * places + place.clamp(max=places - 1)
    inside = _numbers(scores.view(sentences, -1).gather(1, cells.flatten(1)))
    inside = inside.view_as(cells).masked_fill(place >= places, -torch.inf) + totals.gather(1, row)[:, :, None]
    values, found = _best_of_few(inside.flatten(1), count)
    return values, cells.flatten(1).gather(1, found)


def _maxima(scores: Float[Tensor, "rows places"]) -> Float[Tensor, "rows blocks"]:
    """The highest of every block of a row."""
    if scores.is_cuda and scores.stride(1) == 1 and works():
        return find_maxima(scores, BLOCK)
    whole = scores.shape[1] - scores.shape[1] % BLOCK
    maxima = scores[:, :whole].view(len(scores), -1, BLOCK).amax(dim=2)
    if whole < scores.shape[1]:
        maxima = torch.cat([maxima, scores[:, whole:].amax(dim=1, keepdim=True)], dim=1)
    return maxima


def _best_of_few(
    scores: Float[Tensor, "rows places"], count: int
) -> tuple[Float[Tensor, "rows count"], Int[Tensor, "rows count"]]:
    """`torch.topk` does not promise which of several equals it takes; a stable sort does, and so does the maximum.

    On a CPU sorting long rows is slow, so there it is done only where any of the best are equal; to know that, a GPU
    would have to wait for the host, but it has a kernel for the purpose.
    """
    if count == 1:
        return scores.max(dim=1, keepdim=True)
    if is_made_for(scores, count):
        return find_first_best(scores, count)
    if not scores.is_cuda and scores.shape[1] > SHORT:
        values, places = scores.topk(min(count + 1, scores.shape[1]), dim=1)
        if not bool((values[:, :-1] == values[:, 1:]).any()):
            return values[:, :count], places[:, :count]
    values, places = scores.sort(dim=1, descending=True, stable=True)
    return values[:, :count], places[:, :count]


def _numbers(scores: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """−∞ for what is not a number."""
    return scores.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)


def penalty(length: Any, config: Config) -> Any:
    """What the score of an output of this length is divided by, a number or a tensor; `</s>` counts.

    It never falls with the length.
    """
    if config.length_penalty == "average":
        return length
    if config.length_penalty == "gnmt":
        return ((5 + length) / 6) ** config.alpha
    return 1.0


def hypothesis(
    labels: Sequence[int], token_scores: Sequence[float], vocabulary: Vocabulary, config: Config
) -> Hypothesis:
    """What was said token by token, up to the first `<pad>`, as a scored output."""
    length = labels.index(vocabulary.pad) if vocabulary.pad in labels else len(labels)
    finished = length > 0 and labels[length - 1] == vocabulary.eos
    stuck = not finished and -math.inf in token_scores[length : length + 1]  # nothing could follow, so `<pad>` did
    score = math.fsum(token_scores[:length]) if length and not stuck else -math.inf
    if not math.isfinite(score):
        raise NoOutputError(
            f"the model gives no output a probability: the best one scores {score}",
            todo="see whether its training diverged",
        )
    return Hypothesis(
        tokens=tuple(labels[: length - finished]),
        score=score,
        normalized=score / penalty(length, config),
        finished=finished,
        token_scores=tuple(token_scores[:length]),
    )


def ranked(hypotheses: Iterable[Hypothesis]) -> list[Hypothesis]:
    """Best first; equals stay in the order given."""
    return sorted(hypotheses, key=lambda one: -one.normalized)
