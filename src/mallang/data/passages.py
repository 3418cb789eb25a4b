"""Passages of documents for pre-training: whole sentences up to a length, alone or as pairs.

    alone    as many sentences of a document as fit
    next     two segments that follow each other in a document; of half of the pairs the second is from another document
             (next sentence prediction, Devlin et al. 2018, arXiv:1810.04805)
    order    two segments that follow each other; half of the pairs are swapped (sentence order prediction, Lan et al.
             2019, arXiv:1909.11942)

Both kinds of pairs come from one function, so a model that was trained on one can be tested on the other: class 0 says
that the second segment follows the first, class 1 that it does not. A passage never crosses the end of a document. A
sentence that is longer than a passage is cut into parts of nearly equal length. What is drawn depends on (seed, epoch).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Integer

from mallang.data.batch import IGNORE
from mallang.data.mixture import Drawn
from mallang.data.prepared import Prepared
from mallang.data.sampler import generator
from mallang.errors import UserError

Pairing = Literal["none", "next", "order"]
PAIRS = 5
"""Sets the random numbers of pairs apart from all others."""
FOLLOWS, OTHER = 0, 1
"""The class of a pair: the second segment follows the first, or it does not."""


@dataclass(frozen=True)
class Documents:
    """Documents as sentences, and sentences as spans of one array of tokens; none of them is empty."""

    tokens: Integer[np.ndarray, " tokens"]
    begins: Integer[np.ndarray, " sentences"]
    ends: Integer[np.ndarray, " sentences"]
    bounds: Integer[np.ndarray, " bounds"]
    """The first sentence of each document, and the number of all sentences."""

    @classmethod
    def of(cls, examples: Prepared | Drawn) -> Documents:
        """The documents of an epoch: array 0 has their tokens, array 1 the starts of their sentences."""
        whole = examples.mixture if isinstance(examples, Drawn) else examples
        tokens, bounds = whole.column(0) if whole.flat is None else (whole.flat, None)
        if bounds is None:
            bounds = np.append(0, np.cumsum(whole.lengths[:, 0], dtype=np.int64))
        starts, firsts = whole.column(1)
        found = cls.from_arrays(tokens, np.asarray(bounds), starts, np.asarray(firsts))
        return found.chosen(examples.places) if isinstance(examples, Drawn) else found

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[Any]]) -> Documents:
        """Documents in memory, each as its tokens and the starts of its sentences."""
        tokens, starts = ([np.asarray(row[place], dtype=np.int64) for row in rows] for place in (0, 1))
        bounds, firsts = (np.append(0, np.cumsum([len(row) for row in each])) for each in (tokens, starts))
        return cls.from_arrays(np.concatenate(tokens), bounds, np.concatenate(starts), firsts)

    @classmethod
    def from_arrays(
        cls,
        tokens: Integer[np.ndarray, " tokens"],
        bounds: Integer[np.ndarray, " bounds"],
        starts: Integer[np.ndarray, " sentences"],
        firsts: Integer[np.ndarray, " bounds"],
    ) -> Documents:
        """Documents from where each begins among the tokens, and where its sentences start within it."""
        counts = np.diff(firsts)
        begins = starts + np.repeat(bounds[:-1], counts)
        last = np.repeat(bounds[1:], counts)
        ends = np.append(begins[1:], bounds[-1]) if len(begins) else begins
        ends = np.minimum(ends, last)
        kept = ends > begins
        lines = np.append(0, np.cumsum(kept))[firsts]
        return cls(tokens, begins[kept], ends[kept], lines[np.append(True, np.diff(lines) > 0)])

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def chosen(self, places: Integer[np.ndarray, " chosen"]) -> Documents:
        """These documents, some perhaps several times."""
        counts = np.diff(self.bounds)[places]
        bounds = np.append(0, np.cumsum(counts))
        sentences = np.arange(bounds[-1]) + np.repeat(self.bounds[:-1][places] - bounds[:-1], counts)
        return Documents(self.tokens, self.begins[sentences], self.ends[sentences], bounds)

    def cut(self, most: int) -> Documents:
        """Documents with sentences of at most so many tokens: longer ones in parts of nearly equal length."""
        lengths = self.ends - self.begins
        parts = -(-lengths // most)
        number = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
        length, many, begin = (np.repeat(each, parts) for each in (lengths, parts, self.begins))
        begins, ends = begin + number * length // many, begin + (number + 1) * length // many
        return Documents(self.tokens, begins, ends, np.append(0, np.cumsum(parts))[self.bounds])


@dataclass(frozen=True)
class Passages(Sequence[tuple[Any, ...]]):
    """Examples of one or two segments: spans of the tokens of documents, and the class of each pair."""

    tokens: Integer[np.ndarray, " tokens"]
    spans: Integer[np.ndarray, "examples 5"]
    """Begin and end of the first segment, begin and end of the second, which may be empty; then the class."""

    @classmethod
    def of(cls, documents: Documents, most: int, pairing: Pairing, seed: int, epoch: int) -> Passages:
        """All passages of at most so many tokens, the special ones not counted."""
        documents = documents.cut(most)
        if not len(documents):
            raise UserError("there is nothing to batch: the corpus is empty")
        if pairing == "none":
            spans = singles(documents, most)
        else:
            spans = pairs(documents, most, pairing, generator(seed, epoch, 0, PAIRS))
        return cls(documents.tokens, np.array(spans, dtype=np.int64).reshape(-1, 5))

    def __len__(self) -> int:
        return len(self.spans)

    def __getitem__(self, number: int) -> tuple[Any, ...]:  # type: ignore[override]
        begin, end, other, last, label = self.spans[number].tolist()
        return self.tokens[begin:end].astype(np.int64), self.tokens[other:last].astype(np.int64), label

    @property
    def lengths(self) -> Integer[np.ndarray, " examples"]:
        """How many tokens each example has, the special ones not counted."""
        found: np.ndarray = (self.spans[:, 1] - self.spans[:, 0]) + (self.spans[:, 3] - self.spans[:, 2])
        return found

    @property
    def is_pair(self) -> np.ndarray:
        """Which examples have two segments."""
        found: np.ndarray = self.spans[:, 4] != IGNORE
        return found


def singles(documents: Documents, most: int) -> list[tuple[int, ...]]:
    """The sentences of every document in order, as many in a passage as fit."""
    found: list[tuple[int, ...]] = []
    begins, ends, bounds = (each.tolist() for each in (documents.begins, documents.ends, documents.bounds))
    for first, last in itertools.pairwise(bounds):
        start = begins[first]
        for number in range(first, last):
            if ends[number] - start > most:
                found.append((start, begins[number], 0, 0, IGNORE))
                start = begins[number]
        found.append((start, ends[last - 1], 0, 0, IGNORE))
    return found


def pairs(documents: Documents, most: int, pairing: Pairing, random: np.random.Generator) -> list[tuple[int, ...]]:
    """Pairs of segments; what has only one sentence left is an example without a pair.

    The first segment of a pair ends at a random sentence. Where the second is from another document, the sentences that
    it replaces begin the next pair, so that nothing is left out.
    """
    count = len(documents)
    if pairing == "next" and count < 2:
        raise UserError(
            'task.pairs = "next" takes half of its second segments from other documents, and there is only one',
            todo='task.pairs=order, or data.documents="blank-lines" if blank lines end documents',
        )
    begins, ends, bounds = (each.tolist() for each in (documents.begins, documents.ends, documents.bounds))
    found: list[tuple[int, ...]] = []
    draws = Draws(random)
    for document, (first, last) in enumerate(itertools.pairwise(bounds)):
        place = first
        while place < last:
            stop = place + 1
            while stop < last and ends[stop] - begins[place] <= most:
                stop += 1
            if stop - place == 1:
                found.append((begins[place], ends[place], 0, 0, IGNORE))
                place = stop
                continue
            split = place + 1 + draws.below(stop - place - 1)
            here, there = (begins[place], ends[split - 1]), (begins[split], ends[stop - 1])
            if draws.below(2) == 0:
                found.append((*here, *there, FOLLOWS))
            elif pairing == "order":
                found.append((*there, *here, OTHER))
            else:
                other = (document + 1 + draws.below(count - 1)) % count
                start = bounds[other] + draws.below(bounds[other + 1] - bounds[other])
                room, until = most - (here[1] - here[0]), start
                while until < bounds[other + 1] and ends[until] - begins[start] <= room:
                    until += 1
                end = ends[until - 1] if until > start else begins[start] + room
                found.append((*here, begins[start], end, OTHER))
                stop = split
            place = stop
    return found


class Draws:
    """Random integers one by one, drawn many at a time."""

    def __init__(self, random: np.random.Generator, chunk: int = 1 << 14) -> None:
        self.random, self.chunk = random, chunk
        self.left: list[float] = []

    def below(self, most: int) -> int:
        """An integer from 0 on, less than `most`."""
        if not self.left:
            self.left = self.random.random(self.chunk).tolist()
        return min(int(self.left.pop() * most), most - 1)
