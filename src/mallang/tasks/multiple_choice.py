"""Multiple choice: a question and its choices in; the right choice out.

    <cls> question <sep> choice <sep>  →  vector of the pair  →  linear  →  one score
    softmax over the scores of all choices of the question

Every choice is read by itself beside the question, by one encoder and one head (Radford et al. 2018, figure 1; Devlin
et al. 2018, arXiv:1810.04805, section 4.4), so that questions may have different numbers of choices. `read = "choices"`
hides the question: what a model reaches then, the choices give away by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.data.batch import IGNORE, Batch, pad_pairs, pad_rows, pad_texts
from mallang.data.choices import RightChoice, encoders
from mallang.data.columns import Column, Kind, LabelSet
from mallang.data.prepared import Prepared
from mallang.data.sampler import Buckets, Rows, by_length
from mallang.errors import UserError
from mallang.evaluation.score import Score
from mallang.layers.head import ChoiceHead
from mallang.models.contract import Encoder, longest_of
from mallang.tasks.chooser import Verbs, validation_scores
from mallang.tasks.contract import Better, Loss
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
from mallang.text.tokenizer import Tokenizer

__all__ = ["DEFAULTS", "SECTIONS", "Config", "Task", "Verbs"]

SECTIONS: tuple[str, ...] = ()
"""Sections of a recipe that this task reads besides those of every recipe."""
DEFAULTS: dict[str, dict[str, Any]] = {
    "data": {"max_length": 0, "max_ratio": 0.0},
    "train": {"metric": "accuracy"},
    "schedule": {"name": "linear", "warmup": 0},
}
"""Defaults of a recipe of this task."""
Example = tuple[Any, ...]
"""Tokens of the question, tokens of all choices, the first token of each choice, and the number of the right one; then
what a task adds to them."""


@dataclass(frozen=True, kw_only=True)
class Config(FineTuning):
    """What is read, and the head."""

    read: Literal["both", "choices"] = "both"
    """The question and a choice, or the choice alone: a control that shows what the choices give away."""
    head_dropout: float = 0.0
    """Dropout on the vector of a pair before the head."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.head_dropout < 1.0:
            raise ValueError(f"head_dropout must be at least 0 and less than 1, but is {self.head_dropout}")
        self.check_tuning()


