"""Character CNN: word vectors from the characters of a word, by convolutions of several widths and highway layers.

    c a t s  →  character embeddings  →  convolutions  →  max over time  →  highway layers  →  word vector

The filters of all widths are one matrix over windows of the widest, with zeros where a filter is narrower: one matmul
per batch. tanh comes after the max over time, which gives the same result, since tanh is monotonic.
(Kim et al. 2016, arXiv:1508.06615; highway: Srivastava et al. 2015, arXiv:1505.00387.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mallang.kernels.distinct import for_distinct
from mallang.text.hangul import decompose
from mallang.text.vocabulary import Vocabulary

NOTHING, BEGIN, END = 0, 1, 2
"""The ids of the padding after a word, and of the boundary marks around it."""
MOST_OOV = 2**16
"""Out-of-vocabulary words whose spelling is kept from one call to the next, at most."""


@runtime_checkable
class ReadsSpelling(Protocol):
    """A model that computes word vectors from characters, for out-of-vocabulary (OOV) words as well."""

    def ids_of_oov(self, words: Sequence[str]) -> list[int]:
        """Input ids for out-of-vocabulary words, beyond the ids of the vocabulary.

        A word with an unknown character is `<unk>`. These ids are never predicted: as labels the words are `<unk>`.
        """

    def forget_oov(self) -> None:
        """Drop these ids if there are many; a caller that holds some must call `ids_of_oov` again."""

    def word_vectors(self, tokens: Int[Tensor, "rows time"]) -> Float[Tensor, "rows time dim"]:
        """The word vectors that the layers above read."""


class Characters(nn.Module):
    """The vector of every token of a vocabulary, computed from its characters."""

    spelling: Int[Tensor, "words length"]
    lengths: Int[Tensor, " words"]

    def __init__(
        self, vocabulary: Vocabulary, dim: int, filters: Sequence[int], longest: int = 65, jamo: bool = False
    ) -> None:
        """`filters[w − 1]` filters of width w; words are truncated to `longest` characters, marks included."""
        super().__init__()
        spelling, lengths, self.letter_ids = spelled(vocabulary, longest, jamo)
        self.words, self.unknown, self.longest, self.jamo = len(vocabulary), vocabulary.unk, longest, jamo
        self.oov_ids: dict[str, int] = {}
        self.register_buffer("spelling", spelling, persistent=False)  # the vocabulary determines it
        self.register_buffer("lengths", lengths, persistent=False)
        self.letters = nn.Embedding(END + 1 + len(self.letter_ids), dim, padding_idx=NOTHING)
        self.filters = tuple(filters)
        self.weights = nn.ParameterList(torch.empty(count, width * dim) for width, count in self.widths())
        self.bias = nn.Parameter(torch.zeros(self.dim))

    @property
    def dim(self) -> int:
        """The size of a word vector: one value per filter."""
        return sum(self.filters)

    def widths(self) -> list[tuple[int, int]]:
        """Every filter width that occurs, and its number of filters."""
        return [(width, count) for width, count in enumerate(self.filters, start=1) if count]

    def forward(self, tokens: Int[Tensor, "rows time"]) -> Float[Tensor, "rows time filters"]:
        """The vectors of tokens."""
        return for_distinct(self.read, tokens)

    def ids_of_oov(self, words: Sequence[str]) -> list[int]:
        """The ids of out-of-vocabulary words: rows that are added to the table of spellings.

        A word longer than the width of the table is truncated, as long words of the vocabulary are.
        """
        width, rows = min(self.spelling.shape[1], self.longest), list[list[int]]()
        for word in dict.fromkeys(words):
            spelling = decompose(word) if self.jamo else word
            if word in self.oov_ids or not self.letter_ids.keys() >= set(spelling):
                continue
            self.oov_ids[word] = len(self.spelling) + len(rows)
            rows.append([BEGIN, *(self.letter_ids[letter] for letter in spelling[: width - 2]), END])
        if rows:
            filled = [[*row, *[NOTHING] * (self.spelling.shape[1] - len(row))] for row in rows]
            self.spelling = torch.cat([self.spelling, self.spelling.new_tensor(filled)])
            self.lengths = torch.cat([self.lengths, self.lengths.new_tensor([len(row) for row in rows])])
        return [self.oov_ids.get(word, self.unknown) for word in words]

    def forget_oov(self) -> None:
        """Reset the table to the vocabulary if it has more than MOST_OOV other words."""
        if len(self.oov_ids) > MOST_OOV:
            self.oov_ids.clear()
            self.spelling, self.lengths = self.spelling[: self.words].clone(), self.lengths[: self.words].clone()

    def follow(self, other: Characters) -> None:
        """Take over the table of spellings of `other`, of which this is a copy."""
        if self.spelling is not other.spelling:
            self.spelling, self.lengths = other.spelling, other.lengths

    def read(self, words: Int[Tensor, " words"]) -> Float[Tensor, "words filters"]:
        """The vectors of words, from their characters."""
        widest = self.widths()[-1][0]
        spelling, lengths = self.spelling[words], self.lengths[words]
        letters = F.pad(self.letters(spelling), (0, 0, 0, widest - 1))
        windows = letters.unfold(1, widest, 1).transpose(2, 3).flatten(2)  # words, places, widest × dim
        answers = windows @ self.matrix(widest).t()
        outside = ~self.inside(lengths, spelling.shape[1])
        largest = answers.masked_fill(outside, -torch.inf).amax(dim=1)
        return (largest + self.bias).tanh()

    def matrix(self, widest: int) -> Float[Tensor, "filters inputs"]:
        """All filters, zero-padded to the greatest width."""
        size = widest * self.letters.embedding_dim
        return torch.cat([F.pad(weight, (0, size - weight.shape[1])) for weight in self.weights])

    def inside(self, lengths: Int[Tensor, " words"], places: int) -> Bool[Tensor, "words places filters"]:
        """Where a filter is wholly inside its word; a filter wider than the word is applied at its first position."""
        width = torch.cat([lengths.new_full((count,), width) for width, count in self.widths()])
        place = torch.arange(places, device=lengths.device)[:, None]
        return (place == 0) | (place + width <= lengths[:, None, None])

    def init_weights(self, spread: float) -> None:
        """Initialize all weights uniformly between −spread and spread."""
        for weight in (self.letters.weight, *self.weights, self.bias):
            nn.init.uniform_(weight, -spread, spread)
        nn.init.zeros_(self.letters.weight.detach()[NOTHING])


class Highway(nn.Module):
    """A highway layer: y = t∘relu(W x + b) + (1 − t)∘x, t = σ(V x + c). c starts at −2, so that most of x passes."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.both = nn.Linear(dim, 2 * dim)

    def forward(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """The new x."""
        new, share = self.both(x).chunk(2, dim=-1)
        return torch.lerp(x.to(new.dtype), new.relu(), share.sigmoid())

    def init_weights(self, spread: float) -> None:
        """Initialize all weights uniformly between −spread and spread, but c = −2."""
        nn.init.uniform_(self.both.weight, -spread, spread)
        new, share = self.both.bias.detach().chunk(2)
        nn.init.uniform_(new, -spread, spread)
        nn.init.constant_(share, -2.0)


def spelled(vocabulary: Vocabulary, longest: int, jamo: bool) -> tuple[Tensor, Tensor, dict[str, int]]:
    """The character ids of every token between the two marks, their lengths, and the id of every character.

    A special token is one character of its own; Hangul may be decomposed into jamo.
    """
    spellings: list[Sequence[str]] = [
        [token] if number in vocabulary.specials else (decompose(token) if jamo else token)
        for number, token in enumerate(vocabulary.tokens)
    ]
    inventory = sorted({letter for spelling in spellings for letter in spelling})
    ids = {letter: number for number, letter in enumerate(inventory, start=END + 1)}
    rows = [[BEGIN, *(ids[letter] for letter in spelling[: longest - 2]), END] for spelling in spellings]
    lengths = torch.tensor([len(row) for row in rows])
    table = torch.full((len(rows), int(lengths.max())), NOTHING)
    for number, row in enumerate(rows):
        table[number, : len(row)] = torch.tensor(row)
    return table, lengths, ids
