"""Documents as a model reads them: parts of whole sentences, each in rows of whole sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Int

Ids = Int[np.ndarray, " _items"]
Bounds = list[tuple[int, int]]
"""Pairs of a first word and the first word after."""


@dataclass(frozen=True)
class Part:
    """A document, or some sentences of one; words are counted from its first."""

    words: Ids
    """The id of every word."""
    starts: Ids
    """The first word of every sentence."""
    bounds: Bounds
    """The words of every row."""
    mentions: Int[np.ndarray, "mentions 3"]
    """First word, last word and cluster of every mention."""
    features: tuple[Ids, ...] = ()
    """The tokens that another encoder reads, and the first one of every word."""

    def with_words(self, words: Ids) -> Part:
        """Other ids for the same words."""
        return replace(self, words=words)

    def sentences(self) -> Ids:
        """The number of the sentence of every word."""
        return np.repeat(np.arange(len(self.starts)), np.diff(np.append(self.starts, len(self.words))))

    def places(self, first: int) -> Int[np.ndarray, "words 2"]:
        """The row and the position in it of every word; `first` is the number of the first row."""
        rows = np.repeat(np.arange(len(self.bounds)), [end - begin for begin, end in self.bounds])
        begins = np.array([begin for begin, _ in self.bounds], dtype=np.int64)
        return np.stack((first + rows, np.arange(len(self.words)) - begins[rows]), axis=1)

    def row_words(self) -> Iterator[Ids]:
        """The ids of the words of each row."""
        return (self.words[begin:end] for begin, end in self.bounds)

    def row_features(self) -> Iterator[tuple[Ids, Ids]]:
        """The tokens that another encoder reads of each row, and the first one of every word."""
        tokens, starts = self.features
        ends = np.append(starts, len(tokens))
        for begin, end in self.bounds:
            yield tokens[ends[begin] : ends[end]], starts[begin:end] - ends[begin]


class Parts(Sequence[Part]):
    """The parts of documents with at most so many words, by number; a longer sentence is a part by itself."""

    def __init__(self, documents: Any, max_words: int, window: int) -> None:
        self.documents, self.window = documents, window
        self.cuts: list[tuple[int, int, int]] = []
        rows, widths = [], []
        for number in range(len(documents)):
            words, starts = documents[number][:2]
            ends = np.append(starts, len(words))
            for first, last in grouped(np.diff(ends), max_words or len(words)):
                self.cuts.append((number, first, last))
                bounds = row_bounds(ends[first : last + 1], window)
                rows.append(len(bounds))
                widths.append(max(end - begin for begin, end in bounds))
        self.rows = np.array(rows, dtype=np.int64)
        """How many rows each part has."""
        self.widths = np.array(widths, dtype=np.int64)[:, None]
        """How many words the longest of them has."""

    def __len__(self) -> int:
        return len(self.cuts)

    def __getitem__(self, number: int) -> Part:  # type: ignore[override]
        place, first, last = self.cuts[number]
        return part_of(self.documents[place], self.window, first, last)


def part_of(arrays: Sequence[Any], window: int, first: int = 0, last: int | None = None) -> Part:
    """Sentences of a document, from the first to the last, which is excluded; all of them if none is named."""
    words, starts, mentions, *features = arrays
    ends = np.append(starts, len(words))[first : None if last is None else last + 1]
    begin, end = int(ends[0]), int(ends[-1])
    triples = np.asarray(mentions, dtype=np.int64).reshape(-1, 3)
    triples = triples[(triples[:, 0] >= begin) & (triples[:, 1] < end)] - np.array([begin, begin, 0])
    chosen: tuple[Any, ...] = ()
    if features:
        tokens, firsts = features
        bounds = np.append(firsts, len(tokens))
        chosen = tokens[bounds[begin] : bounds[end]], firsts[begin:end] - bounds[begin]
    return Part(words[begin:end], ends[:-1] - begin, row_bounds(ends - begin, window), triples, chosen)


def row_bounds(ends: Ids, window: int) -> Bounds:
    """The words of every row, given where sentences begin and where the last one ends; counted from the first."""
    begin = int(ends[0])
    return [
        (int(ends[first]) - begin, int(ends[last]) - begin) for first, last in grouped(np.diff(ends), max(1, window))
    ]


def grouped(sizes: Ids, most: int) -> list[tuple[int, int]]:
    """Neighbors in groups, each of as many as fit into `most`, and of one at least: the first, and the first after."""
    found: list[tuple[int, int]] = []
    first, filled = 0, 0
    for place, size in enumerate(sizes.tolist()):
        if place > first and filled + size > most:
            found.append((first, place))
            first, filled = place, 0
        filled += size
    return [*found, (first, len(sizes))] if len(sizes) else found
