"""What a task owes the training loop: examples, batches, a loss in counted parts, and a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from torch import Tensor, nn

from mallang.data.batch import Batch, Shapes
from mallang.data.corpus import Config as Data
from mallang.data.filters import Filters
from mallang.data.prepared import Prepared
from mallang.data.sampler import Rows
from mallang.evaluation.score import Score
from mallang.text.tokenizer import Tokenizer

Better = Literal["lower", "higher"]


@dataclass(frozen=True)
class Group:
    """Parameters that are updated alike; their rate is the recipe's times `scale`."""

    parameters: Sequence[tuple[str, nn.Parameter]]
    scale: float = 1.0


@dataclass(frozen=True)
class Loss:
    """Named sums, each to be divided by its global count; `report` is watched but not minimised."""

    sums: Mapping[str, Tensor]
    report: Mapping[str, Tensor] = field(default_factory=dict)
    carry: Any = None
    """What the next batch of the same streams needs (an RNN's state)."""


@runtime_checkable
class Task(Protocol):
    """One file in `tasks/` holds a class of this shape, named `Task`, and its `Config`."""

    columns: tuple[str, ...]
    """The columns of text it reads."""
    parts: tuple[str, ...]
    """The names of the loss's parts."""
    metrics: Mapping[str, Better]
    """The numbers that `validate` gives, and which way is better."""
    tokenizers: Mapping[str, Tokenizer]
    """The tokeniser of each column."""

    def build(self, model: Any, config: Any) -> nn.Module:
        """The model of this module and configuration for this task's vocabularies."""

    def examples(self, corpus: Prepared, seed: int, epoch: int) -> Sequence[Any]:
        """The examples of an epoch, by number."""

    def plan(
        self, corpus: Prepared, *, tokens: int, sentences: int | None = None, multiple: int = 1, seed: int, epoch: int
    ) -> Sequence[Rows]:
        """The batches of an epoch, by the sampler that suits the task; widths will be rounded up to `multiple`."""

    def prepare(self, rows: list[tuple[Any, ...]], random: np.random.Generator) -> Batch:
        """Rows of examples to a padded batch."""

    def counts(self, batch: Batch) -> dict[str, int]:
        """By what each part of the loss will be divided; known before the model runs."""

    def loss(self, model: nn.Module, batch: Batch, carry: Any) -> Loss:
        """The loss of a batch, in parts."""

    def updates(self, model: nn.Module) -> list[Group]:
        """Which parameters are trained."""

    def validate(self, model: nn.Module, corpus: Prepared, rows: Sequence[tuple[str, ...]], metric: str) -> list[Score]:
        """The scores of a model on held-out text: the mean loss, and the metric that decides if it is another."""


@runtime_checkable
class Paced(Protocol):
    """A task whose loss changes with the updates."""

    def at_step(self, step: int) -> None:
        """The coming update is number `step`, from 1. What depends on it must be a tensor that is changed in place."""


@runtime_checkable
class Varying(Protocol):
    """A task whose batches are not all to move the weights equally far."""

    def rate_factor(self, batch: Batch) -> float:
        """What the rate is multiplied by for this batch; an update of several takes the mean."""


@runtime_checkable
class Laying(Protocol):
    """A task that lays text out itself, in windows of one long text for instance."""

    carries: bool
    """Whether a batch goes on where one before it ended; then `plan` is told how many `lanes` there are, the
    micro-batches of an update, and gives batch k of an epoch to lane k mod lanes."""
    width: int | None
    """How wide all batches are, if they are windows."""
    one_shape: bool
    """Whether nearly all batches have the same shape, so that it pays to compile for it."""

    def filters(self, data: Data) -> tuple[Filters, Filters]:
        """Which rows are trained on, and which are judged."""

    def shapes(self, tokens: int, sentences: int | None) -> Shapes | None:
        """The rectangles that batches are filled up to where an engine wants few; none: they are such already."""
