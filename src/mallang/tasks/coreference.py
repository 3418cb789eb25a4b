"""Coreference: a document in; clusters of mentions out, each of one person or thing.

    Minsu met Jiyeong . He gave her a book .        {Minsu, He}   {Jiyeong, her}   {a book}

The loss of a span is −log Σ p(y) over all its antecedents y in the gold cluster, or over none of them where it has none
(Lee et al. 2017, arXiv:1707.07045, section 4). Which of them it refers to need not be known. With `mention_loss` the
mention score of every span is trained too, by cross-entropy: as a mention of the gold clusters, or not. Then a span
with a score above 0 that is linked to nothing can be a cluster by itself, where the data has such (`singletons`).

A document is read in rows of whole sentences; no span crosses the end of a sentence. `given.features` stand beside the
word vectors, before the model reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch, pad_rows
from mallang.data.columns import Column, Kind, LabelSet, Segments
from mallang.data.coreference import Mentions, SentenceStarts
from mallang.data.prepared import Prepared
from mallang.data.sampler import Buckets, Rows
from mallang.errors import UserError
from mallang.evaluation.score import Score
from mallang.layers.head import Headed
from mallang.layers.spans import CoreferenceScorer, SpanScores
from mallang.layers.words import HidesWords
from mallang.models.contract import longest_of
from mallang.runs.given import Given
from mallang.tasks.contract import Better, Group, Loss
from mallang.tasks.document_parts import Part, Parts
from mallang.tasks.features import RECEIVES, check_mix, features_of
from mallang.tasks.resolver import Verbs, validation_scores
from mallang.text.tokenizer import Tokenizer
from mallang.text.words import Split

__all__ = ["DEFAULTS", "SECTIONS", "Config", "Task", "Verbs"]

SECTIONS: tuple[str, ...] = ()
"""Sections of a recipe that this task reads besides those of every recipe."""
DEFAULTS: dict[str, dict[str, Any]] = {
    "text": {"unit": "space", "vocabulary": 50_000},
    "data": {"max_length": 0, "max_ratio": 0.0},  # a document is long
    "train": {"metric": "conll_f1"},
    "optimizer": {"max_grad_norm": 5.0},
    "schedule": {"name": "linear", "warmup": 0},
}
"""Defaults of a recipe of this task: every word is a token."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """How documents are read, what is learned besides links, and the dropout of words."""

    window: int = 0
    """Maximum number of words of a row, of as many whole sentences as fit; 0: a row per sentence, as in the paper."""
    max_words: int = 0
    """Training reads longer documents in parts of whole sentences, of at most so many words; 0: as a whole."""
    mention_loss: float = 0.0
    """Weight of the cross-entropy of mention scores."""
    singletons: bool = False
    """Predict mentions without links as clusters of one, for data that has them; it needs mention_loss."""
    split: Split = "treebank"
    """How `coref` splits a text into words: as the training data does."""
    word_dropout: float = 0.0
    """Probability that a word is read as `<unk>` in training."""
    rare_dropout: float = 0.0
    """Probability that a word which occurs once is read as unknown in training; its characters stay."""
    features_mix: bool = False
    """given.features: mix all layers of the other encoder in learned shares; otherwise its last layer is read."""
    features_l2: float = 0.0
    """Weight of an L2 penalty on that mix, which pulls it towards the mean of the layers."""

    def __post_init__(self) -> None:
        for name in ("window", "max_words", "mention_loss"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, but is {getattr(self, name)}")
        for name in ("word_dropout", "rare_dropout"):
            if not 0.0 <= (share := getattr(self, name)) < 1.0:
                raise ValueError(f"{name} must be at least 0 and less than 1, but is {share}")
        if self.singletons and not self.mention_loss:
            raise ValueError("singletons needs mention_loss, such as 1: without it no score says what is a mention")
        check_mix(self)


class Task:
    """Learn which spans of documents are mentions of the same."""

    columns = ("sentences", "clusters")
    unread: tuple[str, ...] = ()
    open_ended = False
    can_compile = False
    parts = ("loss",)
    metrics: Mapping[str, Better] = {"loss": "lower", "conll_f1": "higher", "mention_f1": "higher"}

    def __init__(
        self,
        config: Config,
        tokenizers: Mapping[str, Tokenizer],
        labels: Mapping[str, LabelSet] | None = None,
        given: Mapping[str, Given] | None = None,
    ) -> None:
        self.config, self.tokenizers, self.text = config, tokenizers, tokenizers["sentences"]
        if self.text.config.unit != "space":
            raise UserError("spans are made of words, so every word is one token", todo="text.unit=space")
        self.features = features_of(given, "sentences", config, self.text)
        self.segments = Segments(self.text, "sentences")
        self.hidden_from: int | None = None
        """What is added to the id of a word to hide it, where the model can do that."""
        self.is_rare: Bool[np.ndarray, " tokens"] | None = None

    @classmethod
    def kinds(cls, config: Config) -> Mapping[str, Kind]:
        """The kind of each column."""
        return {"sentences": "sentences", "clusters": "clusters"}

    @classmethod
    def receives(cls) -> Mapping[str, str]:
        """The names of [given] that it accepts."""
        return RECEIVES

    def arrays(self) -> Sequence[Column]:
        """The words, where sentences start, the mentions of all clusters, and what the features need."""
        mentions = Column(1, Mentions(), is_text=False, beside=(0,), may_be_empty=True)
        features = [] if self.features is None else self.features.arrays()
        return [Column(0, self.segments), Column(0, SentenceStarts(), is_text=False), mentions, *features]

    def build(self, model: ModuleType, config: Any) -> nn.Module:
        """The model; with features a module around it that holds them."""
        if not issubclass(model.Model, CoreferenceScorer):
            raise UserError(
                f"{model.__name__.rsplit('.', 1)[-1]} scores no spans of a document",
                todo=f"task.name={model.TASK}, or model.name=e2e_coref with given.features=runs/NAME",
            )
        dim = 0 if self.features is None else self.features.dim
        built: nn.Module = model.Model(config, self.text.vocabulary, dim)
        self.hidden_from = built.hidden_from if isinstance(built, HidesWords) else None
        if self.features is None:
            return built
        return Headed(built, nn.Module(), features=self.features.module(), features_mix=self.features.mix())

    def examples(self, corpus: Prepared, seed: int, epoch: int) -> Parts:
        """The documents that an epoch reads, long ones in parts."""
        if self.config.rare_dropout and self.is_rare is None:
            ids = np.concatenate([corpus[place][0] for place in range(len(corpus))])
            self.is_rare = np.bincount(ids, minlength=len(self.text.vocabulary)) == 1
            self.is_rare[list(self.text.vocabulary.specials)] = False
        return Parts(corpus.epoch(seed, epoch), self.config.max_words, self.config.window)

    def plan(
        self, corpus: Prepared, *, tokens: int, sentences: int | None = None, multiple: int = 1, seed: int, epoch: int
    ) -> Sequence[Rows]:
        """Batches of documents with as many words in their rows."""
        parts = self.examples(corpus, seed, epoch)
        return Buckets(
            parts.widths, tokens=tokens, sentences=sentences, rows=parts.rows, multiple=multiple, long_alone=True,
            seed=seed, epoch=epoch,
        )  # fmt: skip

    def prepare(self, rows: list[tuple[Any, ...]], random: np.random.Generator) -> Batch:
        """A padded batch of documents, with some words unknown."""
        return self.collate([part.with_words(self.with_unknown(part.words, random)) for (part,) in rows])

    def with_unknown(self, ids: Any, random: np.random.Generator) -> Any:
        """The ids of words with some hidden: rare ones, and any."""
        unk = self.text.vocabulary.unk
        if self.config.rare_dropout and self.is_rare is not None:
            drops = self.is_rare[ids] & (random.random(len(ids)) < self.config.rare_dropout)
            ids = np.where(drops, unk if self.hidden_from is None else ids + self.hidden_from, ids)
        if self.config.word_dropout:
            ids = np.where(random.random(len(ids)) < self.config.word_dropout, unk, ids)
        return ids

    def collate(self, parts: Sequence[Part]) -> Batch:
        """A padded batch of documents: their rows, where their words are in these, their sentences and mentions."""
        tokens, lengths = pad_rows([words for part in parts for words in part.row_words()], self.text.vocabulary.pad)
        places, first = [], 0
        for part in parts:
            places.append(part.places(first))
            first += len(part.bounds)
        features = {}
        if self.features is not None:
            features = self.features.fields([row for part in parts for row in part.row_features()])
        return Batch(
            tokens=tokens,
            lengths=lengths,
            document_words=padded(places, 2),
            document_sentences=padded([part.sentences()[:, None] for part in parts], 1)[:, :, 0],
            mentions=padded([part.mentions for part in parts], 3),
            **features,
        )

    def counts(self, batch: Batch) -> dict[str, int]:
        """The number of words."""
        words = int((sentences_of(batch) >= 0).sum())
        return {"loss": words, "tokens": words}

    def loss(self, model: Any, batch: Batch, carry: Any) -> Loss:
        """The summed negative log-likelihood of the antecedents, and of the mentions; the penalty of the mix."""
        found = self.loss_of(self.scores(model, batch), batch)
        if self.features is None or not (penalties := self.features.penalties(model.features_mix, 1)):
            return found
        words = (sentences_of(batch) >= 0).sum()  # all is divided by their number
        added = {name: words * each.sum() for name, each in penalties.items()}
        report = {**found.report, **{name: each.detach() for name, each in added.items()}}
        return Loss(sums={"loss": found.sums["loss"] + sum(added.values())}, report=report)

    def loss_of(self, scored: SpanScores, batch: Batch) -> Loss:
        """The loss of what a model gives for a batch."""
        loss = antecedent_loss(scored, mentions_of(batch))
        report = {"nll": loss.detach()}
        if self.config.mention_loss:
            mentions = mention_loss(scored, mentions_of(batch))
            loss, report["mentions"] = loss + self.config.mention_loss * mentions, mentions.detach()
        return Loss(sums={"loss": loss}, report=report)

    def scores(self, model: Any, batch: Batch) -> SpanScores:
        """The mentions of a batch and their antecedents."""
        inner: Any = model.model if isinstance(model, Headed) else model
        words = inner.word_vectors(batch.tokens)
        if self.features is not None:
            words = self.features.join(words, model.features, batch, model.features_mix)
        found: SpanScores = inner.span_scores(batch, words)
        return found

    def updates(self, model: nn.Module) -> list[Group]:
        """All parameters."""
        return [Group(list(model.named_parameters()))]

    def validate(self, model: nn.Module, corpus: Prepared, rows: Sequence[tuple[str, ...]], metric: str) -> list[Score]:
        """The loss per word, the CoNLL F1 and the F1 of mentions on all held-out documents."""
        return validation_scores(self, model, rows)

    def longest(self, model: nn.Module) -> int | None:
        """The maximum number of words of a row that the model reads."""
        return longest_of(model)


def padded(rows: Sequence[Int[np.ndarray, "_items facts"]], facts: int) -> Int[Tensor, "rows items facts"]:
    """Rows of unequal length as one tensor, filled up with −1; each has at least one place."""
    whole = np.full((len(rows), max(1, *map(len, rows)), facts), -1, dtype=np.int64)
    for place, row in zip(whole, rows, strict=True):
        place[: len(row)] = row
    return torch.from_numpy(whole)


def sentences_of(batch: Batch) -> Int[Tensor, "documents text"]:
    """The sentence of every word; −1 where there is none."""
    assert batch.document_sentences is not None
    return batch.document_sentences


def mentions_of(batch: Batch) -> Int[Tensor, "documents mentions 3"]:
    """First word, last word and cluster of every gold mention; −1 where there is none."""
    assert batch.mentions is not None
    return batch.mentions


def antecedent_loss(scored: SpanScores, gold: Int[Tensor, "documents mentions 3"]) -> Float[Tensor, ""]:
    """−Σ log Σ p(y) over the antecedents y of each span that are in its gold cluster; none is right where none is."""
    is_right = right_antecedents(scored, gold)
    lowest = torch.finfo(scored.antecedents.dtype).min
    right = scored.antecedents.masked_fill(~is_right, lowest).logsumexp(dim=2)
    losses = scored.antecedents.logsumexp(dim=2) - right
    return torch.where(scored.is_kept, losses, 0.0).sum()


def right_antecedents(
    scored: SpanScores, gold: Int[Tensor, "documents mentions 3"]
) -> Bool[Tensor, "documents kept choices"]:
    """Which choices of every span are right: spans of its cluster, or the first choice, none, where there are none."""
    same = (scored.spans[:, :, None] == gold[:, None, :, :2]).all(dim=3) & scored.is_kept[:, :, None]
    clusters = torch.where(same, gold[:, None, :, 2] + 1, 0).amax(dim=2)  # 0: no gold mention
    most = scored.antecedents.shape[2] - 1
    others = F.pad(clusters, (most, 0)).unfold(1, most, 1)[:, :-1].flip(2)
    is_right = (others == clusters[:, :, None]) & (clusters[:, :, None] > 0)
    return torch.cat((~is_right.any(dim=2, keepdim=True), is_right), dim=2)


def mention_loss(scored: SpanScores, gold: Int[Tensor, "documents mentions 3"]) -> Float[Tensor, ""]:
    """The cross-entropy of being a gold mention or not, summed over all spans; wider mentions are out of reach."""
    width = scored.mentions.shape[2]
    further = gold[:, :, 1] - gold[:, :, 0]
    known = (gold[:, :, 2] >= 0) & (further < width)
    places = torch.where(known, gold[:, :, 0] * width + further, 0)
    targets = torch.zeros_like(scored.mentions).flatten(1).scatter_add(1, places, known.to(scored.mentions.dtype))
    targets = targets.clamp(max=1.0).view_as(scored.mentions)
    losses = F.binary_cross_entropy_with_logits(
        torch.where(scored.is_span, scored.mentions, 0.0), targets, reduction="none"
    )
    return torch.where(scored.is_span, losses, 0.0).sum()
