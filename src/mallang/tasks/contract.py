"""The contract of tasks: examples, batches, losses and validation for training, and the verbs of a trained model.

Every task file holds `Config`, `Task`, `Verbs` and `DEFAULTS`, the defaults of a recipe of this task. Optional
capabilities are protocols of their own: `isinstance(task, TextLayout)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from torch import Tensor, nn

from mallang.data.batch import Batch, Shapes
from mallang.data.columns import TOKENIZED, Column, Kind, LabelSet
from mallang.data.corpus import Config as Data
from mallang.data.filters import Filters
from mallang.data.knowledge import Graph
from mallang.data.prepared import Prepared
from mallang.data.sampler import Rows
from mallang.evaluation.label_predictions import Calibration, LabelPredictions
from mallang.evaluation.score import Score
from mallang.evaluation.tag_predictions import TagPredictions
from mallang.text.tokenizer import Tokenizer

if TYPE_CHECKING:  # schema.py needs this file, and opening a run needs schema.py
    from mallang.runs.given import Given

Better = Literal["lower", "higher"]
Evaluated = Literal[
    "texts", "bags of words", "log-probabilities", "labels", "tags", "numbers", "word pairs", "answers", "choices",
    "masked tokens", "ranks", "clusters", "roles",
]  # fmt: skip
"""What `evaluate` gives beside the scores: something for each row, or all pairs of words that it has scored."""
Compared = Literal["outputs", "perplexity"] | tuple[str, ...]
"""What runs of a task are compared by: outputs, perplexity of given texts, or the first of these scores."""


@dataclass(frozen=True)
class Group:
    """A parameter group; its learning rate is that of the recipe times `scale`."""

    parameters: Sequence[tuple[str, nn.Parameter]]
    scale: float = 1.0
    optimizer: Literal["recipe", "rmsprop"] = "recipe"
    """The optimizer of the recipe, or one of its own."""


@dataclass(frozen=True)
class Loss:
    """Named sums, each to be divided by its global count; `report` is logged but not minimized."""

    sums: Mapping[str, Tensor]
    report: Mapping[str, Tensor] = field(default_factory=dict)
    carry: Any = None
    """The carried state for the next batch of the same streams, such as the hidden state of an RNN."""


@runtime_checkable
class Task(Protocol):
    """One file in `tasks/` holds a class of this shape, named `Task`, and its `Config`."""

    columns: tuple[str, ...]
    """The columns of text that it reads."""
    unread: tuple[str, ...]
    """Options of a search that have no effect on this task."""
    open_ended: bool
    """Whether outputs continue a prompt freely: then no text has one right length or wording."""
    can_compile: bool
    """Whether its loss can be compiled: a loss with a loop over tokens would be compiled for every width."""
    parts: tuple[str, ...]
    """The names of the loss's parts."""
    metrics: Mapping[str, Better]
    """The metrics that `validate` gives, and whether higher or lower is better."""
    tokenizers: Mapping[str, Tokenizer]
    """The tokenizer of each column."""

    def build(self, model: ModuleType, config: Any) -> nn.Module:
        """The model of this module and configuration for this task's vocabularies."""

    def examples(self, corpus: Prepared, seed: int, epoch: int) -> Sequence[Any]:
        """The examples of an epoch, by index."""

    def plan(
        self, corpus: Prepared, *, tokens: int, sentences: int | None = None, multiple: int = 1, seed: int, epoch: int
    ) -> Sequence[Rows]:
        """The batches of an epoch, from the sampler of the task; widths will be rounded up to `multiple`."""

    def prepare(self, rows: list[tuple[Any, ...]], random: np.random.Generator) -> Batch:
        """Collate examples into a padded batch."""

    def counts(self, batch: Batch) -> dict[str, int]:
        """The count that each part of the loss is divided by; known before the model runs.

        A reported metric is divided by the count of its name, if there is one; `tokens` is the number of tokens read.
        """

    def loss(self, model: nn.Module, batch: Batch, carry: Any) -> Loss:
        """The loss of a batch, in parts."""

    def updates(self, model: nn.Module) -> list[Group]:
        """The parameter groups of the optimizer."""

    def validate(self, model: nn.Module, corpus: Prepared, rows: Sequence[tuple[str, ...]], metric: str) -> list[Score]:
        """Scores on held-out text: the mean loss, and `metric`, which selects the best checkpoint, if it is another."""


@runtime_checkable
class StepAware(Protocol):
    """A task whose loss depends on the step number."""

    def at_step(self, step: int) -> None:
        """Called before update `step`, counted from 1. What depends on it must be a tensor, changed in place."""


