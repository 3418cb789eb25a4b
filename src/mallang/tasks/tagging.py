"""Tagging: the words of a sentence in; a tag for each word out: named entities, chunks, parts of speech.

    softmax   every word by itself: a linear layer on the vector of its first token
    crf       all words together: emissions and transitions (Lafferty et al. 2001), with the rules of the tag scheme

A word may be one token or several; its vector is that of its first token. The head of the task is put on any encoder
with a vector for every token; a model with its own CRF (lstm_crf) has none, unless `given.features` are joined to its
vectors: then the CRF of the head takes its place. Tags are read in IOB1, IOB2 or BIOES as
they come, learned in `task.scheme`, and predicted as the data writes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, cast

import numpy as np
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mallang.data.batch import IGNORE, Batch, pad_rows, pad_texts
from mallang.data.columns import Column, Kind, LabelSet, Segments, Starts, split_cell
from mallang.data.prepared import Prepared
from mallang.data.sampler import Buckets, Rows
from mallang.errors import UserError
from mallang.evaluation.score import Score
from mallang.layers.crf import CRF
from mallang.layers.head import TaggingHead
from mallang.layers.pooling import first_of_words
from mallang.layers.words import HidesWords
from mallang.models.contract import Encoder, Tagger, longest_of
from mallang.runs.given import Given
from mallang.tasks.contract import Better, Loss
from mallang.tasks.features import RECEIVES, check_mix, features_of
from mallang.tasks.finetuning import (
    FineTuned,
    FineTuning,
    head_dims,
    put_head,
    read_layers,
    refuse_tuning,
    summed,
    symmetric_divergence,
    with_penalties,
    with_r_drop,
)
from mallang.tasks.tag_set import Learned, TagSet
from mallang.tasks.tagger import Verbs, validation_scores
from mallang.text.tokenizer import Tokenizer
from mallang.text.words import Split

__all__ = ["DEFAULTS", "SECTIONS", "Config", "Task", "Verbs"]

SECTIONS: tuple[str, ...] = ()
"""Sections of a recipe that this task reads besides those of every recipe."""
DEFAULTS: dict[str, dict[str, Any]] = {
    "text": {"unit": "space", "vocabulary": 50_000},
    "train": {"metric": "f1"},
    "optimizer": {"max_grad_norm": 5.0},
    "schedule": {"name": "linear", "warmup": 0},
}
"""Defaults of a recipe of this task: every word is a token."""


@dataclass(frozen=True, kw_only=True)
class Config(FineTuning):
    """The head, the scheme of the tags, and the dropout of words."""

    head: Literal["softmax", "crf"] | None = None
    """Tags of single words, or a CRF over all of them; not set: the model's own CRF if it has one, else softmax."""
    constraints: bool = True
    """crf: forbid what the tag scheme forbids, such as I-LOC after B-PER."""
    scheme: Learned = "bioes"
    """The scheme that spans are learned in; same: that of the data."""
    split: Split = "words"
    """How `tag` splits a text into words: as the training data does; words, spaces, characters or morphemes."""
    word_dropout: float = 0.0
    """Probability that a word is read as `<unk>` in training."""
    rare_dropout: float = 0.0
    """Probability that a word which occurs once is read as unknown in training; its characters stay."""
    head_dropout: float = 0.0
    """Dropout on the vector of a word before the head."""
    features_mix: bool = False
    """given.features: mix all layers of the other encoder in learned shares; otherwise its last layer is read."""
    features_l2: float = 0.0
    """Weight of an L2 penalty on that mix, which pulls it towards the mean of the layers."""

    def __post_init__(self) -> None:
        for name in ("word_dropout", "rare_dropout", "head_dropout"):
            if not 0.0 <= (share := getattr(self, name)) < 1.0:
                raise ValueError(f"{name} must be at least 0 and less than 1, but is {share}")
        check_mix(self)
        if not self.constraints and self.head == "softmax":
            raise ValueError("constraints = false has no effect on head = 'softmax', which has no transitions")
        self.check_tuning()


