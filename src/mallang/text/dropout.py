"""BPE-dropout: merges that are skipped at random, so that a model sees a word cut in many ways.

Provilkov, Emelianenko and Voita 2020, BPE-Dropout: Simple and Effective Subword Regularization, arXiv:1910.13267.

While a word is put together from its letters, each merge that could be made next is dropped with probability p, each
occurrence for itself; the best one left is made, and the word is done when none is left. So the merge that is made is
the k-th best with probability p^k (1 - p): one random number decides a step, and without drops the way is that of
plain BPE. Ways branch off rarely and meet again, so each cut of a word remembers the cuts one merge away.

The `tokenizers` library has dropout too, but from random numbers of its own that nothing can seed. It also gives
dropped merges a second chance whenever it comes across a merge that an earlier one made impossible, so it drops a
little less.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from jaxtyping import Integer

from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import SPECIALS

UNITS = ("bpe", "byte-bpe")
"""Units that merge, and whose pieces tell where the words of the text were."""
MOST = 300_000
"""Cuts that are remembered, some 100 MB; then remembering begins anew, which changes speed alone."""


class Dropout:
    """Cuts text that one tokenizer has cut already anew, with merges dropped at random."""

    def __init__(self, tokenizer: Tokenizer, probability: float) -> None:
        if tokenizer.config.unit not in UNITS:
            raise ValueError(f"{tokenizer.config.unit} has no merges to drop")
        if not 0.0 <= probability < 1.0:
            raise ValueError(f"the probability of a drop must be at least 0 and below 1, but is {probability}")
        model = json.loads(tokenizer.files[0])["model"]
        ids: dict[str, int] = model["vocab"]
        self.probability = probability
        self.backend = tokenizer.backend
        self.are_bytes = tokenizer.config.unit == "byte-bpe"
        self.merges = {
            (ids[left], ids[right]): (rank, ids[left + right]) for rank, (left, right) in enumerate(model["merges"])
        }
        """The rank of two pieces that may become one, and that one; a lower rank comes first."""
        names = {number: name for name, number in ids.items() if number >= len(SPECIALS)}
        whole = range(len(tokenizer.vocabulary))
        # An unknown character and the tag of a domain are letters of their own, which merge with nothing.
        self.letters = [tuple(ids[letter] for letter in names[i]) if i in names else (i,) for i in whole]
        self.sizes = [len(letters) for letters in self.letters]
        self.begins = [names.get(i, "").startswith(" ") for i in whole]
        self.ends = [names.get(i, "").endswith("<") for i in whole]
        self.tags = frozenset(tokenizer.domains.values())
        self.spelled: dict[tuple[int, ...], Cut] = {}
        """The letters of a word, by its pieces."""
        self.known: dict[tuple[int, ...], Cut] = {}
        """Cuts by their pieces."""

    def cut(
        self, ids: Integer[np.ndarray, " tokens"], random: np.random.Generator
    ) -> Integer[np.ndarray, " tokens_now"]:
        """The same text in other pieces; without drops, in the same ones."""
        given: list[int] = ids.tolist()
        sizes = [self.sizes[piece] for piece in given]
        skips = self.draw(sum(sizes), random)
        if not any(skips):
            return ids
        pieces: list[int] = []
        first = 0  # letters before the word
        for start, end in pairwise(self.words(given, sizes)):
            after = first + sum(sizes[start:end])
            word = given[start:end]
            # A word has one chance a letter, and plain BPE uses one a merge: a drop after those changes nothing.
            if any(skips[first : after - len(word)]):
                pieces += self.join(tuple(word), skips[first:after])
            else:
                pieces += word
            first = after
        return np.array(pieces, dtype=ids.dtype)

    def draw(self, count: int, random: np.random.Generator) -> list[int]:
        """How many of the best merges each step drops: k or more with probability p^k."""
        chances = random.random(count)
        drops = (chances < self.probability).nonzero()[0]
        skips = [0] * count
        for place, chance in zip(drops.tolist(), chances[drops].tolist(), strict=True):
            skips[place] = int(math.log(chance or 1e-300) / math.log(self.probability))
        return skips

    def join(self, word: tuple[int, ...], skips: Sequence[int]) -> tuple[int, ...]:
        """The pieces of one word; `skips` says of each step how many of the best merges it drops."""
        cut = self.spelled.get(word)
        if cut is None:
            if len(self.known) > MOST:
                self.known.clear()
                self.spelled.clear()
            cut = self.spelled[word] = self.at(sum((self.letters[piece] for piece in word), ()))
        for skip in skips:
            if skip >= len(cut.following):
                break  # every merge is dropped, or there is none left
            following = cut.following[skip]
            if isinstance(following, int):
                following = cut.following[skip] = self.at(self.merged(cut.pieces, following))
            cut = following
        return cut.pieces

    def at(self, pieces: tuple[int, ...]) -> Cut:
        """A cut of a word, from memory if it is there."""
        found = self.known.get(pieces)
        if found is None:
            pairs = ((self.merges.get(pair), place) for place, pair in enumerate(pairwise(pieces)))
            best = sorted((merge[0], place) for merge, place in pairs if merge is not None)
            found = self.known[pieces] = Cut(pieces, [place for _, place in best])
        return found

    def merged(self, pieces: tuple[int, ...], place: int) -> tuple[int, ...]:
        """The pieces with the one at this place and the next made one."""
        return (*pieces[:place], self.merges[pieces[place], pieces[place + 1]][1], *pieces[place + 2 :])

    def words(self, ids: list[int], sizes: list[int]) -> list[int]:
        """Where words begin, that is, what BPE does not look beyond; and where the last one ends."""
        if self.are_bytes:
            parts: Any = self.backend.pre_tokenizer
            lengths = [len(part) for part, _ in parts.pre_tokenize_str(self.backend.decode(ids))]
            place_of = {letters: place for place, letters in enumerate(accumulate(sizes, initial=0))}
            tag = [1] if ids and ids[0] in self.tags else []  # which is no part of the text
            return [place_of[letters] for letters in accumulate([*tag, *lengths], initial=0)]
        begins, ends = self.begins, self.ends
        inner = [place for place in range(1, len(ids)) if begins[ids[place]] or ends[ids[place - 1]]]
        return [0, *inner, len(ids)]


class Cut:
    """A word in pieces, and what one merge leads to, best merge first: its place, or the cut once it is known."""

    __slots__ = ("following", "pieces")

    def __init__(self, pieces: tuple[int, ...], following: list[int | Cut]) -> None:
        self.pieces, self.following = pieces, following