@runtime_checkable
class Unfreezing(Protocol):
    """A task that trains some parameters only from a later update on."""

    def unfreeze(self, model: nn.Module, step: int) -> bool:
        """Called before update `step`, counted from 1: set what requires a gradient; whether anything changed.

        It depends on the step alone, so that a resumed run trains the same parameters. `updates` has them all.
        """


@runtime_checkable
class RateScaled(Protocol):
    """A task that scales the learning rate by batch."""

    def rate_factor(self, batch: Batch) -> float:
        """The factor of the learning rate for this batch; an update over several batches takes the mean."""


@runtime_checkable
class TextLayout(Protocol):
    """A task with its own layout of text into batches, such as windows of one stream."""

    carries: bool
    """Whether a batch continues an earlier one, with its state. `plan` then gets the number of `streams`, that is the
    micro-batches of an update, and batch k of an epoch belongs to stream k mod streams."""
    width: int | None
    """The width of all batches, if they are windows."""
    one_shape: bool
    """Whether nearly all batches have one shape, so that it pays to compile for it."""

    def filters(self, data: Data) -> tuple[Filters, Filters]:
        """The length filters of training rows and of evaluation rows."""

    def shapes(self, tokens: int, sentences: int | None) -> Shapes | None:
        """The shapes that batches are padded to where an engine needs few shapes; none: no padding is needed."""


@runtime_checkable
class TwoPhases(Protocol):
    """A task whose first epochs read texts in shorter pieces than all later ones."""

    @property
    def first_phase(self) -> int:
        """The number of these epochs; 0: there are none."""


@runtime_checkable
class Directed(Protocol):
    """A task that declares the direction in which texts are read."""

    backward: bool
    """Whether the tokens of a line are read from the last to the first."""


@runtime_checkable
class Labeled(Protocol):
    """A task that reads columns other than text: labels, tags, numbers, or text in words or sentences.

    Its class takes the sets of labels by column as a third argument, after the configuration and the tokenizers, if a
    column is no text.
    """

    @classmethod
    def kinds(cls, config: Any) -> Mapping[str, Kind]:
        """The kind of each column that is not plain text."""

    def arrays(self) -> Sequence[Column]:
        """The arrays that a row becomes, in the order in which `prepare` gets them."""


@runtime_checkable
class Showing(Protocol):
    """A task that makes examples out of plain text, by masking or pairing, and can show them."""

    def shown(self, given: Prepared | Sequence[str], count: int, seed: int) -> list[dict[str, str]]:
        """The first examples of a corpus, or of texts, each as cells by the name of their column."""


@runtime_checkable
class Receiving(Protocol):
    """A task that may be given other runs, by the names of [given] in a recipe.

    Its class takes them by name as its last argument, `given`; it refuses a run that does not obey the contract that it
    needs, usually `Encoder`.
    """

    @classmethod
    def receives(cls) -> Mapping[str, str]:
        """The names that it accepts, and what each is for."""


@runtime_checkable
class Distilling(Protocol):
    """A task whose model learns from a given run: it has the tokenizers of that run, and needs it in training alone."""

    @classmethod
    def learns_from(cls) -> str:
        """The name of that run in [given]."""

    @classmethod
    def left_out(cls) -> str:
        """What the names of the weights begin with that serve training alone: a finished run leaves them out."""


