"""Exact matching of a text in a corpus: the longest match from each position, by a suffix array.

    matches = Matches(corpus, text)         # two arrays of integer ids; negative ids match nothing
    matches.lengths[3]                      # the length of the longest match of the ids from position 3 on
    matches.places(3, 2)                    # all positions of the corpus where the 2 ids from position 3 on occur

The suffixes of corpus and text are sorted together by prefix doubling (Manber and Myers, 1993): ranks of all substrings
of 1, 2, 4 … ids, each computed from two ranks of half the length, so nothing is hashed and nothing is compared twice.
The corpus suffixes next to a suffix of the text in that order are those with the longest common prefix.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
from jaxtyping import Bool, Int


class Matches:
    """The matches of a text in a corpus, both arrays of ids; negative ids are boundaries that no match crosses."""

    def __init__(self, corpus: Int[np.ndarray, " corpus"], text: Int[np.ndarray, " text"]) -> None:
        ids, self.begin = join(corpus, text)
        self.corpus = len(corpus)
        self.levels = substring_ranks(ids, longest_run(text))
        self.order = np.argsort(self.levels[-1])
        here = np.empty(len(ids), dtype=np.int64)
        here[self.order] = np.arange(len(ids))
        mine = np.arange(self.begin, self.begin + len(text))
        before, after = (self.common(mine, side[here[mine]]) for side in self.neighbors())
        self.lengths = np.maximum(before, after)
        """For every position of the text, the length of the longest match in the corpus from there on."""

    def neighbors(self) -> tuple[Int[np.ndarray, " ids"], Int[np.ndarray, " ids"]]:
        """For every suffix in sorted order, the corpus suffixes before and after it; the corpus end for none."""
        numbers = np.arange(len(self.order))
        is_corpus = self.order < self.corpus
        places = np.append(self.order, self.corpus)  # the boundary after the corpus, which matches nothing
        last = len(self.order)
        before = np.maximum.accumulate(np.where(is_corpus, numbers, -1))
        after = np.minimum.accumulate(np.where(is_corpus, numbers, last)[::-1])[::-1]
        return places[np.where(before < 0, last, before)], places[after]

    def common(self, left: Int[np.ndarray, " pairs"], right: Int[np.ndarray, " pairs"]) -> Int[np.ndarray, " pairs"]:
        """The lengths of the common prefixes of pairs of suffixes, compared 16, 8, 4 … ids at a time."""
        length = np.zeros_like(left)
        for level in reversed(range(len(self.levels))):
            ranks = self.levels[level]
            length += (ranks[left + length] == ranks[right + length]).astype(np.int64) << level
        return length

    def places(self, start: int, length: int) -> Int[np.ndarray, " places"]:
        """Every position of the corpus where the `length` ids of the text from `start` occur, in order."""
        level = length.bit_length() - 1
        ranks, shift, mine = self.levels[level], length - (1 << level), self.begin + start
        # A rank is the first index in sorted order of all suffixes that share it, and these are adjacent.
        first = int(ranks[mine])
        end = bisect_right(range(len(self.order)), first, lo=first, key=lambda place: int(ranks[self.order[place]]))
        alike = self.order[first:end]
        alike = alike[alike < self.corpus]
        return np.sort(alike[ranks[alike + shift] == ranks[mine + shift]])


def join(corpus: Int[np.ndarray, " corpus"], text: Int[np.ndarray, " text"]) -> tuple[Int[np.ndarray, " ids"], int]:
    """Concatenate corpus and text, with a boundary of unique id after each; and the start of the text."""
    ids = np.concatenate([corpus, [-1], text, [-1]]).astype(np.int64)
    boundary = ids < 0
    ids[boundary] = ids.max(initial=0) + 1 + np.arange(np.count_nonzero(boundary))
    return ids, len(corpus) + 1


def longest_run(text: Int[np.ndarray, " text"]) -> int:
    """The longest run of ids without a boundary."""
    boundaries = np.flatnonzero(np.concatenate([[True], text < 0, [True]]))
    return int(np.diff(boundaries).max()) - 1


def substring_ranks(ids: Int[np.ndarray, " ids"], longest: int) -> list[Int[np.ndarray, " ids"]]:
    """The ranks of all substrings of 1, 2, 4 … ids, until all differ or up to length `longest`.

    Equal substrings have the rank of the first of them, so ranks get finer at each level and never change order.
    """
    order = np.argsort(ids)
    found = ids[order]
    rank = np.empty(len(ids), dtype=np.int32 if len(ids) < 1 << 31 else np.int64)
    rank[order] = first_of_equals(differs(found))
    levels, width = [rank], 1
    while width < longest:
        counts = np.bincount(rank, minlength=len(ids))
        shared = np.flatnonzero(counts[rank] > 1)  # unique substrings already have their final rank
        if not len(shared):
            break
        # Shared substrings end before a boundary, so there is always an id `width` positions further.
        keys = rank[shared].astype(np.int64) * len(ids) + rank[shared + width].astype(np.int64)
        order = np.argsort(keys)
        places, keys = shared[order], keys[order]
        within = first_of_equals(differs(keys)) - first_of_equals(differs(rank[places]))
        finer = rank.copy()
        finer[places] = rank[places] + within.astype(rank.dtype)
        rank, width = finer, width * 2
        levels.append(rank)
    return levels


def differs(values: Int[np.ndarray, " values"]) -> Bool[np.ndarray, " values"]:
    """Where a value occurs for the first time in a sorted array."""
    return np.concatenate([[True], values[1:] != values[:-1]]) if len(values) else np.zeros(0, dtype=bool)


def first_of_equals(is_first: Bool[np.ndarray, " values"]) -> Int[np.ndarray, " values"]:
    """For every index, the last index up to it where `is_first` holds."""
    return np.maximum.accumulate(np.where(is_first, np.arange(len(is_first)), 0))
