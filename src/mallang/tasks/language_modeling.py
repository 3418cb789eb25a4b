"""Language modeling: what comes next, in sentences, in one long text, or in packed documents.

    sentences   each line by itself, padded, lines of like length together
    stream      all lines as one text, in windows of `context` tokens:
                sequential: parallel rows that continue where they ended, with the state carried along (truncated
                back-propagation through time, over `context` tokens); shuffled: windows in random order
    packed      several whole documents in a row of `context` tokens, none of which sees another

A context as long as the longest line, in sentences, is back-propagation through all of time.
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
from mallang.models.contract import Segmented, is_probability, longest_of, signature_of
from mallang.tasks.contract import Better, Group, Loss
from mallang.tasks.generation import Verbs
from mallang.tasks.out_of_vocabulary import forget_oov, ids_to_read
from mallang.tasks.surprisal import Backward, ContextMode, Lines, line_log_probs
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import PAD

__all__ = ["DEFAULTS", "Config", "Task", "Verbs"]

DEFAULTS = {"decoding": {"method": "sampling"}}
"""What a recipe says unless it says something else: a language model is a distribution, so texts are drawn from it."""
VALIDATION_ROWS = 16
"""Parallel rows of a carried text in validation, where a number is wanted soon; `evaluate` reads it as one."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """How text is laid out in batches, and how it is read in evaluation."""

    layout: Literal["sentences", "stream", "packed"] = "sentences"
    """Each line by itself, all lines as one text, or several whole documents a row."""
    context: int | None = None
    """Width of a window, in tokens: stream and packed need it."""
    order: Literal["sequential", "shuffled"] = "sequential"
    """Windows of a stream continue where the last ones ended and carry the state along, or come in random order."""
    jitter: bool = False
    """Draw each window's width in a sequential stream again, about `context`, and scale its rate, as AWD-LSTM does."""
    stride: int | None = None
    """Tokens that a window predicts in evaluation, seeing those before them; none: all, windows do not overlap."""

    def __post_init__(self) -> None:
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
    """Options of a search that need a source, which there is none of."""
    open_ended = True
    can_compile = True
    metrics: Mapping[str, Better] = {"loss": "lower"}
    backward = False
    """Whether the tokens of a line are read from the last to the first."""

    def __init__(self, config: Config, tokenizers: Mapping[str, Tokenizer]) -> None:
        self.config, self.tokenizers, self.text = config, tokenizers, tokenizers["text"]
        if self.text.domains:
            raise UserError("domains are told by tags before a source, and a language model has no source")
        self.carries = config.layout == "stream" and config.order == "sequential"
        """Whether a batch continues where the one before it ended."""
        self.one_shape = config.context is not None and not config.jitter
        """Whether all batches are alike but for the last of an epoch, so that a compiler may count on it."""
        self.width = config.context
        """How wide all batches are, if they are windows."""

    def build(self, model: ModuleType, config: Any) -> nn.Module:
        """The model for this vocabulary."""
        if model.Model.reads_source:
            raise UserError(
                f"{model.__name__.rsplit('.', 1)[-1]} reads one text and writes another: it is no language model",
                todo="task.name=translation, or a language model such as model.name=gpt",
            )
        built: nn.Module = model.Model(config, self.text.vocabulary)
        self.check(built)
        return built

    def check(self, model: nn.Module) -> None:
        """Refuse what this model cannot do, or would not notice."""
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
        """Which rows are trained on and which are judged: of one long text, and of held-out text, all."""
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
        """The rectangles that batches are filled up to where an engine wants few shapes."""
        if self.config.layout == "sentences":
            return Shapes(tokens, sentences)
        # Windows that go on have their shape already, and padding would stand between a window and the next.
        return None if self.carries else Shapes(tokens, sentences, multiple=self.config.context or 1)

    def examples(self, corpus: Prepared, seed: int, epoch: int) -> Any:
        """The lines that an epoch reads, as one stream, or in pieces that fit a row."""
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
        """Lines of like length together, windows, or filled rows; `streams` is how many batches make an update."""
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
        """`<s>` and the words predict the words and `</s>`."""
        if self.config.layout == "sentences":
            return lines_batch([line for ((line,),) in rows])
        return windows_batch([window for (window,) in rows]) if self.config.layout == "stream" else packed_batch(rows)

    def counts(self, batch: Batch) -> dict[str, int]:
        """The tokens that are asked for."""
        assert batch.labels is not None
        return {"loss": int((batch.labels != PAD).sum())}

    def loss(self, model: Any, batch: Batch, carry: Any) -> Loss:
        """Cross-entropy, summed, and the penalties of the model; the plain sum is reported as `nll`."""
        assert batch.labels is not None
        output = (
            model.forward_stateful(batch, carry) if isinstance(model, Stateful) else StatefulOutput(model(batch), None)
        )
        hidden, labels = output.hidden.flatten(0, 1), batch.labels.flatten()
        if not hidden.is_cuda:  # a GPU would have to wait for the host to learn how many there are
            asked = labels != PAD
            hidden, labels = hidden[asked], labels[asked]
        loss, nll = cross_entropy_of(model, hidden, labels)
        for penalty in output.penalties.values():
            loss = loss + penalty
        report = {"nll": nll.detach(), **{name: value.detach() for name, value in output.penalties.items()}}
        return Loss(sums={"loss": loss}, report=report, carry=output.carry if self.carries else None)

    def rate_factor(self, batch: Batch) -> float:
        """The width of a jittered window over `context`: one that says less moves the weights less.

        A factor of the rate and not of the loss, which clipping or Adam would undo (Merity et al. 2017, section 5).
        """
        if not self.config.jitter or self.config.context is None:
            return 1.0
        return batch.tokens.shape[1] / self.config.context

    def updates(self, model: nn.Module) -> list[Group]:
        """All parameters alike."""
        return [Group(list(model.named_parameters()))]

    def context_mode(self, model: object, rows: int = 1, stride: int | None = None) -> ContextMode:
        """In which way a text is read in evaluation; `rows` is of use to a carried text alone."""
        stride = stride or self.config.stride
        if self.config.layout == "stream" and isinstance(model, Stateful):
            return ContextMode("carried", stride=stride, rows=rows)
        if self.config.layout == "stream":
            return ContextMode("sliding", self.config.context, stride)
        return ContextMode("lines", self.config.context or longest_of(model), stride)

    def asked_context_mode(self, model: object, rows: int = 1, stride: int | None = None) -> ContextMode:
        """The same as someone asks for it, who is told what has no effect."""
        context_mode = self.context_mode(model, rows, stride)
        if rows > 1 and context_mode.kind != "carried":
            raise UserError("parallel rows are for a text that is carried on; this model reads windows or lines")
        if stride is not None:
            check_stride("stride", stride, context_mode.context)
        elif context_mode.stride:  # an ensemble may read less at once than the model that the task was checked with
            check_stride("task.stride", context_mode.stride, context_mode.context)
        if rows < 1:
            raise UserError(f"a text cannot be read in {rows} rows", todo="give 1 or more")
        return context_mode

    def validate(self, model: nn.Module, corpus: Prepared, rows: Sequence[tuple[str, ...]], metric: str) -> list[Score]:
        """The mean loss a token, `</s>` counted."""
        context_mode = self.context_mode(model, VALIDATION_ROWS)
        found = np.concatenate(line_log_probs(model, Backward(corpus) if self.backward else corpus, context_mode))
        what = "nats per token" if is_probability(model) else "scores of tokens, no probabilities"
        signed = f"{what}|</s> counted|{joined_signature(model, context_mode)}{'|backward' if self.backward else ''}"
        return [Score("loss", -float(found.mean()), signed, count=len(found))]

    def perplexity(
        self, model: nn.Module, texts: Sequence[str], *, rows: int = 1, stride: int | None = None
    ) -> tuple[list[Score], list[float]]:
        """Perplexity per token, word and byte of a whole text, given line by line; and what each line contributes.

        A carried text is read in so many parallel `rows`; `stride` stands above that of the configuration.
        """
        if not is_probability(model):
            raise UserError(
                "what this model gives are scores that do not sum to 1 over all words, so it has no perplexity",
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
    """In which way a text was read, and what the model adds to that."""
    return "|".join(part for part in (context_mode.signature, signature_of(model)) if part)