def kept_weights(kind: type[Any], weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The weights of a model that a finished run of a task keeps: all of them for most tasks."""
    if not issubclass(kind, Distilling):
        return weights
    return {name: value for name, value in weights.items() if not name.startswith(kind.left_out())}


@runtime_checkable
class Marking(Protocol):
    """A task whose texts have special tokens beyond pad, unk, bos and eos: its tokenizers are trained with them."""

    @classmethod
    def special_tokens(cls, config: Any) -> tuple[str, ...]:
        """The names of these tokens: mask, cls, sep."""


def special_tokens(kind: type[Any], config: Any) -> tuple[str, ...]:
    """The special tokens that a task needs beyond the usual four; none for most tasks."""
    return kind.special_tokens(config) if issubclass(kind, Marking) else ()


def column_kinds(kind: type[Any], config: Any) -> Mapping[str, Kind]:
    """The kinds of a task's columns that are not plain text; none for most tasks."""
    return kind.kinds(config) if issubclass(kind, Labeled) else {}


def text_columns(kind: type[Any], config: Any) -> tuple[str, ...]:
    """The columns of a task that have a tokenizer."""
    kinds = column_kinds(kind, config)
    return tuple(column for column in kind.columns if kinds.get(column, "text") in TOKENIZED)


def make_task(
    kind: type[Any],
    config: Any,
    tokenizers: Mapping[str, Tokenizer],
    labels: Mapping[str, LabelSet],
    given: Mapping[str, Given],
    graph: Graph | None = None,
) -> Any:
    """The task of a class, with the sets of labels, the given runs and the graph that it declares to take."""
    arguments: list[Any] = [] if set(column_kinds(kind, config).values()) <= set(TOKENIZED) else [labels]
    named = {"given": given or None, "graph": graph}
    return kind(config, tokenizers, *arguments, **{name: value for name, value in named.items() if value is not None})


@dataclass(frozen=True)
class Written:
    """The outputs of a model for rows of a corpus, with their inputs and references."""

    sources: Sequence[str]
    """The inputs of the model: sources, texts, or prompts."""
    outputs: Sequence[str]
    references: Sequence[str]
    cut: Sequence[bool] = ()
    """Whether each output ended at the length limit."""


@runtime_checkable
class Verbs(Protocol):
    """A trained model with the operations it offers: the class `Verbs` of a task file."""

    task_name: ClassVar[str]
    """The file name of the task."""
    verbs: ClassVar[tuple[str, ...]]
    """The methods that commands may call; each has the name of its command."""
    compared_by: ClassVar[Compared | None]
    """The criterion of `mallang compare` for runs of this task; none: they have no score."""
    task: Any
    """The task that the model was trained for."""
    model: Any
    """The model itself, with the capabilities of models/contract.py that it declares."""


@runtime_checkable
class Evaluating(Protocol):
    """Verbs that evaluate a model on rows of a corpus."""

    @property
    def evaluated(self) -> Evaluated:
        """What `evaluate` gives for each row."""

    def evaluate(self, rows: Sequence[Any], **options: Any) -> tuple[list[Score], list[str]]:
        """All scores, each with its signature, and the evaluated text or number of each row."""


@runtime_checkable
class ReadsFacts(Protocol):
    """Verbs that leave triples out of account that are known to be true."""

    task: Any
    facts: Callable[[], Iterable[tuple[str, ...]]] | None
    """Reads all of them, in the columns of the task; None: there is no data to read them from."""


@runtime_checkable
class Calibrated(Protocol):
    """Verbs whose probabilities can be calibrated."""

    calibration: Calibration | None
    """What was fitted on the dev set after training, if anything was."""


@runtime_checkable
class Calibrating(Calibrated, Protocol):
    """Verbs that fit a calibration on a dev set by themselves."""

    def fit_calibration(self, rows: Sequence[Any]) -> Calibration | None:
        """What these rows give; none where the run has nothing to calibrate."""


@runtime_checkable
class Attributing(Protocol):
    """Verbs that attribute the score of a label to the tokens of a text."""

    def attribution(self, texts: Any, *, method: Any = ..., label: str | None = None) -> Any:
        """An `Attribution` of a text, or of each; where every word has a label, a list of one per word."""


@runtime_checkable
class PredictsLabels(Protocol):
    """Verbs that predict labels, with a probability for each."""

    def predictions(self, texts: Sequence[Any], golds: Sequence[str] | None = None) -> LabelPredictions:
        """The predictions for texts, or for pairs of texts, beside their gold labels where these are given."""


@runtime_checkable
class ReadsPairs(Protocol):
    """Verbs whose inputs are pairs of texts."""

    reads_pairs: ClassVar[bool]
    """Whether every input is two texts, and not one."""

    def note_cut(self, pairs: Sequence[Any]) -> str:
        """A sentence about the pairs that the model cannot read to their ends; empty where it can."""


@runtime_checkable
class Controlled(Protocol):
    """Verbs whose scores have a control: the same training run with less to read."""

    @property
    def control(self) -> tuple[str, ...]:
        """The recipe values that make the control of this run; none: it is a control itself."""


@runtime_checkable
class Cutting(Protocol):
    """A task that cuts examples which the model cannot read to their ends."""

    def note_cut(self, corpus: Prepared) -> str:
        """A sentence about the examples that lose tokens, after `build`; empty where none does."""


@runtime_checkable
class PredictsTags(Protocol):
    """Verbs that predict a tag for every word, with a probability for each."""

    def tag_predictions(self, rows: Sequence[tuple[str, ...]]) -> TagPredictions:
        """The predictions for rows of words and gold tags."""


@runtime_checkable
class Writing(Protocol):
    """Verbs that generate an output for every row of a corpus."""

    def write_rows(self, rows: Sequence[Sequence[str]], domains: Sequence[str | None]) -> Written:
        """The outputs for rows of the task's columns, with the domain of each row."""


@runtime_checkable
class Joining(Protocol):
    """Verbs of models that can form an ensemble."""

    def ensemble(self, others: Sequence[Any]) -> Any:
        """The ensemble of this model and others."""
