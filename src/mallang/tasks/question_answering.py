"""Extractive question answering: a question and a context in; the part of the context that answers it out.

    <cls> question <sep> context <sep>
    vectors of tokens → linear → a logit for the begin and one for the end of the answer, over the context

The model is any encoder with a vector for every token (Devlin et al. 2018, arXiv:1810.04805, section 4.2). Long
contexts are read in overlapping windows; a window without the answer points to `<cls>`, or to the first separator where
there is no `<cls>`. With `no_answer` a question may have none (SQuAD 2, Rajpurkar et al. 2018, arXiv:1806.03822).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.data.answers import Spans
from mallang.data.batch import IGNORE, Batch, pad_pairs
from mallang.data.columns import Column, Kind, LabelSet
from mallang.data.prepared import Prepared
from mallang.data.sampler import Buckets, Rows
from mallang.errors import UserError
from mallang.evaluation.answers import Rules
from mallang.evaluation.score import Score
from mallang.layers.head import SpanHead
from mallang.models.contract import Encoder, longest_of
from mallang.runs.given import Given
from mallang.tasks.answerer import Verbs, validation_scores
from mallang.tasks.contract import Better, Loss
from mallang.tasks.features import RECEIVES, check_mix, given_encoder
from mallang.tasks.finetuning import (
    FineTuned,
    FineTuning,
    head_dims,
    put_head,
    read_layers,
    summed,
    symmetric_divergence,
    with_penalties,
    with_r_drop,
)
from mallang.tasks.pair_features import TokenFeatures
from mallang.tasks.windows import NO_ANSWER, WindowExamples, Windows
from mallang.text.tokenizer import Tokenizer

__all__ = ["DEFAULTS", "SECTIONS", "Config", "Task", "Verbs"]

SECTIONS: tuple[str, ...] = ()
"""Sections of a recipe that this task reads besides those of every recipe."""
DEFAULTS: dict[str, dict[str, Any]] = {
    "data": {"max_length": 0, "max_ratio": 0.0},  # windows read long contexts, and a question is short
    "train": {"metric": "f1"},
    "schedule": {"name": "linear", "warmup": 0},
}
"""Defaults of a recipe of this task."""


@dataclass(frozen=True, kw_only=True)
class Config(FineTuning):
    """Windows, answers, and the head."""

    window: int = 384
    """Maximum number of tokens that are read at once: question, a part of the context, and special tokens."""
    stride: int = 128
    """Maximum number of tokens from the begin of a window to that of the next one."""
    max_question: int = 0
    """The first tokens of a question that are read; 0: all, and a question that leaves no room is refused."""
    max_answer: int = 30
    """Maximum number of tokens of an answer that is predicted."""
    no_answer: bool = False
    """Whether a question may have no answer in its context; the threshold is fitted by `mallang evaluate`."""
    rules: Rules = "squad"
    """How answers are compared: by words without articles (squad, squad2), or as KorQuAD does, by characters."""
    head_dropout: float = 0.0
    """Dropout on the vector of a token before the head."""
    features_mix: bool = False
    """given.features: mix all layers of the other encoder in learned shares; otherwise its last layer is read."""
    features_l2: float = 0.0
    """Weight of an L2 penalty on that mix, which pulls it towards the mean of the layers."""

    def __post_init__(self) -> None:
        for name, least in (("window", 8), ("stride", 1), ("max_answer", 1), ("max_question", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, but is {getattr(self, name)}")
        if not 0.0 <= self.head_dropout < 1.0:
            raise ValueError(f"head_dropout must be at least 0 and less than 1, but is {self.head_dropout}")
        check_mix(self)
        self.check_tuning()

    @property
    def scored_by(self) -> Rules:
        """The rules of the official script: SQuAD has another one where some questions have no answer."""
        return "squad2" if self.no_answer and self.rules == "squad" else self.rules


class Task(FineTuned):
    """Learn p(begin, end | question, context) from questions with answers."""

    config: Config
    columns = ("question", "context", "answers")
    unread: tuple[str, ...] = ()
    open_ended = False
    can_compile = True
    parts = ("loss",)
    metrics: Mapping[str, Better] = {"loss": "lower", "em": "higher", "f1": "higher"}

    def __init__(
        self,
        config: Config,
        tokenizers: Mapping[str, Tokenizer],
        labels: Mapping[str, LabelSet] | None = None,
        given: Mapping[str, Given] | None = None,
    ) -> None:
        self.config, self.tokenizers, self.text = config, tokenizers, tokenizers["context"]
        self.question = tokenizers["question"]
        if self.question.vocabulary != self.text.vocabulary:
            raise UserError(
                "question and context are read as one text, so they share a tokenizer", todo="text.shared=true"
            )
        frame = self.text.vocabulary.pair_frame_length
        self.windows = Windows(config.window, config.stride, config.max_answer, frame, config.max_question)
        found = given_encoder(given, config)
        self.features = None if found is None else TokenFeatures(found, config, self.text)

    @classmethod
    def kinds(cls, config: Config) -> Mapping[str, Kind]:
        """The kind of the column that is not plain text."""
        return {"answers": "span"}

    @classmethod
    def receives(cls) -> Mapping[str, str]:
        """The names of [given] that it accepts."""
        return RECEIVES

    def arrays(self) -> Sequence[Column]:
        """The tokens of question and context, the first and last token of each answer, what the features need."""
        spans = Column(2, Spans(self.text), is_text=False, beside=(1,), may_be_empty=True)
        features = [] if self.features is None else self.features.arrays()
        return [Column(0, self.question), Column(1, self.text), spans, *features]

    def build(self, model: ModuleType, config: Any) -> nn.Module:
        """The encoder with a head for the begin and the end of an answer."""
        name, kind = model.__name__.rsplit(".", 1)[-1], model.Model
        if not issubclass(kind, Encoder):
            raise UserError(
                f"{name} encodes no text, so it cannot find an answer in one",
                todo="take an encoder, such as model.name=bert or model.name=rnn_tagger",
            )
        vocabularies = [self.text.vocabulary] * (2 if kind.reads_source else 1)
        encoder: Any = kind(config, *vocabularies)
        if (dim := head_dims(encoder, self.config).token) is None:
            raise UserError(
                f"{name} has no vector for a single token, so it cannot find an answer in a text",
                todo="take an encoder that has, such as model.name=bert",
            )
        longest = longest_of(encoder)
        if longest is not None and longest < self.config.window:
            raise UserError(
                f"task.window = {self.config.window} is longer than the {longest} positions of {name}",
                todo=f"task.window={longest}, or model.max_length={self.config.window}",
            )
        features = mix = None
        if self.features is not None:
            dim, features, mix = dim + self.features.dim, self.features.module(), self.features.mix()
        return put_head(encoder, SpanHead(dim, self.config.head_dropout), self.config, features, mix)

    def examples(self, corpus: Prepared, seed: int, epoch: int) -> Any:
        """The windows that an epoch reads."""
        drawn = corpus.epoch(seed, epoch)
        missing = int((drawn.lengths[:, 2] == 0).sum())
        if missing and not self.config.no_answer:
            raise UserError(
                f"{missing:,} of {len(drawn):,} questions have no answer in their context",
                todo="task.no_answer=true learns to tell them apart; or leave these rows out",
            )
        return WindowExamples(drawn, self.windows, None if self.features is None else self.features.window)

    def plan(
        self, corpus: Prepared, *, tokens: int, sentences: int | None = None, multiple: int = 1, seed: int, epoch: int
    ) -> Sequence[Rows]:
        """Batches of windows of similar length."""
        lengths = self.examples(corpus, seed, epoch).lengths
        return Buckets(lengths, tokens=tokens, sentences=sentences, multiple=multiple, seed=seed, epoch=epoch)

    def prepare(self, rows: list[tuple[Any, ...]], random: np.random.Generator) -> Batch:
        """A padded batch of windows."""
        return self.collate([example for (example,) in rows])

    def collate(self, examples: Sequence[tuple[Any, ...]]) -> Batch:
        """A padded batch of windows: question, part of the context, the answer in it, and arrays of the features."""
        vocabulary, more = self.text.vocabulary, dict[str, Tensor]()
        questions, contexts, answers, *features = zip(*examples, strict=True)
        tokens, lengths, types = pad_pairs(questions, contexts, vocabulary)
        starts = [self.context_start(len(question)) for question in questions]
        if self.features is not None:
            asked = int(vocabulary.frame[0] is not None)
            rows = list(zip(*features, strict=True))
            more = self.features.joined_fields(rows, asked, starts, [tokens.shape[1]] * len(rows))
        begins = torch.tensor(starts)
        nothing = torch.tensor([self.null_place(len(question)) for question in questions])
        places = torch.arange(tokens.shape[1])[None, :]
        is_context = (places >= begins[:, None]) & (places < lengths[:, None] - 1)
        spans = torch.tensor(answers, dtype=torch.int64)
        spans = torch.where(
            spans == NO_ANSWER, nothing[:, None], torch.where(spans == IGNORE, spans, spans + begins[:, None])
        )
        candidates = is_context | (places == nothing[:, None])
        return Batch(tokens=tokens, lengths=lengths, token_types=types, candidates=candidates, answers=spans, **more)

    def context_start(self, question: int) -> int:
        """The position of the first context token beside a question of so many tokens."""
        return self.text.vocabulary.pair_frame_length - 1 + question

    def null_place(self, question: int) -> int:
        """The position that means no answer: that of `<cls>`, or of the first separator where there is none."""
        return 0 if self.text.vocabulary.frame[0] is not None else question

    def counts(self, batch: Batch) -> dict[str, int]:
        """The number of windows whose answer is known, and of tokens."""
        known = int((answers_of(batch)[:, 0] != IGNORE).sum())
        return {"loss": known, "accuracy": known, "tokens": int(batch.lengths.sum())}

    def loss(self, model: Any, batch: Batch, carry: Any) -> Loss:
        """The loss of begin and end, summed over windows; with R-Drop that of two passes, which should agree."""
        known = answers_of(batch) != IGNORE
        return with_r_drop(
            self.config.r_drop,
            model,
            lambda: self.one_pass(model, batch),
            lambda first, second: summed(symmetric_divergence(first, second), known) / 2,
        )

    def one_pass(self, model: Any, batch: Batch) -> tuple[Loss, Float[Tensor, "batch 2 time"]]:
        """The mean of the cross-entropies of begin and end, summed over windows, with the penalties; the logits."""
        logits, penalties = self.logits(model, batch)
        answers = answers_of(batch)
        loss = F.cross_entropy(logits.flatten(0, 1), answers.flatten(), ignore_index=IGNORE, reduction="sum") / 2
        right = (logits.argmax(dim=2) == answers).all(dim=1).sum()
        report = {"nll": loss.detach(), "accuracy": right}
        loss = with_penalties(loss, report, penalties, answers[:, 0] != IGNORE)
        return Loss(sums={"loss": loss}, report=report), logits

    def logits(self, model: Any, batch: Batch) -> tuple[Float[Tensor, "batch 2 time"], Mapping[str, Tensor]]:
        """The logits of begin and end at every token, and the penalties of the encoder."""
        assert batch.candidates is not None
        encoded = read_layers(model, batch)
        vectors, penalties = encoded.layers[-1], encoded.penalties
        if self.features is not None:
            vectors = self.features.join(vectors, model.features, batch, model.features_mix)
            penalties = {**penalties, **self.features.penalties(model.features_mix, len(vectors))}
        return model.head(vectors, batch.candidates), penalties

    def validate(self, model: nn.Module, corpus: Prepared, rows: Sequence[tuple[str, ...]], metric: str) -> list[Score]:
        """The loss per window, exact match and F1 on all held-out questions."""
        return validation_scores(self, model, rows)

    def longest(self, model: nn.Module) -> int | None:
        """The maximum number of tokens that the model reads."""
        return longest_of(model)


def answers_of(batch: Batch) -> Int[Tensor, "batch 2"]:
    """The first and the last token of each answer."""
    assert batch.answers is not None
    return batch.answers
