"""BPE-dropout: merges are skipped at random, so that a model sees many segmentations of a word.

Provilkov, Emelianenko and Voita 2020, BPE-Dropout: Simple and Effective Subword Regularization, arXiv:1910.13267.

While a word is merged from its characters, each possible merge is dropped with probability p, each occurrence
independently; the best remaining merge is applied, and the word is done when none remains. So the applied merge is the
k-th best (from 0) with probability p^k (1 - p): one random number decides a step, and without drops the result is that
of plain BPE. Merge sequences rarely branch and often meet again, so each segmentation of a word caches the
segmentations one merge away.

The `tokenizers` library has dropout too, but its random numbers cannot be seeded. It also reconsiders dropped merges
whenever it meets a merge that an earlier one made impossible, so it drops a little less.
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
"""Units with merges, from whose pieces the words of the text can be recovered."""
MOST = 1_000_000
"""Cached segmentations, some 250 MB; then the cache is emptied, which changes only the speed."""
WORD, MARKS, ALONE, BLANK, SPACE, ANY = range(6)
"""Kinds of pieces. Letters join letters and punctuation joins punctuation; "<" and a tab are words of their own; a
space belongs to what follows; an unknown character may be anything."""
LIKE = {WORD: "a", MARKS: "."}
Ids: TypeAlias = NDArray[np.integer[Any]]
Draw: TypeAlias = Callable[[Ids], NDArray[np.float64]]
"""Draws random numbers in [0, 1): a given count for each text, concatenated in the order of the texts."""


class Dropout:
    """Segments tokenized texts again, with merges dropped at random."""

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
        """The rank of a pair of pieces that can be merged, and the merged piece; a lower rank comes first."""
        names = {number: name for name, number in ids.items() if number >= len(SPECIALS)}
        whole = range(len(tokenizer.vocabulary))
        # An unknown character and the tag of a domain are characters of their own, which never merge.
        self.letters = [tuple(ids[letter] for letter in names[i]) if i in names else (i,) for i in whole]
        self.sizes = np.array([len(letters) for letters in self.letters])
        self.begins = np.array([names.get(i, "").startswith(" ") for i in whole])
        self.kinds = np.array([self.kind_of(names.get(i, "")) for i in whole])
        self.tags = frozenset(tokenizer.domains.values())
        self.spelled: dict[tuple[int, ...], Cut] = {}
        """The characters of a word, by its pieces."""
        self.known: dict[tuple[int, ...], Cut] = {}
        """Segmentations by their pieces."""

    def cut(self, texts: Sequence[Ids], draw: Draw) -> list[Ids]:
        """Segment texts again; without drops the pieces do not change. It is fast for many texts per call."""
        flat = np.concatenate([np.empty(0, dtype=np.int64), *texts])
        letters = np.append(0, np.cumsum(self.sizes[flat]))  # characters before each piece, and in total
        bounds = np.cumsum([0, *map(len, texts)])  # the first piece of each text, and the end
        starts = np.append(self.words(flat, bounds), len(flat))  # the first piece of each word, and the end
        first = letters[starts]
        chances = draw(np.diff(letters[bounds]))
        drops = np.flatnonzero(chances < self.probability)
        # A word has one random number per character, and plain BPE uses one per merge: later drops change nothing.
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
        # New pieces replace each changed word.
        sizes[changed] = [len(pieces) for pieces in again]
        after = np.append(0, np.cumsum(sizes))
        is_new = np.repeat(np.isin(np.arange(len(sizes)), changed), sizes)
        was_new = np.repeat(np.isin(np.arange(len(sizes)), changed), np.diff(starts))
        pieces = np.empty(after[-1], dtype=np.int64)
        pieces[is_new] = [piece for word in again for piece in word]
        pieces[~is_new] = flat[~was_new]
        return np.split(pieces, after[np.searchsorted(starts, bounds)][1:-1])

    def join_all(self, given: list[int], skips: list[int], places: Ids, chances: Ids) -> list[tuple[int, ...]]:
        """The new pieces of some words; `places` and `chances` bound their pieces and their skips."""
        if len(self.known) > MOST:
            self.known.clear()
            self.spelled.clear()
        return [
            self.join(tuple(given[start:end]), skips[low:high])
            for start, end, low, high in zip(*places.tolist(), *chances.tolist(), strict=True)
        ]

    def join(self, word: tuple[int, ...], skips: Sequence[int]) -> tuple[int, ...]:
        """The pieces of one word; `skips` is the number of best merges that each step drops."""
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
        """A segmentation of a word, from the cache if it is there."""
        found = self.known.get(pieces)
        if found is None:
            pairs = ((self.merges.get(pair), place) for place, pair in enumerate(pairwise(pieces)))
            best = sorted((merge[0], place) for merge, place in pairs if merge is not None)
            found = self.known[pieces] = Cut(pieces, [place for _, place in best])
        return found

    def merged(self, pieces: tuple[int, ...], place: int) -> tuple[int, ...]:
        """The pieces with the one at this index and the next one merged."""
        return (*pieces[:place], self.merges[pieces[place], pieces[place + 1]][1], *pieces[place + 2 :])

    def words(self, ids: Ids, bounds: Ids) -> Ids:
        """The indices of the first pieces of words, which no merge crosses; texts lie between the bounds."""
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
        """The kind of a piece, by what the pre-tokenizer would not split it from."""
        body = piece.lstrip(" ")
        if not body:
            return SPACE if piece else ANY
        if body.isspace():
            return BLANK
        cutter: Any = self.backend.pre_tokenizer
        return next((kind for kind, like in LIKE.items() if len(cutter.pre_tokenize_str(like + body)) == 1), ALONE)

    def byte_words(self, ids: Ids, start: int, end: int) -> list[int]:
        """The first pieces of words for unit byte-bpe, found by pre-tokenizing the text again."""
        given = ids[start:end].tolist()
        parts: Any = self.backend.pre_tokenizer
        lengths = [len(part) for part, _ in parts.pre_tokenize_str(self.backend.decode(given))]
        tag = [1] if given and given[0] in self.tags else []  # a tag is not part of the text
        place_of = dict(zip(accumulate(self.sizes[given].tolist(), initial=0), range(start, end + 1), strict=True))
        return [place_of[letters] for letters in accumulate([*tag, *lengths], initial=0)][:-1]


class Cut:
    """A segmentation of a word, and its merges, best first: the index of each, or the segmentation it leads to."""

    __slots__ = ("following", "pieces")

    def __init__(self, pieces: tuple[int, ...], following: list[int | Cut]) -> None:
        self.pieces, self.following = pieces, following
