"""The spelling of every token of a vocabulary as character ids, with more rows for out-of-vocabulary (OOV) words.

    <s> c a t </s> · ·        ids of a word between two boundary marks, padded to the longest word

Word vectors are computed from these rows: by convolutions (layers/characters.py) or by an LSTM (layers/words.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.kernels.distinct import for_distinct
from mallang.text.hangul import decompose
from mallang.text.vocabulary import Vocabulary

NOTHING, BEGIN, END = 0, 1, 2
"""The ids of the padding after a word, and of the boundary marks around it."""
MOST_OOV = 2**16
"""Out-of-vocabulary words whose spelling is kept from one call to the next, at most."""


@runtime_checkable
class KeepsWords(Protocol):
    """A model that can add out-of-vocabulary words to its inputs for good; it reads them from their characters."""

    def keep_words(self, words: Sequence[str]) -> list[int]:
        """Input ids for out-of-vocabulary words that `forget_oov` never frees; `<unk>` for one without a spelling."""


@runtime_checkable
class ReadsSpelling(Protocol):
    """A model that computes word vectors from characters, for out-of-vocabulary (OOV) words as well."""

    def ids_of_oov(self, words: Sequence[str]) -> list[int]:
        """Input ids for out-of-vocabulary words, beyond the ids of the vocabulary.

        A word that cannot be spelled is `<unk>`. These ids are never predicted: as labels the words are `<unk>`.
        """

    def forget_oov(self, most: int | None = None) -> None:
        """Drop these ids if there are more than `most`, by default MOST_OOV.

        A caller that holds some must call `ids_of_oov` again.
        """

    def word_vectors(self, tokens: Int[Tensor, "rows time"]) -> Float[Tensor, "rows time dim"]:
        """The word vectors that the layers above read."""


class Spelling(nn.Module):
    """The characters of every token of a vocabulary; a subclass computes a vector from them by `read`."""

    spelling: Int[Tensor, "words length"]
    lengths: Int[Tensor, " words"]

    def __init__(self, vocabulary: Vocabulary, dim: int, longest: int = 65, jamo: bool = False) -> None:
        """Words are truncated to `longest` characters, marks included."""
        super().__init__()
        spelling, lengths, self.letter_ids = spelled(vocabulary, longest, jamo)
        self.words, self.unknown, self.longest, self.jamo = len(vocabulary), vocabulary.unk, longest, jamo
        self.skips_unknown = False
        """Whether unknown characters of a word are left out; otherwise such a word is `<unk>`."""
        self.oov_ids: dict[str, int] = {}
        self.known: tuple[Tensor, Tensor] | None = None
        """The table without OOV words, while there are some: captured CUDA graphs may read it."""
        self.register_buffer("spelling", spelling, persistent=False)  # the vocabulary determines it
        self.register_buffer("lengths", lengths, persistent=False)
        self.letters = nn.Embedding(END + 1 + len(self.letter_ids), dim, padding_idx=NOTHING)

    def forward(self, tokens: Int[Tensor, "rows time"]) -> Float[Tensor, "rows time dim"]:
        """The vectors of tokens."""
        return for_distinct(self.read, tokens)

    def read(self, words: Int[Tensor, " words"]) -> Float[Tensor, "words dim"]:
        """The vectors of words, from their characters."""
        raise NotImplementedError

    def ids_of_oov(self, words: Sequence[str]) -> list[int]:
        """The ids of out-of-vocabulary words: rows that are added to the table of spellings.

        A word longer than the width of the table is truncated, as long words of the vocabulary are.
        """
        width, rows = min(self.spelling.shape[1], self.longest), list[list[int]]()
        for word in dict.fromkeys(words):
            letters = self.letters_of(word)
            if word in self.oov_ids or not letters:
                continue
            self.oov_ids[word] = len(self.spelling) + len(rows)
            rows.append([BEGIN, *letters[: width - 2], END])
        if rows:
            self.known = self.known or (self.spelling, self.lengths)
            filled = [[*row, *[NOTHING] * (self.spelling.shape[1] - len(row))] for row in rows]
            self.spelling = torch.cat([self.spelling, self.spelling.new_tensor(filled)])
            self.lengths = torch.cat([self.lengths, self.lengths.new_tensor([len(row) for row in rows])])
        return [self.oov_ids.get(word, self.unknown) for word in words]

    def keep_words(self, words: Sequence[str]) -> list[int]:
        """The ids of out-of-vocabulary words, whose rows stay in the table."""
        ids = self.ids_of_oov(words)
        self.known = None
        self.oov_ids.clear()
        return ids

    def letters_of(self, word: str) -> list[int]:
        """The character ids of a word; none if it cannot be spelled."""
        ids = [self.letter_ids.get(letter) for letter in (decompose(word) if self.jamo else word)]
        if None in ids and not self.skips_unknown:
            return []
        return [number for number in ids if number is not None]

    def forget_oov(self, most: int | None = None) -> None:
        """Reset the table to the vocabulary if it has more than `most` other words, by default MOST_OOV."""
        if self.known is not None and len(self.oov_ids) > (MOST_OOV if most is None else most):
            self.oov_ids.clear()
            self.spelling, self.lengths = (table.to(self.spelling.device) for table in self.known)
            self.known = None

    def follow(self, other: Spelling) -> None:
        """Take over the table of spellings of `other`, of which this is a copy."""
        if self.spelling is not other.spelling:
            self.spelling, self.lengths = other.spelling, other.lengths


def spelled(vocabulary: Vocabulary, longest: int, jamo: bool) -> tuple[Tensor, Tensor, dict[str, int]]:
    """The character ids of every token between the two marks, their lengths, and the id of every character.

    A special token is one character of its own; Hangul may be decomposed into jamo.
    """
    specials = vocabulary.specials
    texts = [
        "" if number in specials else decompose(token) if jamo else token
        for number, token in enumerate(vocabulary.tokens)
    ]
    inventory = sorted({*"".join(texts), *(vocabulary.tokens[number] for number in specials)})
    ids = {letter: number for number, letter in enumerate(inventory, start=END + 1)}
    # All at once: a vocabulary may have as many words as a file of word vectors.
    cut = [text[: longest - 2] for text in texts]
    codes = np.frombuffer("".join(cut).encode("utf-32-le", "surrogatepass"), np.uint32)
    known, places = np.unique(codes, return_inverse=True)
    sizes = np.array([len(text) for text in cut])
    table = np.full((len(cut), max(1, sizes.max()) + 2), NOTHING)
    table[:, 0] = BEGIN
    numbers = np.array([ids[chr(code)] for code in known.tolist()], dtype=np.int64)
    table[:, 1:-1][np.arange(table.shape[1] - 2) < sizes[:, None]] = numbers[places]
    for number in specials:
        table[number, 1], sizes[number] = ids[vocabulary.tokens[number]], 1
    table[np.arange(len(table)), sizes + 1] = END
    return torch.from_numpy(table), torch.from_numpy(sizes + 2), ids
