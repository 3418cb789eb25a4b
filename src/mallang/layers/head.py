"""Output projections: from hidden vectors to logits; soft-capped logits; the cross-entropy of a model's output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mallang.kernels.cross_entropy import cross_entropy, is_chunked, summed
from mallang.kernels.projection import project
from mallang.layers.crf import CRF
from mallang.layers.frozen import Frozen
from mallang.layers.hashed_bag import HashedBag
from mallang.layers.mix import LayerMix


class Projection(nn.Module):
    """From hidden vectors to one logit per word, with its own weight or tied to an embedding table.

    It takes hidden vectors of any shape, so a loss projects only the positions it needs, or in chunks; losses that
    fuse the projection read `weight` and `bias`.
    """

    def __init__(self, dim: int, words: int, tied: nn.Embedding | None = None, bias: bool = False) -> None:
        super().__init__()
        if tied is not None and tied.weight.shape != (words, dim):
            raise ValueError(f"a projection to {(words, dim)} cannot be tied to a table of {tuple(tied.weight.shape)}")
        self.own = nn.Linear(dim, words, bias=False) if tied is None else None
        # In a tuple, so that torch does not register it again: the weight is saved and counted once, by its owner.
        self.tied: tuple[nn.Embedding, ...] = () if tied is None else (tied,)
        self.bias = nn.Parameter(torch.zeros(words)) if bias else None

    @property
    def weight(self) -> Float[Tensor, "words dim"]:
        """The output vector of every word, own or tied."""
        return self.tied[0].weight if self.own is None else self.own.weight

    def forward(self, hidden: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch words"]:
        """One logit per word."""
        return project(hidden, self.weight, self.bias)


class Capped(nn.Module):
    """Logit soft-capping: cap · tanh(logit / cap) (Gemma 2, arXiv:2408.00118, section 2).

    It is not a Projection itself: a loss that fuses the projection would ignore the cap.
    """

    def __init__(self, projection: Projection, cap: float) -> None:
        super().__init__()
        self.projection, self.cap = projection, cap

    @property
    def weight(self) -> Float[Tensor, "words dim"]:
        """The output vector of every word."""
        return self.projection.weight

    def forward(self, hidden: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch words"]:
        """One logit per word, between −cap and cap."""
        logits: Tensor = self.projection(hidden)
        return self.cap * torch.tanh(logits / self.cap)


class Headed(nn.Module):
    """A model and the head that a task puts on it; their weights are saved as `model.*` and `head.*`.

    `features` is the encoder of another run whose vectors the head reads beside those of the model. Two learned mixes
    of layers may be part of the head: `mix` of those of the model, `features_mix` of those of the features.
    """

    def __init__(
        self,
        model: nn.Module,
        head: nn.Module,
        *,
        frozen: bool = False,
        features: Frozen | None = None,
        mix: LayerMix | None = None,
        features_mix: LayerMix | None = None,
    ) -> None:
        super().__init__()
        self.model, self.head, self.is_frozen, self.features = model, head, frozen, features
        # In a tuple, so that torch does not register them again: their weights are saved with those of the head.
        self.mixes = mix, features_mix
        for name, each in (("mix", mix), ("features_mix", features_mix)):
            if each is not None:
                head.add_module(name, each)
        if frozen:
            model.requires_grad_(False)
            model.eval()

    @property
    def mix(self) -> LayerMix | None:
        """The learned mix of the layers of the model, if there is one."""
        return self.mixes[0]

    @property
    def config(self) -> Any:
        """The configuration of the model below the head."""
        return self.model.config

    @property
    def features_mix(self) -> LayerMix | None:
        """The learned mix of the layers of the features, if there is one."""
        return self.mixes[1]

    def train(self, mode: bool = True) -> Headed:
        """Set the training mode; a frozen model stays in eval mode, so that it computes the same features forever."""
        super().train(mode)
        if self.is_frozen:
            self.model.eval()
        return self


class ClassificationHead(nn.Module):
    """Dropout and a linear layer from the vector of a text, or of a token, to one logit per class.

    A `bag` adds the logits of the text's hashed n-grams.
    """

    def __init__(self, dim: int, classes: int, dropout: float = 0.0, bag: HashedBag | None = None) -> None:
        super().__init__()
        self.dropout, self.bag = nn.Dropout(dropout), bag
        self.linear = nn.Linear(dim, classes)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(
        self, vectors: Float[Tensor, "*batch dim"], ngrams: Int[Tensor, "*batch ngrams"] | None = None
    ) -> Float[Tensor, "*batch classes"]:
        """One logit per class."""
        return mean_of(self.experts(vectors, ngrams))

    def experts(
        self, vectors: Float[Tensor, "*batch dim"], ngrams: Int[Tensor, "*batch ngrams"] | None
    ) -> list[Float[Tensor, "*batch classes"]]:
        """All logits that have a loss of their own."""
        logits: Tensor = self.linear(self.dropout(vectors))
        return [logits] if self.bag is None else self.bag.beside(logits, ngrams)


class OrdinalHead(nn.Module):
    """One score per vector and ordered thresholds: a logit of lying above each threshold (CORAL, arXiv:1901.07884).

    A `bag` adds one score for the text's hashed n-grams, so that the thresholds keep their order.
    """

    def __init__(self, dim: int, classes: int, dropout: float = 0.0, bag: HashedBag | None = None) -> None:
        super().__init__()
        self.dropout, self.bag = nn.Dropout(dropout), bag
        self.score = nn.Linear(dim, 1, bias=False)
        self.first = nn.Parameter(torch.tensor((classes - 2) / 2))
        self.gaps = nn.Parameter(torch.full((classes - 2,), 0.5413))
        """softplus(0.5413) = 1: neighboring thresholds start one apart, and never change their order."""
        nn.init.xavier_uniform_(self.score.weight)

    def forward(
        self, vectors: Float[Tensor, "*batch dim"], ngrams: Int[Tensor, "*batch ngrams"] | None = None
    ) -> Float[Tensor, "*batch thresholds"]:
        """A logit per threshold, falling from the first to the last."""
        return mean_of(self.experts(vectors, ngrams))

    def experts(
        self, vectors: Float[Tensor, "*batch dim"], ngrams: Int[Tensor, "*batch ngrams"] | None
    ) -> list[Float[Tensor, "*batch thresholds"]]:
        """All logits that have a loss of their own."""
        gaps = nn.functional.softplus(self.gaps)
        thresholds = self.first - torch.cat((gaps.new_zeros(1), gaps.cumsum(0)))
        score: Tensor = self.score(self.dropout(vectors))
        return [each + thresholds for each in ([score] if self.bag is None else self.bag.beside(score, ngrams))]


def mean_of(experts: Sequence[Float[Tensor, "*batch outputs"]]) -> Float[Tensor, "*batch outputs"]:
    """The mean of the logits of several experts, whose prediction is the geometric mean of their probabilities."""
    return experts[0] if len(experts) == 1 else torch.stack(list(experts)).mean(dim=0)


class TaggingHead(nn.Module):
    """Dropout and a linear layer from the vector of a word to one score per tag; with `crf`, transitions too."""

    def __init__(self, dim: int, tags: int, dropout: float = 0.0, crf: CRF | None = None) -> None:
        super().__init__()
        self.scores = ClassificationHead(dim, tags, dropout)
        self.crf = crf

    def forward(self, vectors: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch tags"]:
        """One score per tag, before the transitions."""
        scores: Tensor = self.scores(vectors)
        return scores


class SpanHead(nn.Module):
    """Dropout and a linear layer from the vector of a token to two logits: the answer begins here, it ends here.

    There is no bias: what is added to the logits of all tokens changes no softmax over them.
    """

    def __init__(self, dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(dim, 2, bias=False)
        nn.init.xavier_uniform_(self.linear.weight)

    def forward(
        self, vectors: Float[Tensor, "batch time dim"], candidates: Bool[Tensor, "batch time"]
    ) -> Float[Tensor, "batch 2 time"]:
        """The logits of the begin and of the end at every token, in fp32; the lowest number where none can be."""
        logits: Tensor = self.linear(self.dropout(vectors)).float().transpose(1, 2)
        # Not −∞: the rows that fill up a batch have no candidate, and a softmax over nothing is NaN.
        return logits.masked_fill(~candidates[:, None, :], torch.finfo(torch.float32).min)


class ChoiceHead(nn.Module):
    """Dropout and one score from the vector of a choice; no bias, for what is added to every choice changes nothing."""

    def __init__(self, dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(dim, 1, bias=False)
        nn.init.xavier_uniform_(self.linear.weight)

    def forward(self, vectors: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch"]:
        """One score per choice, in fp32."""
        scores: Tensor = self.linear(self.dropout(vectors)).float().squeeze(-1)
        return scores


def masked_rows(
    hidden: Float[Tensor, "batch time dim"], masked: Int[Tensor, "masked 3"]
) -> Float[Tensor, "masked dim"]:
    """The hidden vectors of masked tokens; any vector where there is none, as in a batch that was filled up.

    Everything stays on the device, and the number of vectors depends on the shape of the batch alone.
    """
    rows, places, _ = masked.unbind(dim=1)
    anywhere = torch.arange(len(rows), device=rows.device) % (hidden.shape[0] * hidden.shape[1])
    index = torch.where(rows < 0, anywhere, rows * hidden.shape[1] + places)
    return hidden.flatten(0, 1).index_select(0, index)


@runtime_checkable
class OutputProjection(Protocol):
    """A model whose `output` may be a single linear layer, which a loss can fuse."""

    def output_projection(self) -> Projection | None:
        """The linear layer that `output` consists of, or None where `output` does more."""


def cross_entropy_of(
    model: Any, hidden: Float[Tensor, "positions dim"], labels: Int[Tensor, " positions"], smoothing: float = 0.0
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The loss and the negative log-likelihood of a model's hidden vectors: in chunks if its output is one linear
    layer, otherwise from all logits at once.
    """
    projection = model.output_projection() if isinstance(model, OutputProjection) else None
    if projection is not None:
        return projected_cross_entropy(projection, hidden, labels, smoothing)
    sums = summed(model.output(hidden).log_softmax(dim=1, dtype=torch.float32), labels, smoothing)
    return sums[0], sums[1].detach()


def projected_cross_entropy(
    projection: Projection,
    hidden: Float[Tensor, "positions dim"],
    labels: Int[Tensor, " positions"],
    smoothing: float = 0.0,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The loss and the negative log-likelihood of hidden vectors under a projection, in chunks where that pays."""
    if is_chunked(hidden.device):
        return cross_entropy(hidden, projection.weight, projection.bias, labels, smoothing)
    sums = summed(projection(hidden).log_softmax(dim=1, dtype=torch.float32), labels, smoothing)
    return sums[0], sums[1].detach()
