"""Loss by position: the surprisal of a word by the number of words before it in the context.

    curve = loss_by_position(mallang.load("runs/gpt-miniworld"), texts)
    curve.of(Range(8, 15))

A text is cut into windows that begin at the start of a line, and each is read without what precedes it: the first word
of a window has only `<s>` as its context, the next one has one word, and so on. The curve of a model that uses more
context keeps falling; that of a 5-gram model stops falling after four words. A window is one line for a model that was
trained on separate lines (`lines`), else `width` words of text across line ends (`stream`).

Positions are counted in words between blanks, with `</s>` as a word, and the loss is in nats per word, the sum over its
tokens: so models with different tokenizers are comparable on the same words. For a model with a limited context a
window ends at that limit.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float64, Integer

from mallang.data.sampler import by_length
from mallang.data.streams import windows_batch
from mallang.decoding.contract import device_of
from mallang.decoding.scoring import score
from mallang.errors import UserError
from mallang.evaluation.score import Score, Statistics
from mallang.models.contract import TokenModel, TokenScorer, longest_of
from mallang.tasks import generation
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import BOS, EOS

Layout = Literal["lines", "stream"]
WIDTH = 128
"""Words per window, where it is not a line."""
BATCH_TOKENS = {"cpu": 4096, "cuda": 32768}
"""Tokens per batch."""


@dataclass(frozen=True)
class Range:
    """Words that have from `low` to `high` words before them."""

    low: int
    high: int
    count: int = 0
    """Number of words in this range."""
    unit = "words"

    @property
    def name(self) -> str:
        """Such as 8-15."""
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"

    def __len__(self) -> int:
        return self.count


@dataclass(frozen=True)
class Curve:
    """The nats of every word, by window and position; NaN where there is none."""

    nats: Float64[np.ndarray, "windows positions"]
    signature: str

    def of(self, some: Range) -> Score:
        """The mean of the words in a range, with its interval over windows."""
        part = self.nats[:, some.low : some.high + 1]
        table = np.stack((np.nansum(part, axis=1), (~np.isnan(part)).sum(axis=1)), axis=1)
        table = table[table[:, 1] > 0]
        if not len(table):
            return Score("nats per word", math.nan, self.signature, count=0)
        found = Statistics("nats per word", table, lambda sums: float(sums[0] / sums[1]), self.signature)
        return found.score()

    def counts(self) -> Integer[np.ndarray, " positions"]:
        """The number of words at each position."""
        found: np.ndarray = (~np.isnan(self.nats)).sum(axis=0)
        return found


def loss_by_position(
    model: generation.Verbs, texts: Sequence[str], *, layout: Layout | None = None, width: int = WIDTH
) -> Curve:
    """The curve of a model over a text given line by line; the default layout is that of its training."""
    if width < 1:
        raise UserError(f"a window of {width} words is too small", todo="give a number from 1")
    if layout is None:
        layout = layout_of(model.task)
    longest = longest_of(model.model)
    lines = [tokens_by_word(model.tokenizer, text) for text in texts]
    windows = [fitting(window, longest) for window in (lines if layout == "lines" else streamed(lines, width))]
    nats = np.full((len(windows), max((len(window) for window in windows), default=0)), np.nan)
    for row, numbers in by_windows(model.model, windows):
        nats[row, : len(numbers)] = numbers
    read = "line" if layout == "lines" else str(width)
    limit = "" if longest is None else f"|longest:{longest} tokens"
    return Curve(nats, f"unit:word|ends:counted|log:e|layout:{layout}|context:{read}{limit}")


def layout_of(task: Any) -> Layout:
    """The layout of windows that matches the training of a model."""
    return "stream" if task.config.layout == "stream" else "lines"


def ranges_of(curves: Iterable[Curve], ends: Sequence[int] | None = None) -> list[Range]:
    """The ranges of positions to report: 0, 1, 2-3, 4-7 … words before, or those that end at `ends`, and the rest.

    Their counts are those of the curve with the longest context.
    """
    counts = max((curve.counts() for curve in curves), key=len)
    if ends is None:
        ends = [2**power - 1 for power in range(len(counts).bit_length())]
    elif not ends or list(ends) != sorted(set(ends)) or ends[0] < 0:
        raise UserError(f"positions {list(ends)} do not rise from 0", todo="give the ends of ranges, such as 3,15,63")
    bounds = [(low + 1, high) for low, high in itertools.pairwise([-1, *ends, max(len(counts) - 1, ends[-1])])]
    found = [Range(low, min(high, len(counts) - 1), int(counts[low : high + 1].sum())) for low, high in bounds]
    return [some for some in found if some.count]


Words = list[list[int]]
"""The tokens of each word, in order."""


def tokens_by_word(tokenizer: Tokenizer, text: str) -> Words:
    """The tokens of a line, word by word, and `</s>`; a blank belongs to the word after it."""
    ends = [found.end() for found in re.finditer(r"\S+", text)]
    encoded = tokenizer.encode(text)
    starts = [begin for begin, _ in encoded.offsets]
    words: Words = [[] for _ in ends]
    for token, word in zip(encoded.ids, np.searchsorted(ends, starts, side="right").tolist(), strict=True):
        if ends:
            words[min(word, len(ends) - 1)].append(token)
        else:
            words.append([token])  # blanks alone
    return [*words, [EOS]]


def streamed(lines: Iterable[Words], width: int) -> Iterator[Words]:
    """Windows of `width` words across line ends; each begins with the first line after the window before it."""
    window: Words = []
    for line in lines:
        window += line
        if len(window) >= width:
            yield window[:width]
            window = []
    if window:
        yield window


def fitting(window: Words, longest: int | None) -> Words:
    """The first words of a window, as many as fit the model's context."""
    if longest is None:
        return window
    lengths = np.cumsum([len(word) for word in window])
    return window[: int(np.searchsorted(lengths, longest, side="right"))]


def by_windows(
    model: TokenModel | TokenScorer, windows: Sequence[Words]
) -> Iterator[tuple[int, Float64[np.ndarray, " words"]]]:
    """The nats of the words of each window, with its index; windows of similar length share a batch."""
    device = device_of(model)
    lengths = {number: length for number, window in enumerate(windows) if (length := sum(map(len, window)))}
    full = list(lengths)
    most = max(BATCH_TOKENS.get(device.type, 4096), *lengths.values())
    for places in by_length(list(lengths.values()), most):
        group = [full[place] for place in places]
        labels = [np.array([token for word in windows[number] for token in word]) for number in group]
        batch = windows_batch([(read(said), said) for said in labels])
        for number, numbers in zip(group, score(model, batch.to(device)), strict=True):
            first = np.cumsum([0, *(len(word) for word in windows[number])])[:-1]
            sums = np.add.reduceat(np.append(-np.array(numbers), 0.0), first)
            # reduceat gives an empty word the value that follows it
            yield number, np.where([len(word) > 0 for word in windows[number]], sums, 0.0)


def read(labels: Integer[np.ndarray, " labels"]) -> Integer[np.ndarray, " labels"]:
    """The input ids of labels: shifted by one, starting with `<s>`, and `<s>` in place of `</s>`."""
    before = np.concatenate(([BOS], labels[:-1]))
    return np.where(before == EOS, BOS, before)
