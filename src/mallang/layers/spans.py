"""Spans of words: all of them up to a width as one grid, the best ones that do not cross, and what comes before each.

    grid      row t, column w: the span from word t to word t + w, both included
    prune     the spans with the highest scores, none of which crosses another (Lee et al. 2017, section 5)

All shapes follow from the widest document of a batch alone, and nothing is looked at by the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.dropout import Dropout

CANDIDATES = 3
"""Spans that pruning looks at, for each one that it may keep."""
ROUNDS = 31
"""Rounds of pruning; an odd number, after which no two spans that are kept can cross."""


@dataclass(frozen=True)
class SpanScores:
    """The spans of documents: which may be mentions, and which earlier one each may refer to."""

    mentions: Float[Tensor, "documents text widths"]
    """The score of every span of the grid as a mention; the lowest number where there is no span."""
    is_span: Bool[Tensor, "documents text widths"]
    """True where the grid has a span: it ends in the sentence in which it begins."""
    spans: Int[Tensor, "documents kept 2"]
    """The first and the last word of the spans that are kept, in the order of the text."""
    is_kept: Bool[Tensor, "documents kept"]
    """True where there is such a span."""
    antecedents: Float[Tensor, "documents kept choices"]
    """The score of referring to nothing before, 0, then of referring to each span before, the nearest first."""


def windows(words: Float[Tensor, "documents text dim"], width: int) -> Float[Tensor, "documents text width dim"]:
    """The words t, t + 1, … of every row t of the grid; zeros after the end of the text."""
    return F.pad(words, (0, 0, 0, width - 1)).unfold(1, width, 1).transpose(2, 3)


def grid_of(sentences: Int[Tensor, "documents text"], width: int) -> Bool[Tensor, "documents text width"]:
    """Where the grid has a span, given the number of the sentence of every word, −1 where there is no word."""
    ends = F.pad(sentences, (0, width - 1), value=-1).unfold(1, width, 1)
    return (ends == sentences[:, :, None]) & (sentences[:, :, None] >= 0)


def span_attention(
    scores: Float[Tensor, "documents text"], is_span: Bool[Tensor, "documents text width"]
) -> Float[Tensor, "documents text width width"]:
    """The softmax of the scores of the words of every span: its weights for the words t, t + 1, …"""
    width = is_span.shape[2]
    inside = torch.ones(width, width, dtype=torch.bool, device=scores.device).tril()
    own = windows(scores[:, :, None], width)[:, :, None, :, 0]  # documents, text, 1, width
    return own.masked_fill(~inside, torch.finfo(scores.dtype).min).softmax(dim=-1) * is_span[..., None]


def prune(
    scores: Float[Tensor, "documents text width"],
    is_span: Bool[Tensor, "documents text width"],
    limits: Int[Tensor, " documents"],
    most: int,
) -> tuple[Int[Tensor, "documents most 2"], Bool[Tensor, "documents most"]]:
    """The best spans of each document, at most `limits` of them, and where there is one; in the order of the text.

    A span is kept if none that crosses it, and has a higher score, is kept. In every round that is asked of all at
    once: what holds of the first span after one round holds of the next after another, so that few rounds are enough.
    """
    width = scores.shape[2]
    flat = scores.masked_fill(~is_span, -torch.inf).flatten(1)
    values, places = flat.topk(min(CANDIDATES * most, flat.shape[1]))
    starts, ends = places // width, places // width + places % width
    crosses = crossing(starts, ends).tril(-1).to(scores.dtype)  # with one of a higher score
    ranks = torch.arange(values.shape[1], device=values.device)
    exists = (values > -torch.inf) & (ranks < CANDIDATES * limits[:, None])
    kept = exists
    for _ in range(ROUNDS):
        kept = exists & ((crosses @ kept.to(scores.dtype)[:, :, None])[:, :, 0] < 0.5)
    kept = kept & (kept.cumsum(dim=1) <= limits[:, None])
    order = torch.where(kept, places, flat.shape[1]).sort(dim=1).values
    order = F.pad(order, (0, max(0, most - order.shape[1])), value=flat.shape[1])[:, :most]
    is_kept = order < flat.shape[1]
    order = torch.where(is_kept, order, 0)
    return torch.stack((order // width, order // width + order % width), dim=2), is_kept


def crossing(
    starts: Int[Tensor, "documents spans"], ends: Int[Tensor, "documents spans"]
) -> Bool[Tensor, "documents spans spans"]:
    """Whether two spans overlap without one being in the other."""
    first, last = starts[:, :, None], ends[:, :, None]
    other, its_last = starts[:, None, :], ends[:, None, :]
    begins_inside = (first < other) & (other <= last) & (last < its_last)
    return begins_inside | begins_inside.transpose(1, 2)


def at(values: Float[Tensor, "documents places dim"], places: Tensor) -> Tensor:
    """The vectors of each document at these places: one or two axes of places, a vector for each."""
    documents = torch.arange(len(values), device=values.device).reshape(-1, *[1] * (places.dim() - 1))
    return F.embedding(places + documents * values.shape[1], values.flatten(0, 1))


def previous(values: Float[Tensor, "documents spans dim"], most: int) -> Float[Tensor, "documents spans most dim"]:
    """The vectors of the spans before each span, the nearest first; zeros where there are none."""
    return F.pad(values, (0, 0, most, 0)).unfold(1, most, 1)[:, :-1].flip(3).transpose(2, 3)


def distance_bucket(distances: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
    """Distances 1, 2, 3, 4, 5-7, 8-15, 16-31, 32-63 and 64 or more as numbers from 0 (Clark and Manning 2016)."""
    edges = torch.tensor([1, 2, 3, 4, 7, 15, 31, 63])
    return sum((distances > int(edge)).long() for edge in edges.tolist())  # type: ignore[return-value]


DISTANCES = 9
"""How many numbers `distance_bucket` has."""


class Scorer(nn.Module):
    """From the sum of the parts of a first hidden layer to a score: ReLU and dropout, more layers, one linear unit."""

    def __init__(self, dim: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.hidden = nn.ModuleList(nn.Linear(dim, dim) for _ in range(layers - 1))
        self.score = nn.Linear(dim, 1)
        self.dropout = Dropout(dropout)

    def forward(self, first: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch"]:
        """One score for each."""
        x = self.dropout(first.relu())
        for layer in self.hidden:
            x = self.dropout(layer(x).relu())
        score: Tensor = self.score(x)[..., 0]
        return score


@runtime_checkable
class CoreferenceScorer(Protocol):
    """A model of spans and their antecedents; its constructor takes the size of given vectors of words last."""

    def word_vectors(self, tokens: Int[Tensor, "rows time"]) -> Float[Tensor, "rows time inputs"]:
        """The vectors of words; given ones are put beside them."""

    def span_scores(self, batch: Batch, words: Float[Tensor, "batch time both"]) -> SpanScores:
        """The mentions of the documents of a batch, and their antecedents."""
