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
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import SPECIALS

UNITS = ("bpe", "byte-bpe")
"""Units that merge, and whose pieces tell where the words of the text were."""
MOST = 1_000_000
"""Cuts that are remembered, some 250 MB; then remembering begins again, which changes speed alone."""
WORD, MARKS, ALONE, BLANK, SPACE, ANY = range(6)
"""Kinds of pieces. Letters stay with letters and marks with marks; "<" and a tab stand alone; a space belongs to what
follows; an unknown character may be anything."""
LIKE = {WORD: "a", MARKS: "."}
Ids: TypeAlias = NDArray[np.integer[Any]]
Draw: TypeAlias = Callable[[Ids], NDArray[np.float64]]
"""Gives random numbers between 0 and 1: as many for each text as is asked for, one text's after the other's."""


class Dropout:
    """Cuts texts that one tokenizer has cut already again, with merges dropped at random."""

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
        self.sizes = np.array([len(letters) for letters in self.letters])
        self.begins = np.array([names.get(i, "").startswith(" ") for i in whole])
        self.kinds = np.array([self.kind_of(names.get(i, "")) for i in whole])
        self.tags = frozenset(tokenizer.domains.values())
        self.spelled: dict[tuple[int, ...], Cut] = {}
        """The letters of a word, by its pieces."""
        self.known: dict[tuple[int, ...], Cut] = {}
        """Cuts by their pieces."""

    def cut(self, texts: Sequence[Ids], draw: Draw) -> list[Ids]:
        """The same texts in other pieces; without drops, in the same ones. Many at once are fast."""
        flat = np.concatenate([np.empty(0, dtype=np.int64), *texts])
        letters = np.append(0, np.cumsum(self.sizes[flat]))  # before each piece, and in all
        bounds = np.cumsum([0, *map(len, texts)])  # the first piece of each text, and the end
        starts = np.append(self.words(flat, bounds), len(flat))  # the first piece of each word, and the end
        first = letters[starts]
        chances = draw(np.diff(letters[bounds]))
        drops = np.flatnonzero(chances < self.probability)
        # A word has one chance a letter, and plain BPE uses one a merge: a drop after those changes nothing.
        sizes = np.diff(starts)
        merges = np.diff(first) - sizes
        owners = np.searchsorted(first, drops, side="right") - 1
        changed = np.unique(owners[drops - first[owners] < merges[owners]])
        if len(changed) == 0:
            return list(texts)
        skips = np.zeros(len(chances), dtype=np.int64)
        skips[drops] = np.log(np.maximum(chances[drops], 1e-300)) / math.log(self.probability)
        again = self.join_all(
            flat.tolist(), skips.tolist(), starts[[changed, changed + 1]], first[[changed, changed + 1]]
        )
        # Each changed word gives its place to its new pieces.
        sizes[changed] = [len(pieces) for pieces in again]
        after = np.append(0, np.cumsum(sizes))
        is_new = np.repeat(np.isin(np.arange(len(sizes)), changed), sizes)
        was_new = np.repeat(np.isin(np.arange(len(sizes)), changed), np.diff(starts))
        pieces = np.empty(after[-1], dtype=np.int64)
        pieces[is_new] = [piece for word in again for piece in word]
        pieces[~is_new] = flat[~was_new]
        return np.split(pieces, after[np.searchsorted(starts, bounds)][1:-1])

    def join_all(self, given: list[int], skips: list[int], places: Ids, chances: Ids) -> list[tuple[int, ...]]:
        """The new pieces of some words, which have these places among the pieces, and among the skips."""
        if len(self.known) > MOST:
            self.known.clear()
            self.spelled.clear()
        return [
            self.join(tuple(given[start:end]), skips[low:high])
            for start, end, low, high in zip(*places.tolist(), *chances.tolist(), strict=True)
        ]

    def join(self, word: tuple[int, ...], skips: Sequence[int]) -> tuple[int, ...]:
        """The pieces of one word; `skips` says of each step how many of the best merges it drops."""
        cut = self.spelled.get(word)
        if cut is None:
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

    def words(self, ids: Ids, bounds: Ids) -> Ids:
        """The first pieces of words, that is, of what BPE does not look beyond; texts lie between the bounds."""
        if self.are_bytes:
            texts = pairwise(bounds.tolist())
            return np.array([place for start, end in texts for place in self.byte_words(ids, start, end)], dtype=int)
        begins, kinds = self.begins[ids], self.kinds[ids]
        before, after = kinds[:-1], kinds[1:]
        together = (before == SPACE) | (before == ANY) | (after == ANY) | ((before == after) & (after <= MARKS))
        begins[1:] |= ~together | (after == BLANK)
        begins[bounds[:-1][np.diff(bounds) > 0]] = True
        return np.flatnonzero(begins)

    def kind_of(self, piece: str) -> int:
        """What a piece is made of, by what the tokenizer would not cut it from."""
        body = piece.lstrip(" ")
        if not body:
            return SPACE if piece else ANY
        if body.isspace():
            return BLANK
        cutter: Any = self.backend.pre_tokenizer
        return next((kind for kind, like in LIKE.items() if len(cutter.pre_tokenize_str(like + body)) == 1), ALONE)

    def byte_words(self, ids: Ids, start: int, end: int) -> list[int]:
        """The same of one text in bytes, whose words do not show in its pieces: the text itself is cut once more."""
        given = ids[start:end].tolist()
        parts: Any = self.backend.pre_tokenizer
        lengths = [len(part) for part, _ in parts.pre_tokenize_str(self.backend.decode(given))]
        tag = [1] if given and given[0] in self.tags else []  # which is no part of the text
        place_of = dict(zip(accumulate(self.sizes[given].tolist(), initial=0), range(start, end + 1), strict=True))
        return [place_of[letters] for letters in accumulate([*tag, *lengths], initial=0)][:-1]


class Cut:
    """A word in pieces, and what one merge leads to, best merge first: its place, or the cut once it is known."""

    __slots__ = ("following", "pieces")

    def __init__(self, pieces: tuple[int, ...], following: list[int | Cut]) -> None:
        self.pieces, self.following = pieces, following
