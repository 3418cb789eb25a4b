"""N-gram counts of a text by sorting: every order is one sorted array of integer keys.

    key of w₁ … wₙ = (place of w₁ … wₙ₋₁ in the array of the order below) × words + wₙ

So a key is a single number of 64 bits whatever the order, the n-grams that continue from one history lie together, and
those of a history are found by one binary search. Words are the places of order 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64

from mallang.data.ngram_text import Text
from mallang.text.vocabulary import Vocabulary

MOST_BITS = 63
"""Bits of a non-negative 64-bit integer."""


@dataclass(frozen=True)
class Order:
    """All n-grams of one length."""

    keys: Int64[np.ndarray, " ngrams"]
    """Sorted."""
    parents: Int64[np.ndarray, " ngrams"]
    """The index in the order below of each n-gram's history (without its last word); 0 for unigrams."""
    counts: Int64[np.ndarray, " ngrams"]
    suffixes: Int64[np.ndarray, " ngrams"]
    """The index in the order below of each n-gram without its first word; 0 for unigrams."""
    is_first: Bool[np.ndarray, " ngrams"]
    """Whether it begins with `<s>`."""
    begins: Bool[np.ndarray, " ngrams"]
    """Whether some text begins with it; where texts begin with `<s>` nothing else begins one."""

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True)
class Counts:
    """The n-grams of a text, of all lengths up to one."""

    vocabulary: Vocabulary
    orders: Sequence[Order]
    """From single words, which are all there, up."""

    @property
    def words(self) -> int:
        """The size of the vocabulary: what keys are multiples of."""
        return len(self.vocabulary)

    @property
    def said(self) -> Bool[np.ndarray, " words"]:
        """The words that can be predicted: all but `<pad>` and `<s>`."""
        return sayable(self.vocabulary)


def sayable(vocabulary: Vocabulary) -> Bool[np.ndarray, " words"]:
    """The words that can be predicted: all but `<pad>` and `<s>`."""
    said = np.ones(len(vocabulary), dtype=np.bool_)
    said[[vocabulary.pad, vocabulary.bos]] = False
    return said


def count(text: Text, order: int, vocabulary: Vocabulary) -> Counts:
    """Count the n-grams of every length up to `order`."""
    words, size = text.words.astype(np.int64), len(vocabulary)
    counts = np.bincount(words, minlength=size)
    counts[vocabulary.bos] = 0  # it is read and never predicted
    numbers = np.arange(size)
    openings = np.flatnonzero((text.places == 0) & (words != vocabulary.bos))
    is_first, none = numbers == vocabulary.bos, np.zeros(size, np.int64)
    orders = [Order(numbers, none, counts, none, is_first, marked(words[openings], size))]
    ids = words  # of the n-gram that begins at each position, among those of the length reached
    for length in range(2, order + 1):
        starts = np.flatnonzero(text.places[length - 1 :] >= length - 1)
        keys, counts, where, ranks = tallied(ids[starts] * size + words[starts + length - 1], length < order)
        first = starts[where]
        suffixes, ids = ids[first + 1], np.full(len(words), -1)
        begins = np.zeros(len(keys), dtype=np.bool_)
        if ranks is not None:
            ids[starts] = ranks
            opened = ids[openings]
            begins = marked(opened[opened >= 0], len(keys))
        orders.append(Order(keys, keys // size, counts, suffixes, words[first] == vocabulary.bos, begins))
    return Counts(vocabulary, orders)


def marked(places: Int64[np.ndarray, " places"], size: int) -> Bool[np.ndarray, " size"]:
    """True at these places."""
    flags = np.zeros(size, dtype=np.bool_)
    flags[places] = True
    return flags


def tallied(
    keys: Int64[np.ndarray, " positions"], numbered: bool
) -> tuple[
    Int64[np.ndarray, " found"],
    Int64[np.ndarray, " found"],
    Int64[np.ndarray, " found"],
    Int64[np.ndarray, " positions"] | None,
]:
    """The different keys, sorted; how often each occurs; where one does; if asked for, which of them each position has.

    Plain numbers are sorted several times faster than places by their keys, so both go into one number if they fit.
    """
    bits = len(keys).bit_length()
    if int(keys.max(initial=0)).bit_length() + bits <= MOST_BITS:
        both = np.sort(keys << bits | np.arange(len(keys)))
        ordered, order = both >> bits, both & ((1 << bits) - 1)
    else:
        order = np.argsort(keys)
        ordered = keys[order]
    is_new = np.ones(len(keys), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    bounds = np.flatnonzero(is_new)
    numbers = None
    if numbered:
        numbers = np.empty(len(keys), dtype=np.int64)
        numbers[order] = np.cumsum(is_new) - 1
    return ordered[bounds], np.diff(bounds, append=len(keys)), order[bounds], numbers
