"""Masking for masked language models: which tokens are hidden, and what is read in their place.

Of every text a share of the tokens is chosen, by default 15 %. Of these 80 % become `<mask>`, 10 % a random token of
the vocabulary, and 10 % stay as they are (Devlin et al. 2018, arXiv:1810.04805, section 3.1):

    my dog is hairy   →   my dog is <mask>  |  my dog is apple  |  my dog is hairy

What is chosen together is a unit:

    token    every token by itself
    word     the pieces of a word (whole-word masking); a punctuation mark is a word
    eojeol   what stands between two spaces: in Korean a word with its particles and endings
    ngram    one to three words in a row, n words with a probability proportional to 1/n (Lan et al. 2019,
             ALBERT, arXiv:1909.11942, section 4.1)

Special tokens and padding are never chosen. All of it follows from the random numbers that are given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Int64, Integer

from mallang.errors import UserError
from mallang.text.tokenizer import Tokenizer

Unit = Literal["token", "word", "eojeol", "ngram"]
LONGEST = 3
"""The most words of an n-gram."""
MARKS = {"byte-bpe": "Ġ", **dict.fromkeys(("word", "bpe", "morpheme", "unigram"), "▁")}
"""How the tokens of a unit show that a space stands before them."""


@dataclass(frozen=True)
class Rates:
    """How much is masked, and how."""

    rate: float = 0.15
    """The share of the tokens that is chosen."""
    random: float = 0.1
    """The share of the chosen ones that become a random token."""
    kept: float = 0.1
    """The share of the chosen ones that stay as they are."""
    is_exact: bool = False
    """Whether round(rate · tokens) are chosen of every batch; otherwise rate · tokens of every text, a fraction by
    chance."""


@dataclass(frozen=True)
class Masked:
    """A batch after masking."""

    tokens: Int64[np.ndarray, "rows time"]
    """What is read."""
    places: Int64[np.ndarray, "masked 3"]
    """The row, the position and the original token of each chosen token, in their order."""


class Masker:
    """Masks batches of the ids of one tokenizer."""

    def __init__(self, tokenizer: Tokenizer, unit: Unit = "token") -> None:
        vocabulary = tokenizer.vocabulary
        self.unit, self.mask = unit, vocabulary.mask
        self.is_special = np.zeros(len(vocabulary), dtype=bool)
        self.is_special[list(vocabulary.specials)] = True
        self.ordinary = np.flatnonzero(~self.is_special)
        """What a random token may be: every token but the special ones."""
        self.begins, self.is_mark = None, None
        if unit != "token":
            self.begins, self.is_mark = word_tables(tokenizer, unit)

    def __call__(
        self,
        tokens: Int64[np.ndarray, "rows time"],
        lengths: Integer[np.ndarray, " rows"],
        rates: Rates,
        random: np.random.Generator,
    ) -> Masked:
        """Choose tokens of a padded batch and corrupt them."""
        is_text = np.arange(tokens.shape[1]) < np.asarray(lengths)[:, None]
        rows, columns = np.nonzero(is_text & ~self.is_special[tokens])
        chosen = choose(
            np.zeros_like(rows) if rates.is_exact else rows, self.units(tokens, rows, columns, random), rates, random
        )
        rows, columns = rows[chosen], columns[chosen]
        originals = tokens[rows, columns]
        corrupted = tokens.copy()
        corrupted[rows, columns] = self.replaced(originals, rates, random)
        return Masked(corrupted, np.stack((rows, columns, originals), axis=1))

    def units(
        self,
        tokens: Int64[np.ndarray, "rows time"],
        rows: Integer[np.ndarray, " candidates"],
        columns: Integer[np.ndarray, " candidates"],
        random: np.random.Generator,
    ) -> Integer[np.ndarray, " candidates"]:
        """The number of the unit that each candidate belongs to."""
        if self.begins is None:
            return np.arange(len(rows))
        ids = tokens[rows, columns]
        first = self.begins[ids]
        if self.is_mark is not None:  # letters after punctuation begin a word, and punctuation after letters
            first[1:] |= self.is_mark[ids[1:]] != self.is_mark[ids[:-1]]
        is_new_row = np.diff(rows, prepend=-1) != 0
        first |= is_new_row | (np.diff(columns, prepend=-1) != 1)
        words = np.cumsum(first) - 1
        if self.unit != "ngram":
            return words
        ngrams = ngrams_of(int(words[-1]) + 1 if len(words) else 0, random)[words]
        return np.cumsum(is_new_row | (np.diff(ngrams, prepend=-1) != 0)) - 1

    def replaced(
        self, originals: Int64[np.ndarray, " masked"], rates: Rates, random: np.random.Generator
    ) -> Int64[np.ndarray, " masked"]:
        """What is read in place of the chosen tokens."""
        fate = random.random(len(originals))
        drawn = self.ordinary[random.integers(0, len(self.ordinary), len(originals))]
        corrupted = np.where(fate < rates.random, drawn, self.mask)
        return np.where(fate >= 1.0 - rates.kept, originals, corrupted)


def choose(
    rows: Integer[np.ndarray, " candidates"],
    units: Integer[np.ndarray, " candidates"],
    rates: Rates,
    random: np.random.Generator,
) -> Bool[np.ndarray, " candidates"]:
    """Which candidates are chosen: whole units in random order, until a row has rate · candidates.

    The unit that crosses this count is taken with the probability that makes the expected count right.
    """
    if not len(rows):
        return np.zeros(0, dtype=bool)
    sizes = np.bincount(units)
    row_of_unit = rows[np.cumsum(sizes) - sizes]
    order = np.lexsort((random.random(len(sizes)), row_of_unit))
    taken, row = sizes[order], row_of_unit[order]
    reached = np.cumsum(taken)
    in_rows = np.bincount(rows)
    reached = reached - (np.cumsum(in_rows) - in_rows)[row]
    wanted = rates.rate * in_rows
    left = (np.round(wanted) if rates.is_exact else wanted)[row] - (reached - taken)
    is_taken = np.zeros(len(sizes), dtype=bool)
    is_taken[order] = random.random(len(sizes)) * taken < left
    chosen: np.ndarray = is_taken[units]
    return chosen


def ngrams_of(words: int, random: np.random.Generator) -> Int64[np.ndarray, " words"]:
    """Words cut into n-grams, n with a probability proportional to 1/n: the number of the n-gram of each word."""
    shares = 1.0 / np.arange(1, LONGEST + 1)
    lengths = random.choice(LONGEST, size=words, p=shares / shares.sum()) + 1
    return np.repeat(np.arange(words), lengths)[:words]


def word_tables(
    tokenizer: Tokenizer, unit: Unit
) -> tuple[Bool[np.ndarray, " vocabulary"], Bool[np.ndarray, " vocabulary"] | None]:
    """Which tokens begin a word by themselves, and which are punctuation where that decides too.

    WordPiece does not keep spaces: there an eojeol is a word with the punctuation after it.
    """
    kind, tokens = tokenizer.config.unit, tokenizer.vocabulary.tokens
    if kind == "space":
        return np.ones(len(tokens), dtype=bool), None
    if kind == "wordpiece":
        begins = np.array([not token.startswith("##") for token in tokens])
        return (begins & ~punctuation(tokens) if unit == "eojeol" else begins), None
    if kind not in MARKS:
        raise UserError(
            f"task.unit = {unit!r} masks words, and tokens of the unit {kind} do not show where words begin",
            todo="task.unit=token, or text.unit=bpe",
        )
    begins = np.array([token.startswith(MARKS[kind]) for token in tokens])
    is_mark = punctuation([token.removeprefix(MARKS[kind]) for token in tokens], only_ascii=kind == "byte-bpe")
    return begins, None if unit == "eojeol" else is_mark


def punctuation(tokens: Sequence[str], *, only_ascii: bool = False) -> Bool[np.ndarray, " tokens"]:
    """Which tokens hold neither letters nor digits; of byte-level ones, all beyond ASCII count as letters."""
    return np.array(
        [
            bool(token) and not any(each.isalnum() or (only_ascii and not each.isascii()) for each in token)
            for token in tokens
        ]
    )
