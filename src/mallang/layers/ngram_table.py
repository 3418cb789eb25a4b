"""A table of n-grams: probabilities, back-off weights, and how they are looked up.

The n-grams of all orders lie one after the other in three flat arrays, which a safetensors file holds as they are and
which are read from it where they lie on the disk:

    keys        of orders 2 up, sorted within each order: place of the history × words + last word
    log_probs   of orders 1 up; order 1 has every word of the vocabulary, at its own number
    backoffs    of orders 1 up to the last but one: the logarithm of the weight of that n-gram as a history

A history that is not in the table has the weight `missing`. Logarithms are natural; LOG_ZERO stands for that of 0.
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

from mallang.text.vocabulary import PAD

LOG_ZERO = -99 * math.log(10)
"""The logarithm of nothing, as ARPA files have it: −99 to the base of 10. No sum of real ones comes down to it."""
NO_KEY = 2**62
"""A key that no n-gram has."""
PART = 2**17
"""Words that are looked up at once, so that what is known of them stays near the processor."""


@dataclass(frozen=True)
class Ngrams:
    """A table as arrays, order by order."""

    words: int
    keys: Sequence[Int64[np.ndarray, " _"]]
    """Of orders 2 up."""
    log_probs: Sequence[Float32[np.ndarray, " _"]]
    """Of orders 1 up."""
    backoffs: Sequence[Float32[np.ndarray, " _"]]
    """Of orders 1 up to the last but one."""

    @classmethod
    def of(
        cls, words: int, keys: Sequence[np.ndarray], probs: Sequence[np.ndarray], weights: Sequence[np.ndarray]
    ) -> Ngrams:
        """From probabilities and weights that are no logarithms."""
        return cls(words, keys, [log_of(values) for values in probs], [log_of(values) for values in weights])

    @property
    def sizes(self) -> list[int]:
        """How many n-grams each order has."""
        return [len(values) for values in self.log_probs]


def log_of(values: np.ndarray) -> Float32[np.ndarray, " values"]:
    """Natural logarithms, LOG_ZERO for 0."""
    logs = np.full(len(values), LOG_ZERO)
    np.log(values, out=logs, where=values > 0)
    return logs.astype(np.float32)


class Table(nn.Module):
    """N-grams ready to be looked up."""

    keys: Int[Tensor, " keys"]
    sizes: Int[Tensor, " orders"]
    log_probs: Float[Tensor, " ngrams"]
    backoffs: Float[Tensor, " histories"]

    def __init__(self, ngrams: Ngrams, missing: float = 0.0) -> None:
        super().__init__()
        self.missing = missing
        self.take(flat_arrays(ngrams))

    def take(self, arrays: Mapping[str, Tensor]) -> None:
        """Use these arrays where they lie; a ValueError where they are no table."""
        sizes = arrays["sizes"].tolist()
        ends = np.cumsum(sizes).tolist()
        lengths = {"keys": ends[-1] - sizes[0], "log_probs": ends[-1], "backoffs": ends[-1] - sizes[-1]}
        for name, length in lengths.items():
            if len(arrays[name]) != length:
                raise ValueError(f"{name} should be {length} long by its sizes, but is {len(arrays[name])}")
        for name in ("log_probs", "backoffs"):
            setattr(self, name, nn.Parameter(arrays[name], requires_grad=False))
        for name in ("keys", "sizes"):
            self.register_buffer(name, arrays[name])
        self.words, self.order, self.bounds = sizes[0], len(sizes), list(pairwise([0, *ends]))

    def ngrams(self) -> Ngrams:
        """The arrays order by order, where they lie."""
        keys, probs, backoffs = (tensor.detach().cpu().numpy() for tensor in (self.keys, self.log_probs, self.backoffs))
        bounds = [slice(*pair) for pair in self.bounds]
        behind = [slice(begin - self.words, end - self.words) for begin, end in self.bounds[1:]]
        return Ngrams(
            self.words, [keys[part] for part in behind], [probs[part] for part in bounds],
            [backoffs[part] for part in bounds[:-1]],
        )  # fmt: skip

    def level(self, order: int) -> tuple[Tensor, Tensor, Tensor]:
        """The keys and log-probabilities of an order from 2 up, and the back-off weights of its histories.

        Of an order without n-grams one that no text has, so that there is something to look at.
        """
        (begin, end), (lower, upper) = self.bounds[order - 1], self.bounds[order - 2]
        keys, backoffs = self.keys[begin - self.words : end - self.words], self.backoffs[lower:upper]
        if begin == end:
            return keys.new_full((1,), NO_KEY), self.log_probs.new_zeros(1), backoffs.new_zeros(max(1, upper - lower))
        return keys, self.log_probs[begin:end], backoffs

    def score(self, words: Int[Tensor, " words"], places: Int[Tensor, " words"]) -> Float[Tensor, " words"]:
        """The log-probability of each word after those before it in its text; −∞ for 0."""
        parts = [self.log_probs.new_empty(0)]
        for first in range(0, len(words), PART):
            begin = max(0, first - self.order + 1)
            end = first + PART
            parts.append(self.score_part(words[begin:end], places[begin:end])[first - begin :])
        scores = torch.cat(parts)
        return scores.masked_fill_(scores <= LOG_ZERO / 2, -torch.inf)

    def score_part(self, words: Int[Tensor, " words"], places: Int[Tensor, " words"]) -> Float[Tensor, " words"]:
        """The same for some of the words; the n-gram that ends at one is the history of the next: one search each."""
        scores, found = self.log_probs[words], words
        for order in range(2, min(self.order, len(words)) + 1):
            keys, log_probs, backoffs = self.level(order)
            reaches = places[order - 1 :] >= order - 1
            histories = torch.where(reaches, found[:-1], -1)
            found = self.find(keys, histories, words[order - 1 :])
            instead = torch.where(histories < 0, self.missing, backoffs[histories]).add_(scores[order - 1 :])
            better = torch.where(found < 0, instead, log_probs[found])
            scores[order - 1 :] = torch.where(reaches, better, scores[order - 1 :]) if self.missing else better
        return scores

    def find(
        self, keys: Int[Tensor, " ngrams"], histories: Int[Tensor, " asked"], words: Int[Tensor, " asked"]
    ) -> Int[Tensor, " asked"]:
        """The places of n-grams among the keys of their order, by the places of their histories; −1 for none."""
        wanted = torch.add(words, histories, alpha=self.words)  # negative after a history that is not there
        places = torch.searchsorted(keys, wanted).clamp_(max=len(keys) - 1)
        return torch.where(keys[places] == wanted, places, -1)

    def next_words(self, histories: Int[Tensor, "rows past"]) -> Float[Tensor, "rows words"]:
        """The log-probability of every word after each history, LOG_ZERO at least; `<pad>` before a text begins."""
        scores = self.log_probs[: self.words].expand(len(histories), -1).clone()
        for length in range(1, self.order):
            keys, log_probs, backoffs = self.level(length + 1)
            found = self.find_history(histories[:, -length:])
            weights = torch.where(found < 0, self.missing, backoffs[found])
            begun = (histories[:, -length:] != PAD).all(dim=1)
            scores += torch.where(begun, weights, 0.0)[:, None]
            edges = torch.stack((found, found + 1)).clamp_(min=0) * self.words
            first, last = torch.searchsorted(keys, edges)
            many = last - first
            rows = torch.repeat_interleave(many)
            places = torch.arange(len(rows), device=rows.device) + (first - many.cumsum(0) + many)[rows]
            scores[rows, keys[places] % self.words] = log_probs[places]
        return scores.clamp_(min=LOG_ZERO)

    def find_history(self, tokens: Int[Tensor, "rows length"]) -> Int[Tensor, " rows"]:
        """The place of each among the n-grams of its length, −1 for none."""
        found = tokens[:, 0]
        for order in range(2, tokens.shape[1] + 1):
            found = self.find(self.level(order)[0], found, tokens[:, order - 1])
        return found

    def _apply(self, change: Callable[[Tensor], Tensor], recurse: bool = True) -> Table:
        """Move the table, but never round it: it is looked up, and fewer bits would make nothing faster."""

        def moved(tensor: Tensor) -> Tensor:
            changed = change(tensor)
            return changed if changed.dtype == tensor.dtype else tensor.to(changed.device)

        super()._apply(moved, recurse)  # type: ignore[no-untyped-call]
        return self


def flat_arrays(ngrams: Ngrams) -> dict[str, Tensor]:
    """The arrays of a table as they are saved."""
    joined = {
        "keys": np.concatenate([np.empty(0, np.int64), *ngrams.keys]),
        "log_probs": np.concatenate(ngrams.log_probs),
        "backoffs": np.concatenate([np.empty(0, np.float32), *ngrams.backoffs]),
        "sizes": np.array(ngrams.sizes),
    }
    return {name: torch.from_numpy(array) for name, array in joined.items()}
