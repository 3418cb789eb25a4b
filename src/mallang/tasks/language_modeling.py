"""Language modeling: predict the next token, in separate sentences, in one stream, or in packed documents.

    sentences   each line by itself, padded; lines of similar length share a batch
    stream      all lines as one text, in windows of `context` tokens:
                sequential: parallel rows; each window continues the one before it, with carried state (truncated
                back-propagation through time, over `context` tokens); shuffled: windows in random order
    packed      several whole documents in a row of `context` tokens, which do not attend to each other

With sentences, back-propagation through time is not truncated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Literal

import numpy as np
from torch import nn

from mallang.data.batch import Batch, Shapes
from mallang.data.corpus import Config as Data
from mallang.data.filters import Filters
from mallang.data.prepared import Prepared
from mallang.data.sampler import Buckets, Packed, Rows, Shuffled, Streams
from mallang.data.streams import Pieces, Stream, lines_batch, packed_batch, stream_ends, windows_batch
from mallang.errors import UserError
from mallang.evaluation.perplexity import perplexities
from mallang.evaluation.score import Score
from mallang.layers.head import cross_entropy_of
from mallang.layers.stateful import Stateful, StatefulOutput
from mallang.models.contract import Segmented, WordVectors, is_probability, longest_of, signature_of
from mallang.tasks.chat import check_chat
from mallang.tasks.contract import Better, Group, Loss
from mallang.tasks.generation import Verbs
from mallang.tasks.out_of_vocabulary import forget_oov, ids_to_read, validation_lines
from mallang.tasks.surprisal import Backward, ContextMode, Lines, line_log_probs
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import PAD

__all__ = ["DEFAULTS", "SECTIONS", "Config", "Task", "Verbs"]

SECTIONS = ("decoding",)
"""Sections of a recipe that this task reads besides those of every recipe."""
DEFAULTS = {"decoding": {"method": "sampling"}}
"""Defaults of a recipe of this task: a language model is a distribution, so texts are sampled from it."""
VALIDATION_ROWS = 16
"""Parallel rows in validation with carried state, for speed; `evaluate` reads the text in one row."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The layout of text into batches, and the windows of evaluation."""

    layout: Literal["sentences", "stream", "packed"] = "sentences"
    """Each line by itself, all lines as one stream, or several whole documents packed into a row."""
    context: int | None = None
    """Context window in tokens; required by stream and packed."""
    order: Literal["sequential", "shuffled"] = "sequential"
    """Order of the windows of a stream: sequential with carried state, or random."""
    jitter: bool = False
    """AWD-LSTM: randomize the width of each window of a sequential stream and scale its learning rate."""
    stride: int | None = None
    """Stride of sliding windows in evaluation: new tokens per window; none: windows do not overlap."""
    chat: dict[str, str] | None = None
    """The text of a turn by its role, system, user or assistant, with {text} where what is said stands: a served run
    then chats."""

    def __post_init__(self) -> None:
        if self.chat is not None:
            check_chat(self.chat)
        for name in ("context", "stride"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, but is {value}")
        if self.layout == "sentences" and self.context is not None:
            raise ValueError(f"context = {self.context} has no effect on sentences, which are read whole")
        if self.layout != "sentences" and self.context is None:
            raise ValueError(f"layout = {self.layout!r} needs context, the width of a window, such as 128")
        if self.layout != "stream" and self.order != "sequential":
            raise ValueError(f"order = {self.order!r} has no effect on {self.layout}; it is for layout = 'stream'")
        if self.jitter and (self.layout, self.order) != ("stream", "sequential"):
            raise ValueError("jitter is for a sequential stream alone")
        if self.stride and self.context and self.stride > self.context:
            raise ValueError(f"stride = {self.stride} would leave out tokens between windows of {self.context}")


class Task:
    """Learn p(next token | all tokens before it) from text."""

    columns = ("text",)
    parts = ("loss",)
    unread: tuple[str, ...] = ("coverage", "max_ratio")
    """Search options that need a source: a language model has none."""
    open_ended = True
    can_compile = True
    metrics: Mapping[str, Better] = {"loss": "lower"}
    backward = False
    """Whether the tokens of a line are read from the last to the first."""

    def __init__(self, config: Config, tokenizers: Mapping[str, Tokenizer]) -> None:
        self.config, self.tokenizers, self.text = config, tokenizers, tokenizers["text"]
        if self.text.domains:
            raise UserError("domains are marked by tags before a source, and a language model has no source")
        self.carries = config.layout == "stream" and config.order == "sequential"
        """Whether each batch continues the one before it, with carried state."""
        self.one_shape = config.context is not None and not config.jitter
        """Whether all batches but the last of an epoch have one shape, so that it pays to compile for it."""
        self.width = config.context
        """The width of all batches, if they are windows."""

    def build(self, model: ModuleType, config: Any) -> nn.Module:
        """The model for this vocabulary."""
        if model.Model.reads_source:
            raise UserError(
                f"{model.__name__.rsplit('.', 1)[-1]} reads one text and writes another: it is no language model",
                todo="task.name=translation, or a language model such as model.name=gpt",
            )
        if issubclass(model.Model, WordVectors):
            raise UserError(
                f"{model.__name__.rsplit('.', 1)[-1]} learns vectors of words, and predicts no next one",
                todo="task.name=word_vectors, or a language model such as model.name=gpt",
            )
        built: nn.Module = model.Model(config, self.text.vocabulary)
        self.check(built)
        return built

    def check(self, model: nn.Module) -> None:
        """Refuse a layout that this model cannot read, or would misread."""
        config, longest = self.config, longest_of(model)
        if self.carries and not isinstance(model, Stateful):
            raise UserError(
                "task.order = 'sequential' carries a state from window to window, and this model has none",
                todo="task.order=shuffled",
            )
        if config.layout == "packed" and not (isinstance(model, Segmented) and model.reads_segments):
            raise UserError(
                "task.layout = 'packed' puts several documents into a row, and this model would read them as one",
                todo="task.layout=sentences, or task.layout=stream",
            )
        if config.context and longest and config.context > longest:
            raise UserError(
                f"task.context = {config.context} is more than the {longest} tokens that the model can read",
                todo=f"task.context={longest}",
            )
        if config.stride:
            check_stride("task.stride", config.stride, self.context_mode(model).context)

    def filters(self, data: Data) -> tuple[Filters, Filters]:
        """The length filters of training and evaluation: streams and held-out text are never filtered."""
        everything = Filters(min_length=0, max_length=0, max_ratio=0.0, drop_empty=False)
        if self.config.layout == "sentences":
            some = replace(everything, min_length=data.min_length, max_length=data.max_length)
            return replace(some, drop_empty=data.min_length > 0, drop_duplicates=data.drop_duplicates), everything
        usual = Data()
        for name in ("min_length", "max_length"):
            if (value := getattr(data, name)) != getattr(usual, name):
                raise UserError(
                    f"data.{name} = {value} has no effect on layout = {self.config.layout!r}: no text is left out",
                    todo="leave it out; task.context says how much is read at once",
                )
        return replace(everything, drop_duplicates=data.drop_duplicates), everything

    def shapes(self, tokens: int, sentences: int | None) -> Shapes | None:
        """The shapes that batches are padded to where an engine needs few shapes."""
        if self.config.layout == "sentences":
            return Shapes(tokens, sentences)
        # Sequential windows have a fixed shape already, and padding would separate a window from the next.
        return None if self.carries else Shapes(tokens, sentences, multiple=self.config.context or 1)

    def examples(self, corpus: Prepared, seed: int, epoch: int) -> Any:
        """The lines of an epoch: one by one, as one stream, or split into pieces that fit a row."""
        lines = corpus.epoch(seed, epoch)
        if self.config.layout == "sentences":
            return lines
        return Stream(lines) if self.config.layout == "stream" else Pieces(lines, self.config.context or 1)

    def plan(
        self,
        corpus: Prepared,
        *,
        tokens: int,
        sentences: int | None = None,
        multiple: int = 1,
        seed: int,
        epoch: int,
        streams: int = 1,
    ) -> Sequence[Rows]:
        """Batches of lines of similar length, of windows, or of packed rows; `streams` batches make an update."""
        lines, width = corpus.epoch(seed, epoch), self.config.context
        if width is None:
            lengths = lines.lengths + 1
            return Buckets(lengths, tokens=tokens, sentences=sentences, multiple=multiple, seed=seed, epoch=epoch)
        rows = min(tokens // width, sentences or tokens)
        if rows < 1:
            raise UserError(
                f"a window of {width} tokens does not fit into a batch of {tokens}",
                todo="raise train.batch_tokens or lower task.context",
            )
        if self.config.layout == "packed":
            return Packed(Pieces(lines, width).lengths, width=width, rows=rows, seed=seed, epoch=epoch)
        labels = int(stream_ends(lines)[-1])
        if self.config.order == "shuffled":
            return Shuffled(labels, rows=rows, width=width, seed=seed, epoch=epoch)
        jitter = (seed, epoch) if self.config.jitter else None
        return Streams(labels, rows=rows, width=width, streams=streams, jitter=jitter)

    def prepare(self, rows: list[tuple[Any, ...]], random: np.random.Generator) -> Batch:
        """Inputs are `<s>` and the words; labels are the words and `</s>`."""
        if self.config.layout == "sentences":
            return lines_batch([line for ((line,),) in rows])
        return windows_batch([window for (window,) in rows]) if self.config.layout == "stream" else packed_batch(rows)

    def counts(self, batch: Batch) -> dict[str, int]:
        """The number of labels."""
        assert batch.labels is not None
        return {"loss": int((batch.labels != PAD).sum())}

    def loss(self, model: Any, batch: Batch, carry: Any) -> Loss:
        """Summed cross-entropy plus the regularizers of the model; the cross-entropy alone is reported as `nll`."""
        assert batch.labels is not None
        output = (
            model.forward_stateful(batch, carry) if isinstance(model, Stateful) else StatefulOutput(model(batch), None)
        )
        hidden, labels = output.hidden.flatten(0, 1), batch.labels.flatten()
        if not hidden.is_cuda:  # on a GPU, selecting the labels would synchronize with the host
            asked = labels != PAD
            hidden, labels = hidden[asked], labels[asked]
        loss, nll = cross_entropy_of(model, hidden, labels)
        for penalty in output.penalties.values():
            loss = loss + penalty
        report = {"nll": nll.detach(), **{name: value.detach() for name, value in output.penalties.items()}}
        return Loss(sums={"loss": loss}, report=report, carry=output.carry if self.carries else None)

    def rate_factor(self, batch: Batch) -> float:
        """The width of a jittered window divided by `context`: shorter windows take smaller steps.

        It scales the learning rate and not the loss, which gradient clipping or Adam would undo (Merity et al. 2017,
        section 5).
        """
        if not self.config.jitter or self.config.context is None:
            return 1.0
        return batch.tokens.shape[1] / self.config.context

    def updates(self, model: nn.Module) -> list[Group]:
        """One parameter group with all parameters."""
        return [Group(list(model.named_parameters()))]

    def context_mode(self, model: object, rows: int = 1, stride: int | None = None) -> ContextMode:
        """The context mode of evaluation; `rows` applies only to carried state."""
        stride = stride or self.config.stride
        if self.config.layout == "stream" and isinstance(model, Stateful):
            return ContextMode("carried", stride=stride, rows=rows)
        if self.config.layout == "stream":
            return ContextMode("sliding", self.config.context, stride)
        return ContextMode("lines", self.config.context or longest_of(model), stride)

    def asked_context_mode(self, model: object, rows: int = 1, stride: int | None = None) -> ContextMode:
        """The context mode for options that a user gives; options without effect are refused."""
        context_mode = self.context_mode(model, rows, stride)
        if rows > 1 and context_mode.kind != "carried":
            raise UserError("parallel rows need carried state; this model reads windows or lines")
        if stride is not None:
            check_stride("stride", stride, context_mode.context)
        elif context_mode.stride:  # an ensemble may have a shorter context than the model the task was checked with
            check_stride("task.stride", context_mode.stride, context_mode.context)
        if rows < 1:
            raise UserError(f"a text cannot be read in {rows} rows", todo="give 1 or more")
        return context_mode

    def validate(self, model: nn.Module, corpus: Prepared, rows: Sequence[tuple[str, ...]], metric: str) -> list[Score]:
        """The mean loss per token, `</s>` included; unseen words are read as `evaluate` reads them."""
        context_mode = self.context_mode(model, VALIDATION_ROWS)
        with validation_lines(model, self.text, corpus, rows) as lines:
            found = np.concatenate(line_log_probs(model, Backward(lines) if self.backward else lines, context_mode))
        what = "nats per token" if is_probability(model) else "scores of tokens, no probabilities"
        signed = f"{what}|</s> counted|{joined_signature(model, context_mode)}{'|backward' if self.backward else ''}"
        return [Score("loss", -float(found.mean()), signed, count=len(found))]

    def perplexity(
        self, model: nn.Module, texts: Sequence[str], *, rows: int = 1, stride: int | None = None
    ) -> tuple[list[Score], list[float]]:
        """Perplexity per token, word and byte of a text, given line by line; and the log-probability of each line.

        With carried state the text is read in parallel `rows`; `stride` overrides that of the configuration.
        """
        if not is_probability(model):
            raise UserError(
                "the scores of this model do not sum to 1 over all words, so it has no perplexity",
                todo="mallang score compares texts by it; model.smoothing=katz has probabilities",
            )
        context_mode = self.asked_context_mode(model, rows, stride)
        forget_oov(model)
        lines = ids_to_read(model, self.text, texts, self.text.encode_batch(list(texts)))
        sums = [float(numbers.sum()) for numbers in line_log_probs(model, Lines(lines), context_mode)]
        scores = perplexities(
            sums,
            tokens=[len(line) for line in lines],
            words=[len(text.split()) for text in texts],
            bytes=[len(text.encode()) for text in texts],
            tokenizer=self.text.config.unit,
            context_mode=joined_signature(model, context_mode),
        )
        return list(scores.values()), sums


def check_stride(name: str, stride: int, context: int | None) -> None:
    """Refuse a stride that has no effect, or would leave out tokens between windows of this context."""
    if context is None:
        raise UserError(
            f"{name} = {stride} has no effect: a stride is for windows, and this model reads texts without windows",
            todo="leave it out",
        )
    if not 0 < stride <= context:
        what = f"{name} must lie between 1 and the context, {context}, but is {stride}"
        raise UserError(what, todo="raise it" if stride < 1 else "lower it")


def joined_signature(model: object, context_mode: ContextMode) -> str:
    """The signature of the context mode, and what the model adds to it."""
    return "|".join(part for part in (context_mode.signature, signature_of(model)) if part)