class Task(FineTuned):
    """Learn p(tags | words) from tagged sentences."""

    config: Config
    columns = ("words", "tags")
    unread: tuple[str, ...] = ()
    open_ended = False
    can_compile = False
    parts = ("loss",)
    metrics: Mapping[str, Better] = {"loss": "lower", "accuracy": "higher", "f1": "higher"}

    def __init__(
        self,
        config: Config,
        tokenizers: Mapping[str, Tokenizer],
        labels: Mapping[str, LabelSet],
        given: Mapping[str, Given] | None = None,
    ) -> None:
        self.config, self.tokenizers, self.text = config, tokenizers, tokenizers["words"]
        self.features = features_of(given, "words", config, self.text)
        self.tags = TagSet(labels["tags"], config.scheme)
        self.segments = Segments(self.text, "words")
        self.hidden_from: int | None = None
        """What is added to the id of a word to hide it, where the model can do that."""
        self.is_rare: Bool[np.ndarray, " tokens"] | None = None

    @classmethod
    def kinds(cls, config: Config) -> Mapping[str, Kind]:
        """The kind of each column."""
        return {"words": "words", "tags": "tags"}

    @classmethod
    def receives(cls) -> Mapping[str, str]:
        """The names of [given] that it accepts."""
        return RECEIVES

    def arrays(self) -> Sequence[Column]:
        """The tokens of all words, the tags, the first token of each word, and what the features need."""
        tags = Column(1, self.tags, is_text=False, like=2)
        features = [] if self.features is None else self.features.arrays()
        return [Column(0, self.segments), tags, Column(0, Starts(self.segments), is_text=False), *features]

    def build(self, model: ModuleType, config: Any) -> nn.Module:
        """The encoder with a head for these tags, or a model with its own CRF."""
        name, kind = model.__name__.rsplit(".", 1)[-1], model.Model
        own = issubclass(kind, Tagger) and self.config.head != "softmax" and self.features is None
        if not issubclass(kind, Encoder) and not own:
            raise UserError(
                f"{name} encodes no text, so it cannot tag one",
                todo="take an encoder, such as model.name=rnn_tagger or model.name=lstm_crf",
            )
        has_crf = own or self.config.head == "crf" or (issubclass(kind, Tagger) and self.config.head is None)
        if not has_crf and not self.config.constraints:
            raise UserError("task.constraints is about a CRF, and there is none", todo="task.head=crf")
        if own:
            refuse_tuning(self.config, f"{name} has its own CRF", "task.head=softmax puts a head on it")
        if own and self.config.head_dropout:
            raise UserError(
                f"task.head_dropout is about a head, and {name} has its own CRF",
                todo="task.head=softmax puts a head on it",
            )
        if has_crf and self.config.r_drop:
            raise UserError("task.r_drop compares tags of single words, not of a CRF", todo="task.head=softmax")
        vocabularies = [self.text.vocabulary] * (2 if kind.reads_source else 1)
        constraints = self.tags.constraints(self.config.constraints)
        built: Any = kind(config, *vocabularies, constraints) if own else kind(config, *vocabularies)
        self.hidden_from = built.hidden_from if isinstance(built, HidesWords) else None
        if own:
            return cast(nn.Module, built)
        if (dim := head_dims(built, self.config).token) is None:
            raise UserError(
                f"{name} has no vector for a single word, so it cannot tag words",
                todo="take an encoder that has, such as model.name=rnn_tagger",
            )
        features = mix = None
        if self.features is not None:
            dim, features, mix = dim + self.features.dim, self.features.module(), self.features.mix()
        crf = CRF(len(self.tags), constraints) if has_crf else None
        head = TaggingHead(dim, len(self.tags), self.config.head_dropout, crf)
        return put_head(built, head, self.config, features, mix)

    def examples(self, corpus: Prepared, seed: int, epoch: int) -> Any:
        """The sentences that an epoch reads."""
        if self.config.rare_dropout and self.is_rare is None:
            self.is_rare = self.rare_words(corpus)
        return corpus.epoch(seed, epoch)

    def rare_words(self, corpus: Prepared) -> Bool[np.ndarray, " tokens"]:
        """Whether each token occurs once in the training text."""
        ids = corpus.flat
        if ids is None:
            ids = np.concatenate([corpus[place][0] for place in range(len(corpus))])
        found: np.ndarray = np.bincount(ids, minlength=len(self.text.vocabulary)) == 1
        found[list(self.text.vocabulary.specials)] = False
        return found

    def plan(
        self, corpus: Prepared, *, tokens: int, sentences: int | None = None, multiple: int = 1, seed: int, epoch: int
    ) -> Sequence[Rows]:
        """Batches of sentences of similar length."""
        lengths = corpus.epoch(seed, epoch).lengths[:, [0]] + self.text.vocabulary.frame_length
        return Buckets(lengths, tokens=tokens, sentences=sentences, multiple=multiple, seed=seed, epoch=epoch)

    def prepare(self, rows: list[tuple[Any, ...]], random: np.random.Generator) -> Batch:
        """A padded batch, with some words unknown."""
        return self.collate([(self.with_unknown(ids, random), *others) for ((ids, *others),) in rows])

    def with_unknown(self, ids: Any, random: np.random.Generator) -> Any:
        """The ids of a sentence with some words hidden: rare ones, and any."""
        unk = self.text.vocabulary.unk
        if self.config.rare_dropout and self.is_rare is not None:
            drops = self.is_rare[ids] & (random.random(len(ids)) < self.config.rare_dropout)
            ids = np.where(drops, unk if self.hidden_from is None else ids + self.hidden_from, ids)
        if self.config.word_dropout:
            ids = np.where(random.random(len(ids)) < self.config.word_dropout, unk, ids)
        return ids

    def collate(self, examples: Sequence[Sequence[Any]]) -> Batch:
        """A padded batch of examples: the arrays of each."""
        vocabulary = self.text.vocabulary
        tokens, lengths = pad_texts([ids for ids, *_ in examples], vocabulary)
        tags, _ = pad_rows([tags for _, tags, *_ in examples], IGNORE)
        words, _ = pad_rows([np.asarray(starts) + vocabulary.frame_length - 1 for _, _, starts, *_ in examples], -1)
        features = {} if self.features is None else self.features.fields([example[3:] for example in examples])
        return Batch(tokens=tokens, lengths=lengths, words=words, tags=tags, **features)

    def counts(self, batch: Batch) -> dict[str, int]:
        """The number of words, and of tokens."""
        words = int((tags_of(batch) != IGNORE).sum())
        return {"loss": words, "accuracy": words, "tokens": int(batch.lengths.sum())}

    def loss(self, model: Any, batch: Batch, carry: Any) -> Loss:
        """The summed negative log-likelihood of the tags; with R-Drop that of two passes, which should agree."""
        is_word = tags_of(batch) != IGNORE
        return with_r_drop(
            self.config.r_drop,
            model,
            lambda: self.one_pass(model, batch),
            lambda first, second: summed(symmetric_divergence(first, second), is_word),
        )

    def one_pass(self, model: Any, batch: Batch) -> tuple[Loss, Float[Tensor, "batch words tags"]]:
        """The summed negative log-likelihood of the tags of all words, with the penalties of the model; the scores."""
        emissions, crf, penalties = self.emissions(model, batch)
        tags = tags_of(batch)
        is_word = tags != IGNORE
        if crf is None:
            loss = F.cross_entropy(
                emissions.float().flatten(0, 1), tags.flatten(), ignore_index=IGNORE, reduction="sum"
            )
        else:
            loss = crf.negative_log_likelihood(emissions, tags, is_word).sum()
        report = {"nll": loss.detach()}
        if crf is None:
            report["accuracy"] = (emissions.argmax(dim=2) == tags).sum()
        loss = with_penalties(loss, report, penalties, is_word.any(dim=1))
        return Loss(sums={"loss": loss}, report=report), emissions

    def emissions(
        self, model: Any, batch: Batch
    ) -> tuple[Float[Tensor, "batch words tags"], CRF | None, Mapping[str, Tensor]]:
        """The scores of the tags of every word, the CRF over them if there is one, and the penalties of the encoder."""
        if isinstance(model, Tagger):
            return model.emissions(batch), model.tag_crf(), {}
        assert batch.words is not None
        encoded = read_layers(model, batch)
        vectors, penalties = first_of_words(encoded.layers[-1], batch.words), encoded.penalties
        if self.features is not None:
            vectors = self.features.join(vectors, model.features, batch, model.features_mix)
            penalties = {**penalties, **self.features.penalties(model.features_mix, len(vectors))}
        return model.head(vectors), model.head.crf, penalties

    def validate(self, model: nn.Module, corpus: Prepared, rows: Sequence[tuple[str, ...]], metric: str) -> list[Score]:
        """The loss per word, the accuracy of tags and the F1 of spans on all held-out sentences."""
        sentences = [(split_cell(words, "words"), split_cell(tags, "tags")) for words, tags in rows]
        return validation_scores(self, model, sentences)

    def longest(self, model: nn.Module) -> int | None:
        """The maximum number of tokens that the model reads."""
        return longest_of(model)


def tags_of(batch: Batch) -> Tensor:
    """The tags of a batch, IGNORE where there is no word."""
    assert batch.tags is not None
    return batch.tags