class Task(FineTuned):
    """Learn p(choice | question, choices) from questions with their answers."""

    config: Config
    columns = ("question", "choices", "answer")
    unread: tuple[str, ...] = ()
    open_ended = False
    can_compile = True
    parts = ("loss",)
    metrics: Mapping[str, Better] = {"loss": "lower", "accuracy": "higher"}

    def __init__(
        self, config: Config, tokenizers: Mapping[str, Tokenizer], labels: Mapping[str, LabelSet] | None = None
    ) -> None:
        self.config, self.tokenizers, self.text = config, tokenizers, tokenizers["choices"]
        self.question = tokenizers["question"]
        if self.question.vocabulary != self.text.vocabulary:
            raise UserError(
                "question and choices are read as one text, so they share a tokenizer", todo="text.shared=true"
            )
        self.choices, self.starts = encoders(self.text)
        vocabulary = self.text.vocabulary
        self.frame = vocabulary.pair_frame_length if config.read == "both" else vocabulary.frame_length

    @classmethod
    def kinds(cls, config: Config) -> Mapping[str, Kind]:
        """The kind of each column that is not plain text."""
        return {"choices": "choices", "answer": "choice"}

    def arrays(self) -> Sequence[Column]:
        """The tokens of the question and of all choices, the first token of each choice, and the right one."""
        starts = Column(1, self.starts, is_text=False)
        return [
            Column(0, self.question),
            Column(1, self.choices),
            starts,
            Column(2, RightChoice(), is_text=False, beside=(1,)),
        ]

    def build(self, model: ModuleType, config: Any) -> nn.Module:
        """The encoder with a head that gives one score per choice."""
        name, kind = model.__name__.rsplit(".", 1)[-1], model.Model
        if not issubclass(kind, Encoder):
            raise UserError(
                f"{name} encodes no text, so it cannot compare choices",
                todo="take an encoder, such as model.name=bert or model.name=rnn_classifier",
            )
        vocabularies = [self.text.vocabulary] * (2 if kind.reads_source else 1)
        encoder: Any = kind(config, *vocabularies)
        head = ChoiceHead(head_dims(encoder, self.config).pooled, self.config.head_dropout)
        return put_head(encoder, head, self.config)

    def examples(self, corpus: Prepared, seed: int, epoch: int) -> Any:
        """The questions that an epoch reads."""
        return corpus.epoch(seed, epoch)

    def plan(
        self, corpus: Prepared, *, tokens: int, sentences: int | None = None, multiple: int = 1, seed: int, epoch: int
    ) -> Sequence[Rows]:
        """Batches of questions whose pairs are of similar length; a question takes a row for each choice."""
        examples = corpus.epoch(seed, epoch)
        sizes = np.array([self.size(examples[place]) for place in range(len(examples))])
        return Buckets(
            sizes[:, 1:], tokens=tokens, sentences=sentences, rows=sizes[:, 0], multiple=multiple, long_alone=True,
            seed=seed, epoch=epoch,
        )  # fmt: skip

    def size(self, example: Example) -> tuple[int, int]:
        """The number of choices, and the number of tokens of the longest pair."""
        question, choices, starts, *_ = example
        longest = max(len(part) for part in np.split(choices, starts[1:]))
        return len(starts), longest + self.frame + (len(question) if self.config.read == "both" else 0)

    def batches(self, examples: Sequence[Example], tokens: int) -> Iterator[tuple[list[int], Batch]]:
        """All questions in batches for inference, each with their numbers."""
        sizes = [self.size(example) for example in examples]
        for group in by_length([width for _, width in sizes], tokens, rows=[count for count, _ in sizes]):
            yield group, self.collate([examples[place] for place in group])

    def prepare(self, rows: list[tuple[Any, ...]], random: np.random.Generator) -> Batch:
        """A padded batch of questions."""
        return self.collate([example for (example,) in rows])

    def collate(self, examples: Sequence[Example]) -> Batch:
        """A padded batch with a row for each choice."""
        vocabulary, types = self.text.vocabulary, None
        parts = [np.split(choices, starts[1:]) for _, choices, starts, *_ in examples]
        choices = [part for each in parts for part in each]
        if self.config.read == "both":
            questions = [question for (question, *_), each in zip(examples, parts, strict=True) for _ in each]
            tokens, lengths, types = pad_pairs(questions, choices, vocabulary)
        else:
            tokens, lengths = pad_texts(choices, vocabulary)
        ends = np.cumsum([len(each) for each in parts])
        places, _ = pad_rows([np.arange(end - len(each), end) for end, each in zip(ends, parts, strict=True)], -1)
        right = torch.tensor([int(answer[0]) if len(answer) else IGNORE for _, _, _, answer, *_ in examples])
        return Batch(tokens=tokens, lengths=lengths, token_types=types, choices=places, classes=right)

    def counts(self, batch: Batch) -> dict[str, int]:
        """The number of questions with a known answer, and of tokens."""
        known = int((right_of(batch) != IGNORE).sum())
        return {"loss": known, "accuracy": known, "tokens": int(batch.lengths.sum())}

    def loss(self, model: Any, batch: Batch, carry: Any) -> Loss:
        """The summed cross-entropy over the choices; with R-Drop that of two passes, which should agree."""
        known = right_of(batch) != IGNORE
        return with_r_drop(
            self.config.r_drop,
            model,
            lambda: self.one_pass(model, batch),
            lambda first, second: summed(symmetric_divergence(first, second), known),
        )

    def one_pass(self, model: Any, batch: Batch) -> tuple[Loss, Float[Tensor, "examples choices"]]:
        """The summed cross-entropy over the choices of each question, with the penalties of the model; the scores."""
        scores, penalties = self.scores(model, batch)
        right = right_of(batch)
        loss = F.cross_entropy(scores, right, ignore_index=IGNORE, reduction="sum")
        report = {"nll": loss.detach(), "accuracy": (scores.argmax(dim=1) == right).sum()}
        rows = rows_of(batch)
        of_choices = {name: penalty[rows.clamp(min=0)] for name, penalty in penalties.items()}
        loss = with_penalties(loss, report, of_choices, rows >= 0)
        return Loss(sums={"loss": loss}, report=report), scores

    def scores(self, model: Any, batch: Batch) -> tuple[Float[Tensor, "examples choices"], Mapping[str, Tensor]]:
        """The score of every choice in fp32, the lowest number where there is none; the penalties of the encoder."""
        encoded = read_layers(model, batch)
        scores, rows = model.head(encoded.pooled), rows_of(batch)
        found = scores[rows.clamp(min=0)]
        return found.masked_fill(rows < 0, torch.finfo(torch.float32).min), encoded.penalties

    def validate(self, model: nn.Module, corpus: Prepared, rows: Sequence[tuple[str, ...]], metric: str) -> list[Score]:
        """The mean loss and the accuracy on held-out questions."""
        examples: list[Any] = [corpus[place] for place in range(len(corpus))]
        return validation_scores(self, model, examples)

    def longest(self, model: nn.Module) -> int | None:
        """The maximum number of tokens that the model reads."""
        return longest_of(model)


def rows_of(batch: Batch) -> Int[Tensor, "examples choices"]:
    """The rows that are the choices of each question."""
    assert batch.choices is not None
    return batch.choices


def right_of(batch: Batch) -> Int[Tensor, " examples"]:
    """The right choice of each question."""
    assert batch.classes is not None
    return batch.classes
