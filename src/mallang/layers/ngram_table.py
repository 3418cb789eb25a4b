"""A table of n-grams: probabilities, back-off weights, and their lookup.

The n-grams of all orders are concatenated in three flat arrays, which a safetensors file stores as they are and which
are memory-mapped from it:

    keys        of orders 2 up, sorted within each order: place of the history × words + last word
    log_probs   of orders 1 up; order 1 has every word of the vocabulary, at its own number
    backoffs    of orders 1 up to the last but one: the logarithm of the weight of that n-gram as a history

Every order ends with one extra n-gram, a sentinel: a lookup without a match returns it, and its back-off weight is the
one of histories that are not in the table. Logarithms are natural; LOG_ZERO stands for log 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float, Float32, Int, Int64
from torch import Tensor, nn

from mallang.kernels.hash_index import Index, pays, side_by_side
from mallang.text.vocabulary import PAD

LOG_ZERO = -99 * math.log(10)
"""log 0 as in ARPA files: −99 to the base of 10. No sum of real log-probabilities is that low."""
NO_KEY = 2**62
"""The key of the sentinel, which no n-gram has."""
PART = 2**17
"""Words per chunk of a lookup, so that its intermediate results fit into the CPU cache."""


@dataclass(frozen=True)
class Ngrams:
    """An n-gram table as arrays, one per order."""

    words: int
    keys: Sequence[Int64[np.ndarray, " _"]]
    """Sorted keys of the orders from 2."""
    log_probs: Sequence[Float32[np.ndarray, " _"]]
    """Log-probabilities of the orders from 1."""
    backoffs: Sequence[Float32[np.ndarray, " _"]]
    """Logarithms of the back-off weights, of the orders from 1 to the last but one."""

    @classmethod
    def of(
        cls, words: int, keys: Sequence[np.ndarray], probs: Sequence[np.ndarray], weights: Sequence[np.ndarray]
    ) -> Ngrams:
        """From probabilities and weights, not logarithms."""
        return cls(words, keys, [log_of(values) for values in probs], [log_of(values) for values in weights])

    @property
    def sizes(self) -> list[int]:
        """The number of n-grams of each order."""
        return [len(values) for values in self.log_probs]


def log_of(values: np.ndarray) -> Float32[np.ndarray, " values"]:
    """Natural logarithms, LOG_ZERO for 0."""
    logs = np.full(len(values), LOG_ZERO)
    np.log(values, out=logs, where=values > 0)
    return logs.astype(np.float32)


class Table(nn.Module):
    """An n-gram table as a module, with lookup."""

    keys: Int[Tensor, " keys"]
    sizes: Int[Tensor, " orders"]
    log_probs: Float[Tensor, " ngrams"]
    backoffs: Float[Tensor, " histories"]

    def __init__(self, ngrams: Ngrams, missing: float = 0.0) -> None:
        super().__init__()
        self.missing = missing
        self.indexes: list[Index] = []
        self.take(flat_arrays(ngrams, missing))

    def take(self, arrays: Mapping[str, Tensor]) -> None:
        """Use these arrays without a copy; raises ValueError where their lengths do not fit together."""
        sizes = arrays["sizes"].tolist()
        ends = np.cumsum([size + 1 for size in sizes]).tolist()
        lengths = {"keys": ends[-1] - ends[0], "log_probs": ends[-1], "backoffs": ends[-1] - sizes[-1] - 1}
        for name, length in lengths.items():
            if len(arrays[name]) != length:
                raise ValueError(f"{name} should have length {length} by its sizes, but has {len(arrays[name])}")
        for name in ("log_probs", "backoffs"):
            setattr(self, name, nn.Parameter(arrays[name], requires_grad=False))
        for name in ("keys", "sizes"):
            self.register_buffer(name, arrays[name])
        self.words, self.order, self.bounds = sizes[0], len(sizes), list(pairwise([0, *ends]))
        self.indexes, self.asked = [], 0  # built once as many words were looked up as there are n-grams

    def ngrams(self) -> Ngrams:
        """The arrays of every order, without a copy."""
        levels = [self.level(order) for order in range(2, self.order + 1)]
        keys, log_probs, backoffs = (
            [level[place][:-1].detach().cpu().numpy() for level in levels] for place in range(3)
        )
        words = self.log_probs[: self.words].detach().cpu().numpy()
        return Ngrams(self.words, keys, [words, *log_probs], backoffs)

    def level(self, order: int) -> tuple[Tensor, Tensor, Tensor]:
        """The keys and log-probabilities of an order from 2 up, and the back-off weights of its histories."""
        (begin, end), (lower, upper), (_, first) = self.bounds[order - 1], self.bounds[order - 2], self.bounds[0]
        return self.keys[begin - first : end - first], self.log_probs[begin:end], self.backoffs[lower:upper]

    def score(self, words: Int[Tensor, " words"], places: Int[Tensor, " words"]) -> Float[Tensor, " words"]:
        """The log-probability of each word after those before it in its text; −∞ for 0."""
        self.asked += len(words)
        if not self.indexes and pays(len(self.keys), self.asked, words):
            self.indexes = [Index(self.level(order)[0]) for order in range(2, self.order + 1)]

        def part(first: int) -> Float[Tensor, " part"]:
            begin, end = max(0, first - self.order + 1), first + PART
            return self.score_part(words[begin:end], places[begin:end])[first - begin :]

        parts = [self.log_probs.new_empty(0), *side_by_side(part, range(0, len(words), PART), words.device)]
        scores = torch.cat(parts)
        return scores.masked_fill_(scores <= LOG_ZERO / 2, -torch.inf)

    def score_part(self, words: Int[Tensor, " words"], places: Int[Tensor, " words"]) -> Float[Tensor, " words"]:
        """`score` for one chunk; the n-gram that ends at a word is the history of the next word: one lookup each."""
        scores, found = self.log_probs.index_select(0, words), words
        for order in range(2, min(self.order, len(words)) + 1):
            _, log_probs, backoffs = self.level(order)
            reaches = places[order - 1 :] >= order - 1
            histories = torch.where(reaches, found[:-1], len(backoffs) - 1)
            found = self.find(order, histories, words[order - 1 :])
            instead = backoffs.index_select(0, histories).add_(scores[order - 1 :])
            better = torch.where(found == len(log_probs) - 1, instead, log_probs.index_select(0, found))
            scores[order - 1 :] = torch.where(reaches, better, scores[order - 1 :]) if self.missing else better
        return scores

    def find(self, order: int, histories: Int[Tensor, " asked"], words: Int[Tensor, " asked"]) -> Int[Tensor, " asked"]:
        """The indices of n-grams within their order, from the indices of their histories; the last if not found."""
        wanted = torch.add(words, histories, alpha=self.words)
        if self.indexes:
            return self.indexes[order - 2].find(wanted)
        keys = self.level(order)[0]
        places = torch.searchsorted(keys, wanted)
        return torch.where(keys[places] == wanted, places, len(keys) - 1)

    def next_words(self, histories: Int[Tensor, "rows past"]) -> Float[Tensor, "rows words"]:
        """The log-probability of every word after each history, at least LOG_ZERO; `<pad>` precedes a text."""
        scores = self.log_probs[: self.words].expand(len(histories), -1).clone()
        for length in range(1, self.order):
            keys, log_probs, backoffs = self.level(length + 1)
            found = self.find_history(histories[:, -length:])
            begun = (histories[:, -length:] != PAD).all(dim=1)
            scores += torch.where(begun, backoffs[found], 0.0)[:, None]
            first, last = torch.searchsorted(keys, torch.stack((found, found + 1)) * self.words)
            many = last - first
            rows = torch.repeat_interleave(many)
            places = torch.arange(len(rows), device=rows.device) + (first - many.cumsum(0) + many)[rows]
            scores[rows, keys[places] % self.words] = log_probs[places]
        return scores.clamp_(min=LOG_ZERO)

    def find_history(self, tokens: Int[Tensor, "rows length"]) -> Int[Tensor, " rows"]:
        """The index of each history among the n-grams of its length."""
        found = tokens[:, 0]
        for order in range(2, tokens.shape[1] + 1):
            found = self.find(order, found, tokens[:, order - 1])
        return found.long()

    def _apply(self, change: Callable[[Tensor], Tensor], recurse: bool = True) -> Table:
        """Move the table to a device, but keep its dtype: lower precision would not make a lookup faster."""

        def moved(tensor: Tensor) -> Tensor:
            changed = change(tensor)
            return changed if changed.dtype == tensor.dtype else tensor.to(changed.device)

        self.indexes = []
        super()._apply(moved, recurse)  # type: ignore[no-untyped-call]
        return self


def flat_arrays(ngrams: Ngrams, missing: float = 0.0) -> dict[str, Tensor]:
    """The arrays of a table as they are saved: every order followed by its sentinel."""

    def joined(parts: Sequence[np.ndarray], last: np.ndarray) -> Tensor:
        ended = [part for each in parts for part in (each, last)]
        return torch.from_numpy(np.concatenate([last[:0], *ended]))

    return {
        "keys": joined(ngrams.keys, np.array([NO_KEY])),
        "log_probs": joined(ngrams.log_probs, np.zeros(1, np.float32)),
        "backoffs": joined(ngrams.backoffs, np.array([missing], np.float32)),
        "sizes": torch.tensor(ngrams.sizes),
    }
