"""Word vectors of two parts: a learned vector of the word itself, and one that is computed from its characters.

    "Cats"  →  row of "cats" in the embedding      ┐
            →  C a t s  →  CNN or LSTM             ┴→  concatenated

The word itself is folded: words that differ only in case or in digits share a row, while the characters are read as
they are (Collobert et al. 2011, arXiv:1103.0398; Lample et al. 2016, arXiv:1603.01360).

| id                | word part                    | character part      |
|-------------------|------------------------------|---------------------|
| below V           | the row of its folded form   | the token           |
| from V, below 2 V | the row of `<unk>`           | the token id − V    |
| from 2 V          | as below V, or `<unk>`       | an OOV word         |

V is the size of the vocabulary. The ids from V to 2 V let a task hide known words in training, so that the model learns
what to do with unknown ones: their characters are still there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.layers.embedding import Spellings
from mallang.layers.recurrent import BidirectionalReader
from mallang.layers.spelling import Spelling
from mallang.text.vocabulary import Vocabulary

DIGIT = re.compile(r"\d")
Folds = Literal["case-and-digits", "case", "nothing"]
"""What words may differ in and still share a learned vector."""


@runtime_checkable
class HidesWords(Protocol):
    """A model that can read a known word from its characters alone, as it reads an unknown one."""

    @property
    def hidden_from(self) -> int:
        """What is added to the id of a token to hide the word."""


@runtime_checkable
class SharedEmbedding(Protocol):
    """A model in which several tokens share a learned vector, so that its table has no row for each token."""

    def shared_embedding(self) -> nn.Embedding:
        """The table of learned vectors."""

    def shared_spellings(self) -> Spellings:
        """How the word of every row may be spelled."""


class WordVectors(nn.Module):
    """The vectors of words: learned, and computed from characters if there is a `spelling`."""

    rows: Int[Tensor, " ids"]

    def __init__(self, vocabulary: Vocabulary, dim: int, spelling: Spelling | None = None, *, folds: Folds) -> None:
        super().__init__()
        self.folds, self.vocabulary = folds, vocabulary
        self.unknown, self.hidden_from = vocabulary.unk, len(vocabulary)
        tokens, specials = enumerate(vocabulary.tokens), vocabulary.specials
        forms = [token if number in specials else self.form(token) for number, token in tokens]
        self.places = {form: row for row, form in enumerate(dict.fromkeys(forms))}
        """The row of every form."""
        self.firsts = {form: number for number, form in reversed(list(enumerate(forms)))}
        """The first token of every form."""
        rows = [self.places[form] for form in forms]
        self.unknown_row = rows[self.unknown]
        hidden = [self.unknown_row] * len(rows)
        self.register_buffer("rows", torch.tensor(rows + hidden), persistent=False)  # the vocabulary determines it
        self.known: Tensor | None = None
        """The rows without OOV words, while there are some: captured CUDA graphs may read them."""
        self.embedding = nn.Embedding(len(self.places), dim)
        self.spelling = spelling
        if spelling is not None:
            spelling.spelling, spelling.lengths = spelling.spelling.repeat(2, 1), spelling.lengths.repeat(2)
            spelling.skips_unknown = True

    def form(self, word: str) -> str:
        """What words must have in common to share a row."""
        lower = word if self.folds == "nothing" else word.lower()
        return DIGIT.sub("0", lower) if self.folds == "case-and-digits" else lower

    def spellings(self) -> list[tuple[str, ...]]:
        """How the word of every row may be spelled: folded, then as the tokens that share it."""
        found: list[list[str]] = [[] for _ in self.places]
        specials = self.vocabulary.specials
        for number, token in enumerate(self.vocabulary.tokens):
            if number not in specials:
                own = found[self.places[form := self.form(token)]]
                own += [token] if own else [form, token]
        return [tuple(dict.fromkeys(own)) for own in found]

    def forward(self, tokens: Int[Tensor, "rows time"]) -> Float[Tensor, "rows time dim"]:
        """The vectors of tokens."""
        own: Tensor = self.embedding(self.rows[tokens])
        return own if self.spelling is None else torch.cat((own, self.spelling(tokens)), dim=-1)

    def ids_of_oov(self, words: Sequence[str]) -> list[int]:
        """The ids of out-of-vocabulary words; a word without a form or a spelling that is known is `<unk>`."""
        forms = [self.form(word) for word in words]
        if self.spelling is None:
            return [self.firsts.get(form, self.unknown) for form in forms]
        before = len(self.spelling.spelling)
        ids = self.spelling.ids_of_oov(words)
        if (after := len(self.spelling.spelling)) > before:
            self.known = self.rows if self.known is None else self.known
            form_of, unknown = dict(zip(ids, forms, strict=True)), self.unknown_row
            more = [self.places.get(form_of[number], unknown) for number in range(before, after)]
            self.rows = torch.cat([self.rows, self.rows.new_tensor(more)])
        return ids

    def forget_oov(self, most: int | None = None) -> None:
        """Forget out-of-vocabulary words if there are more than `most`."""
        if self.spelling is None:
            return
        self.spelling.forget_oov(most)
        if self.known is not None and self.spelling.known is None:
            self.rows, self.known = self.known.to(self.rows.device), None


class CharacterLSTM(Spelling):
    """A word vector from the last states of an LSTM in both directions over its characters (Lample et al. 2016)."""

    def __init__(self, vocabulary: Vocabulary, dim: int, features: int, longest: int = 65, jamo: bool = False) -> None:
        """`features` is the size of a word vector, half of it for each direction."""
        super().__init__(vocabulary, dim, longest, jamo)
        self.lstm = BidirectionalReader("lstm", dim, features // 2)
        self.features = 2 * (features // 2)

    @property
    def dim(self) -> int:
        """The size of a word vector."""
        return self.features

    def read(self, words: Int[Tensor, " words"]) -> Float[Tensor, "words features"]:
        """The vectors of words, from their characters."""
        _, last, first = self.lstm(self.letters(self.spelling[words]), self.lengths[words])
        return torch.cat((last.hidden[:, -1], first.hidden[:, -1]), dim=-1)
