"""Text as one long stream, and windows of it.

Between two lines stands one boundary, said as `</s>` and read as `<s>`:

    lines     a b | c
    labels    a   b  </s>  c  </s>
    inputs    <s> a   b   <s>  c

So whoever has read a stream begins a sentence after `<s>`, like one who has read sentences, and every token of the
text is a label exactly once. Lines are found by arithmetic: nothing is copied but the window that is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Integer

from mallang.data.batch import Batch, pad_rows
from mallang.text.vocabulary import BOS, EOS

Window = tuple[Integer[np.ndarray, " _"], Integer[np.ndarray, " _"]]
"""What is read, and what is to be said."""


class Stream:
    """The lines of a corpus as one text; a row of a plan names the first label of a window and the one after its last.

    `lines` gives a tuple of one array a line, and knows their `lengths`.
    """

    def __init__(self, lines: Any) -> None:
        self.lines = lines
        self.flat = getattr(lines, "flat", None)
        self.ends = stream_ends(lines)

    def __len__(self) -> int:
        return int(self.ends[-1])

    def window(self, begin: int, end: int) -> Window:
        """Labels `begin` to `end`, excluded, and what is read before each of them."""
        if begin >= end:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        labels = self.labels(max(begin - 1, 0), end)
        inputs = np.where(labels == EOS, BOS, labels)
        return (inputs[:-1], labels[1:]) if begin else (np.concatenate(([BOS], inputs[:-1])), labels)

    def labels(self, begin: int, end: int) -> Integer[np.ndarray, " _"]:
        """The labels from `begin` to `end`, excluded."""
        first = int(np.searchsorted(self.ends, begin, side="right"))
        last = int(np.searchsorted(self.ends, end - 1, side="right"))
        if self.flat is None:
            start = int(self.ends[first - 1]) if first else 0
            parts = [part for line in range(first, last + 1) for part in (self.lines[line][0], [EOS])]
            return np.concatenate(parts)[begin - start : end - start].astype(np.int64)
        # A label of line r is the id that stands r places before it: every line before has one label more than ids.
        labels, is_word = np.full(end - begin, EOS, dtype=np.int64), np.ones(end - begin, dtype=bool)
        places = self.ends[first : last + 1] - 1 - begin
        is_word[places[places < end - begin]] = False
        words = int(is_word.sum())
        labels[is_word] = self.flat[begin - first : begin - first + words]
        return labels

    def gather(self, rows: Sequence[tuple[int, ...]]) -> list[tuple[Window, ...]]:
        """The windows of a batch, one a row."""
        return [(self.window(begin, end),) for begin, end in rows]


class Pieces(Sequence[Window]):
    """Documents by themselves, those that are longer than `width` in pieces of it, numbered through."""

    def __init__(self, lines: Any, width: int) -> None:
        self.lines, self.width = lines, width
        whole = stream_ends(lines)
        self.lengths_of_lines = np.diff(whole, prepend=0)
        self.ends = np.cumsum(-(-self.lengths_of_lines // width))

    @property
    def lengths(self) -> Integer[np.ndarray, " pieces"]:
        """How many labels each piece has."""
        counts = np.diff(self.ends, prepend=0)
        lengths = np.full(int(self.ends[-1]), self.width, dtype=np.int64)
        lengths[self.ends - 1] = self.lengths_of_lines - (counts - 1) * self.width
        return lengths

    def __len__(self) -> int:
        return int(self.ends[-1])

    def __getitem__(self, number: int) -> Window:  # type: ignore[override]
        line = int(np.searchsorted(self.ends, number, side="right"))
        begin = (number - (int(self.ends[line - 1]) if line else 0)) * self.width
        words = np.asarray(self.lines[line][0], dtype=np.int64)
        inputs, labels = np.concatenate(([BOS], words)), np.concatenate((words, [EOS]))
        return inputs[begin : begin + self.width], labels[begin : begin + self.width]


def stream_ends(lines: Any) -> Integer[np.ndarray, " lines"]:
    """Where the labels of each line end in the stream."""
    return np.cumsum(lines.lengths[:, 0].astype(np.int64) + 1)


def lines_batch(lines: Sequence[Any]) -> Batch:
    """Lines of ids as a batch: `<s>` and the words predict the words and `</s>`."""
    tokens, lengths = pad_rows(lines, begin=BOS)
    labels, _ = pad_rows(lines, end=EOS)
    return Batch(tokens=tokens, lengths=lengths, labels=labels)


def windows_batch(windows: Sequence[Window]) -> Batch:
    """Windows as a batch, each a row; one that has no label reads `<s>` and is asked for nothing."""
    tokens, lengths = pad_rows([inputs if len(inputs) else [BOS] for inputs, _ in windows])
    labels, _ = pad_rows([said if len(said) else [0] for _, said in windows])
    return Batch(tokens=tokens, lengths=lengths, labels=labels)


def packed_batch(rows: Sequence[Sequence[Window]]) -> Batch:
    """Several documents per row; `segments` has the index of each token's document in its row, from 1."""
    joined = [tuple(np.concatenate(parts) for parts in zip(*row, strict=True)) for row in rows]
    numbers = [np.repeat(np.arange(1, len(row) + 1), [len(inputs) for inputs, _ in row]) for row in rows]
    tokens, lengths = pad_rows([inputs for inputs, _ in joined])
    labels, _ = pad_rows([said for _, said in joined])
    segments, _ = pad_rows(numbers)
    return Batch(tokens=tokens, lengths=lengths, labels=labels, segments=segments)
