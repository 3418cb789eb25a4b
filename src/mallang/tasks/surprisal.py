"""Surprisal of a whole text: the log-probability of every token, computed once each, in one of three context modes.

    carried   the text is one stream; a stateful model reads it from the first word to the last, with carried state
    sliding   the text is one stream; a model with a limited context reads sliding windows, each of which predicts its
              last `stride` tokens from as many tokens before them as fit
    lines     every line by itself after `<s>`; a line longer than the context in sliding windows

The mode follows from how the model was trained and what it can do. The signature of a perplexity names the mode,
because a model has another perplexity in another mode.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float64, Integer

from mallang import notebook
from mallang.data.batch import Batch
from mallang.data.sampler import Streams, by_length
from mallang.data.streams import Stream, lines_batch, windows_batch
from mallang.decoding.contract import device_of, inference
from mallang.decoding.scoring import label_log_probs, score
from mallang.text.vocabulary import PAD

BATCH_TOKENS = {"cpu": 4096, "cuda": 32768}
"""Tokens per batch."""
STEP = 512
"""Tokens per row and forward pass with carried state; it does not change the result."""


@dataclass(frozen=True)
class ContextMode:
    """How much context each token is predicted from: carried state, sliding windows, or one line."""

    kind: Literal["carried", "sliding", "lines"]
    context: int | None = None
    """Width of a window in tokens; none: unlimited."""
    stride: int | None = None
    """Tokens that each window predicts; none: all of them, windows do not overlap."""
    rows: int = 1
    """Parallel rows that a text with carried state is split into; each starts from the initial state."""

    @property
    def signature(self) -> str:
        """The context mode as it is written into the signature of a score."""
        layout = "lines" if self.kind == "lines" else "stream"
        if self.kind == "carried":
            return f"layout:{layout}|context:carried|stride:none|rows:{self.rows}"
        if self.context is None:
            return f"layout:{layout}|context:line|stride:none"
        return f"layout:{layout}|context:{self.context}|stride:{self.stride or self.context}"


@dataclass(frozen=True)
class Scored:
    """The log-probability of a text, token by token."""

    text: str
    score: float
    """Log-probability, `</s>` included."""
    tokens: tuple[str, ...]
    """The tokens of the text, and `</s>`."""
    token_scores: tuple[float, ...]
    places: tuple[tuple[int, int], ...] = ()
    """The character span of each token in the text."""
    unknown: tuple[str, ...] = ()
    """Words or characters of the text without a token: as labels they are `<unk>`."""

    @property
    def surprisals(self) -> tuple[float, ...]:
        """The surprisal of each token in bits: −log2 of its probability."""
        return tuple(abs(score) / math.log(2) for score in self.token_scores)

    @property
    def mean(self) -> float:
        """Mean log-probability per token."""
        return self.score / len(self.token_scores)

    def __str__(self) -> str:
        return f"{self.score:.4f}"

    def _repr_html_(self) -> str:
        bits = self.surprisals
        told = f"{self.score:.4f} · {sum(bits):.2f} bits, {sum(bits) / len(bits):.2f} per token"
        return notebook.block(self.text, notebook.surprisal(self.tokens, bits), notebook.note(told))


class Lines:
    """Lines of ids as a corpus of one column."""

    def __init__(self, lines: Sequence[Any]) -> None:
        self.lines = lines
        self.lengths = np.array([[len(line)] for line in lines], dtype=np.int64).reshape(-1, 1)

    @cached_property
    def flat(self) -> Integer[np.ndarray, " ids"]:
        """The concatenated ids of all lines, from which windows of a stream are cut."""
        return np.fromiter(itertools.chain.from_iterable(self.lines), np.int64, count=int(self.lengths.sum()))

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, number: int) -> tuple[Any]:
        return (self.lines[number],)


class Backward:
    """The lines of a corpus of one column, each with its tokens reversed."""

    def __init__(self, corpus: Any) -> None:
        self.corpus, self.lengths = corpus, corpus.lengths

    def __len__(self) -> int:
        return len(self.corpus)

    def __getitem__(self, number: int) -> tuple[Any]:
        return (self.corpus[number][0][::-1],)


def line_log_probs(model: Any, lines: Any, context_mode: ContextMode) -> list[Float64[np.ndarray, " _"]]:
    """For every line the natural log-probability of each of its tokens and of `</s>`.

    `lines` is a corpus of one column: prepared text, or `Lines`; or `Backward`, read line by line.
    """
    with inference(model):
        if context_mode.kind == "lines":
            return by_lines(model, lines, context_mode)
        stream = Stream(lines)
        flat = (carried if context_mode.kind == "carried" else sliding)(model, stream, context_mode)
    return np.split(flat, stream.ends[:-1])


def carried(model: Any, stream: Stream, context_mode: ContextMode) -> Float64[np.ndarray, " labels"]:
    """Log-probabilities with carried state: the text in a few parallel rows, each read from start to end."""
    device = device_of(model)
    rows = min(context_mode.rows, len(stream))
    found, carry = np.empty(len(stream)), None
    for windows in Streams(len(stream), rows=rows, width=STEP):
        batch = closed(model, windows_batch([window for (window,) in stream.gather(windows)])).to(device)
        output = model.forward_stateful(batch, carry)
        assert batch.labels is not None
        carry, asked = output.carry, batch.labels != PAD
        numbers = label_log_probs(model, output.hidden[asked], batch.labels[asked]).double().cpu().numpy()
        found[np.concatenate([np.arange(begin, end) for begin, end in windows])] = numbers
    return found


def sliding(model: Any, stream: Stream, context_mode: ContextMode) -> Float64[np.ndarray, " labels"]:
    """Log-probabilities in sliding windows, which overlap or are adjacent."""
    assert context_mode.context is not None
    found = np.empty(len(stream))
    bounds = windows_of(len(stream), context_mode.context, context_mode.stride or context_mode.context)
    together = max(1, BATCH_TOKENS.get(device_of(model).type, 4096) // context_mode.context)
    for first in range(0, len(bounds), together):
        some = bounds[first : first + together]
        batch = windows_batch([stream.window(int(begin), int(end)) for begin, _, end in some])
        for (_, fresh, end), numbers in zip(some, scored(model, batch, some[:, 1] - some[:, 0]), strict=True):
            found[fresh:end] = numbers
    return found


def by_lines(model: Any, lines: Any, context_mode: ContextMode) -> list[Float64[np.ndarray, " _"]]:
    """Log-probabilities of every line by itself; lines of similar length share a batch."""
    lengths = lines.lengths[:, 0].astype(np.int64) + 1
    most = context_mode.context or int(lengths.max(initial=1))
    found: list[Any] = [None] * len(lengths)
    for place in np.flatnonzero(lengths > most):
        found[place] = sliding(model, Stream(Lines([lines[int(place)][0]])), context_mode)
    short = np.flatnonzero(lengths <= most)
    budget = max(BATCH_TOKENS.get(device_of(model).type, 4096), most)
    for places in by_length(lengths[short].tolist(), budget):
        group = short[places]
        batch = lines_batch([lines[int(place)][0] for place in group])
        for place, numbers in zip(group, scored(model, batch), strict=True):
            found[place] = np.array(numbers)
    return found


def scored(model: Any, batch: Batch, known: Integer[np.ndarray, " rows"] | None = None) -> list[list[float]]:
    """The log-probabilities of the labels of each row, without the first `known` ones, which are computed already."""
    if known is not None and known.any():
        assert batch.labels is not None
        places = torch.arange(batch.labels.shape[1])
        batch.labels[places[None, :] < torch.from_numpy(known)[:, None]] = PAD
    return score(model, closed(model, batch).to(device_of(model)))


def closed(model: Any, batch: Batch) -> Batch:
    """The batch with `<unk>` for labels outside the vocabulary: words that a model can read but not predict."""
    assert batch.labels is not None
    batch.labels[batch.labels >= len(model.vocabulary)] = model.vocabulary.unk
    return batch


def windows_of(labels: int, context: int, stride: int) -> Integer[np.ndarray, "windows 3"]:
    """For each window: its first label, the first label that it predicts, and the end."""
    return np.array(list(_windows(labels, context, stride)), dtype=np.int64).reshape(-1, 3)


def _windows(labels: int, context: int, stride: int) -> Iterator[tuple[int, int, int]]:
    done = 0
    while done < labels:
        begin = done - (context - stride) if done else 0
        end = min(labels, begin + context)
        yield begin, done, end
        done = end
