"""What a task owes the training loop, and what the verbs of a trained model declare.

Every task file holds `Config`, `Task`, `Verbs` and `DEFAULTS`: what a recipe of this task says unless it says something
else. What only some tasks or verbs can do is a protocol of its own: `isinstance(task, TextLayout)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

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
Evaluated = Literal["texts", "bags of words", "log-probabilities"]
"""What `evaluate` gives for each row beside the scores."""
Compared = Literal["outputs", "perplexity"]
"""What runs of a task are compared by: what they write, or how well they predict given texts."""


@dataclass(frozen=True)
class Group:
    """Parameters that are updated alike; their rate is the recipe's times `scale`."""

    parameters: Sequence[tuple[str, nn.Parameter]]
    scale: float = 1.0


@dataclass(frozen=True)
class Loss:
    """Named sums, each to be divided by its global count; `report` is watched but not minimized."""

    sums: Mapping[str, Tensor]
    report: Mapping[str, Tensor] = field(default_factory=dict)
    carry: Any = None
    """What the next batch of the same streams needs (an RNN's state)."""


@runtime_checkable
class Task(Protocol):
    """One file in `tasks/` holds a class of this shape, named `Task`, and its `Config`."""

    columns: tuple[str, ...]
    """The columns of text it reads."""
    unread: tuple[str, ...]
    """Options of a search that have no effect on this task."""
    open_ended: bool
    """Whether outputs continue a prompt freely: then no text has one right length or wording."""
    can_compile: bool
    """Whether its loss can be compiled: a loss that goes token by token would be compiled for every width."""
    parts: tuple[str, ...]
    """The names of the loss's parts."""
    metrics: Mapping[str, Better]
    """The numbers that `validate` gives, and which way is better."""
    tokenizers: Mapping[str, Tokenizer]
    """The tokenizer of each column."""

    def build(self, model: ModuleType, config: Any) -> nn.Module:
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
class StepAware(Protocol):
    """A task whose loss changes with the updates."""

    def at_step(self, step: int) -> None:
        """The coming update is number `step`, from 1. What depends on it must be a tensor that is changed in place."""


@runtime_checkable
class RateScaled(Protocol):
    """A task whose batches are not all to move the weights equally far."""

    def rate_factor(self, batch: Batch) -> float:
        """What the rate is multiplied by for this batch; an update of several takes the mean."""


@runtime_checkable
class TextLayout(Protocol):
    """A task that lays text out itself, in windows of one long text for instance."""

    carries: bool
    """Whether a batch continues where one before it ended; then `plan` is told how many `streams` there are, the
    micro-batches of an update, and gives batch k of an epoch to stream k mod streams."""
    width: int | None
    """How wide all batches are, if they are windows."""
    one_shape: bool
    """Whether nearly all batches have the same shape, so that it pays to compile for it."""

    def filters(self, data: Data) -> tuple[Filters, Filters]:
        """Which rows are trained on, and which are judged."""

    def shapes(self, tokens: int, sentences: int | None) -> Shapes | None:
        """The rectangles that batches are filled up to where an engine wants few; none: they are such already."""


@runtime_checkable
class Directed(Protocol):
    """A task that says in which direction texts are read."""

    backward: bool
    """Whether the tokens of a line are read from the last to the first."""


@dataclass(frozen=True)
class Written:
    """What a model writes for rows of a corpus, beside what they say."""

    sources: Sequence[str]
    """What the model was given: a source, a text, or a prompt."""
    outputs: Sequence[str]
    references: Sequence[str]
    cut: Sequence[bool] = ()
    """Whether each output ended at the length limit."""


@runtime_checkable
class Verbs(Protocol):
    """A trained model with all that people can do with it: the class `Verbs` of a task file."""

    task_name: ClassVar[str]
    """The file name of the task."""
    verbs: ClassVar[tuple[str, ...]]
    """The methods that commands may call, each of the name of its command."""
    compared_by: ClassVar[Compared | None]
    """What `mallang compare` compares runs of this task by; none: they cannot be compared."""
    task: Any
    """The task that the model was trained for."""
    model: Any
    """The model itself, with the capabilities of models/contract.py that it declares."""


@runtime_checkable
class Evaluating(Protocol):
    """Verbs that score a model on rows of a corpus."""

    @property
    def evaluated(self) -> Evaluated:
        """What `evaluate` gives for each row."""

    def evaluate(self, rows: Sequence[Any], **options: Any) -> tuple[list[Score], list[str]]:
        """All scores, each with its signature, and what was evaluated of each row."""


@runtime_checkable
class Writing(Protocol):
    """Verbs that write something for every row of a corpus."""

    def write_rows(self, rows: Sequence[Sequence[str]], domains: Sequence[str | None]) -> Written:
        """The outputs for rows of the task's columns, with the domain of each row."""


@runtime_checkable
class Joining(Protocol):
    """Verbs of models that can be one ensemble."""

    def ensemble(self, others: Sequence[Any]) -> Any:
        """This model and others as one."""
