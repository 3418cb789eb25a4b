"""Co-occurrence counts: how often words are near each other, a pair of words at distance d counted as 1 / d."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float32, Float64, Int32, Int64
from torch import Tensor

from mallang.layers.word_windows import WordText

PENDING = 2**24
"""Pairs that are collected before equal ones are summed."""


@dataclass(frozen=True)
class Cooccurrences:
    """The entries of a symmetric matrix that are not zero, row by row."""

    rows: Int32[Tensor, " entries"]
    columns: Int32[Tensor, " entries"]
    counts: Float32[Tensor, " entries"]

    def __len__(self) -> int:
        return len(self.rows)


def cooccurrences(text: WordText, window: int, vocabulary: int) -> Cooccurrences:
    """The counts of all pairs of words within a window of the same line, in both directions."""
    words, lines = text.words.cpu().long(), text.lines.cpu()
    keys, sums = torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.float64)
    step = max(1, PENDING // window)
    for begin in range(0, len(text), step):
        found_keys, found_sums = [keys], [sums]
        for distance in range(1, window + 1):
            left = slice(begin, max(begin, min(begin + step, len(text) - distance)))
            right = slice(left.start + distance, left.stop + distance)
            one, other = words[left], words[right]
            pair = (torch.minimum(one, other) * vocabulary + torch.maximum(one, other))[lines[left] == lines[right]]
            found_keys.append(pair)
            found_sums.append(torch.full((len(pair),), 1 / distance, dtype=torch.float64))
        keys, sums = summed(torch.cat(found_keys), torch.cat(found_sums))
    return symmetric(keys // vocabulary, keys % vocabulary, sums)


def summed(
    keys: Int64[Tensor, " all"], values: Float64[Tensor, " all"]
) -> tuple[Int64[Tensor, " distinct"], Float64[Tensor, " distinct"]]:
    """The distinct keys, sorted, and the sum of the values of each."""
    distinct, places = torch.unique(keys, return_inverse=True)
    return distinct, values.new_zeros(len(distinct)).index_add_(0, places, values)


def symmetric(
    low: Int64[Tensor, " pairs"], high: Int64[Tensor, " pairs"], counts: Float64[Tensor, " pairs"]
) -> Cooccurrences:
    """Every pair in two directions; a word that is near itself is so twice."""
    mixed = low != high
    counts = torch.where(mixed, counts, 2 * counts).float()
    rows, columns = torch.cat((low, high[mixed])), torch.cat((high, low[mixed]))
    order = rows.argsort(stable=True)
    both = torch.cat((counts, counts[mixed]))
    return Cooccurrences(rows[order].int(), columns[order].int(), both[order])
