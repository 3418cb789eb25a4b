"""Training of a unigram tokenizer: the vocabulary that maximizes the likelihood of the counted words.

Kudo, Subword Regularization, 2018, arXiv 1804.10959. The candidates are frequent substrings; expectation maximization
(EM) estimates how often each is used, and the quarter whose removal costs least likelihood is pruned, until the wanted
number is left. The `tokenizers` library reads such a model, but its own training is not deterministic.

    counted words -> candidates -> lattice of all segmentations of every word -> uses -> fewer candidates … -> pieces
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

LONGEST = 16
"""Maximum length of a piece in characters."""
RIVALS = 20
"""Number of candidates per entry of the vocabulary."""
SHRINK = 0.75
ROUNDS = 2
TRACE = 1e-3
"""The minimum uses of a single character, so that every word can be segmented."""

Integers: TypeAlias = NDArray[np.integer[Any]]
Floats: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]


def learn(words: Mapping[str, int], alphabet: Iterable[str], size: int, min_count: int) -> list[tuple[str, float]]:
    """At most `size` pieces with their log-probabilities, best first: every character, and the best substrings.

    The words consist of characters of the alphabet. A candidate occurs at least twice, and `min_count` times.
    """
    letters = sorted(alphabet)
    if len(letters) > size:
        raise ValueError(f"{len(letters)} letters are more than {size} pieces")
    strings, counts = cut_long(words)
    candidates, uses, outer = find_candidates(letters, strings, counts, least=max(2, min_count), most=size * RIVALS)
    inner = Lattice.inside(candidates)
    uses = np.maximum(uses, TRACE)
    while True:
        for _ in range(ROUNDS):
            uses = outer.expected_uses(log_shares(uses), counts)
            uses[uses < 0.5] = 0.0
            uses[: len(letters)] = np.maximum(uses[: len(letters)], TRACE)
            outer = outer.only((uses > 0)[outer.pieces])
        rivals = np.flatnonzero(uses)
        if len(rivals) <= size:
            break
        inner = inner.only((uses > 0)[inner.pieces] & (uses > 0)[inner.owners])
        # Removing a piece costs, per use, the next best segmentation of it; a single character has none.
        scores = log_shares(uses)
        loss = uses[rivals] * (scores[rivals] - inner.best(scores)[rivals])
        leaving = len(rivals) - max(size, int(len(rivals) * SHRINK))
        uses[rivals[np.argsort(loss, kind="stable")[:leaving]]] = 0.0
        outer = outer.only((uses > 0)[outer.pieces])
    scores = log_shares(uses)
    pieces = [(candidates[i], round(float(scores[i]), 6)) for i in rivals]
    return sorted(pieces, key=lambda piece: (-piece[1], piece[0]))


def cut_long(words: Mapping[str, int], most: int = 256) -> tuple[list[str], Floats]:
    """The words in order, long ones in parts, and their counts."""
    parts = sorted((word[i : i + most], count) for word, count in words.items() for i in range(0, len(word), most))
    return [part for part, _ in parts], np.array([count for _, count in parts], dtype=np.float64)


def log_shares(uses: Floats) -> Floats:
    """Log-probabilities in proportion to the uses; minus infinity where there are none."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(uses) - np.log(uses.sum()))


def add_up(which: Integers, weights: Floats, size: int = 0) -> Floats:
    """The sum of the weights of each index."""
    return np.bincount(which, weights, size).astype(np.float64)


@dataclass(frozen=True)
class Lattice:
    """The lattice of all segmentations of many strings: edges are pieces, nodes are positions between characters.

    Edges are sorted by the position in their string where they end, so one sweep over these groups visits each node
    after its predecessors; within a group a string has one end node, and the edges to it are adjacent.
    """

    starts: Integers
    ends: Integers
    pieces: Integers
    owners: Integers
    """The string of each edge."""
    sources: Integers
    sinks: Integers
    """The first and the last node of every string."""

    @classmethod
    def make(cls, starts: Integers, ends: Integers, pieces: Integers, strings: Sequence[str]) -> Lattice:
        """The lattice of these edges; the nodes of a string are numbered after those of the string before."""
        sizes = np.array([len(string) for string in strings], dtype=np.int32)
        sinks = np.cumsum(sizes + 1, dtype=np.int32) - 1
        owners = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes + 1)[starts]
        order = np.lexsort((ends, ends - (sinks - sizes)[owners]))
        return cls(starts[order], ends[order], pieces[order], owners[order], sinks - sizes, sinks)

    @classmethod
    def inside(cls, strings: Sequence[str]) -> Lattice:
        """The lattice of segmentations of strings into others of them."""
        numbers = {string: number for number, string in enumerate(strings)}
        edges = array("i")
        node = 0
        for string in strings:
            size = len(string)
            for start in range(size):
                for end in range(start + 1, size + (start > 0)):  # not the whole string
                    piece = numbers.get(string[start:end])
                    if piece is not None:
                        edges.extend((node + start, node + end, piece))
            node += size + 1
        starts, ends, pieces = np.array(edges, dtype=np.int32).reshape(-1, 3).T
        return cls.make(starts, ends, pieces, strings)

    def only(self, kept: Flags) -> Lattice:
        """The lattice with only the edges that are kept."""
        edges = (self.starts[kept], self.ends[kept], self.pieces[kept], self.owners[kept])
        return Lattice(*edges, self.sources, self.sinks)

    def expected_uses(self, scores: Floats, counts: Floats) -> Floats:
        """The expected count of each piece over all segmentations, weighted by their probabilities."""
        groups = self.groups()
        reach = self.sweep(scores, groups, np.logaddexp)
        mass = np.zeros(len(reach))
        mass[self.sinks] = counts
        shares = np.zeros(len(self.starts))
        for edges, _ in reversed(groups):
            starts, ends = self.starts[edges], self.ends[edges]
            shares[edges] = mass[ends] * np.exp(reach[starts] + scores[self.pieces[edges]] - reach[ends])
            mass[starts] += shares[edges]  # no start occurs twice in a group
        return add_up(self.pieces, shares, len(scores))

    def best(self, scores: Floats) -> Floats:
        """The score of the best segmentation of each string (Viterbi); minus infinity where there is none."""
        return np.asarray(self.sweep(scores, self.groups(), np.maximum)[self.sinks])

    def sweep(self, scores: Floats, groups: Sequence[tuple[slice, Integers]], add: np.ufunc) -> Floats:
        """The scores of all paths from a string's first node to each of its nodes, combined by `add`."""
        reach = np.full(int(self.sinks.max(initial=-1)) + 1, -np.inf)
        reach[self.sources] = 0.0
        for edges, firsts in groups:
            scored = reach[self.starts[edges]] + scores[self.pieces[edges]]
            reach[self.ends[edges][firsts]] = add.reduceat(scored, firsts)
        return reach

    def groups(self) -> list[tuple[slice, Integers]]:
        """The edges of every group, and which of them are the first to their end node."""
        depth = self.ends - self.sources[self.owners]
        cuts = np.flatnonzero(np.diff(depth)) + 1
        firsts = np.flatnonzero(np.diff(self.ends, prepend=-1))
        bounds = pairwise([0, *cuts.tolist(), len(depth)])
        parts = np.split(firsts, np.searchsorted(firsts, cuts))
        return [(slice(low, high), part - low) for (low, high), part in zip(bounds, parts, strict=True) if high > low]


def find_candidates(
    letters: Sequence[str], strings: Sequence[str], counts: Floats, least: int, most: int
) -> tuple[list[str], Floats, Lattice]:
    """The single characters and, of the substrings that occur `least` times, the `most` that cover the most text.

    Also the number of characters that each covers, and the lattice of all segmentations of the strings.
    """
    joined = "".join(string + "\0" for string in strings)
    sizes = np.array([len(string) for string in strings], dtype=np.int64)
    codes = np.frombuffer(joined.encode("utf-32-le"), dtype="<u4")
    grams = np.searchsorted(np.array([ord(letter) for letter in letters], dtype="<u4"), codes)
    grams[np.cumsum(sizes + 1) - 1] = -1
    at: Integers = np.flatnonzero(grams >= 0).astype(np.int32)
    edges: list[tuple[Integers, Integers, Integers]] = [(at, at + 1, grams[at].astype(np.int32))]
    weights = np.repeat(counts, sizes + 1)
    longer = grow(grams, weights, least)
    cover = np.concatenate([[], *(found.occurs * found.length for found in longer)])
    numbers = np.full(len(cover), -1, dtype=np.int32)
    best = np.argsort(-cover, kind="stable")[:most]
    numbers[best] = np.arange(len(letters), len(letters) + len(best), dtype=np.int32)
    texts: list[str] = []
    for found in longer:
        ours, numbers = np.split(numbers, [len(found.occurs)])
        pieces = ours[found.which]
        at = found.at[pieces >= 0]
        edges.append((at, at + found.length, pieces[pieces >= 0]))
        texts += [joined[place : place + found.length] for place in found.first]
    starts, ends, pieces = (np.concatenate(part) for part in zip(*edges, strict=True))
    cover = np.concatenate([add_up(grams[edges[0][0]], weights[edges[0][0]], len(letters)), cover[best]])
    return [*letters, *(texts[i] for i in best)], cover, Lattice.make(starts, ends, pieces, strings)


@dataclass(frozen=True)
class Substrings:
    """The frequent substrings of one length: count and first position of each; all positions and their substrings."""

    length: int
    occurs: Floats
    first: Integers
    at: Integers
    which: Integers


def grow(grams: Integers, weights: Floats, least: int) -> list[Substrings]:
    """The substrings of every length, from those one character shorter: `grams` has the character at each position."""
    found = []
    for length in range(2, LONGEST + 1):
        # Two frequent substrings, one shifted by a character, make one that is a character longer.
        at = np.flatnonzero((grams[:-1] >= 0) & (grams[1:] >= 0))
        pairs = grams[at] * len(grams) + grams[at + 1]
        _, first, which = np.unique(pairs, return_index=True, return_inverse=True)
        occurs = add_up(which, weights[at])
        frequent = occurs >= least
        grams = np.full(len(grams), -1)
        grams[at] = np.where(frequent, np.cumsum(frequent) - 1, -1)[which]
        kept = at[grams[at] >= 0].astype(np.int32)
        found.append(Substrings(length, occurs[frequent], at[first[frequent]], kept, grams[kept]))
    return found
