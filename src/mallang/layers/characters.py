"""Character CNN: word vectors from the characters of a word, by convolutions of several widths and highway layers.

    c a t s  →  character embeddings  →  convolutions  →  max over time  →  highway layers  →  word vector

The filters of all widths are one matrix over windows of the widest, with zeros where a filter is narrower: one matmul
per batch. tanh comes after the max over time, which gives the same result, since tanh is monotonic.
(Kim et al. 2016, arXiv:1508.06615; highway: Srivastava et al. 2015, arXiv:1505.00387.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mallang.layers.spelling import NOTHING, Spelling
from mallang.text.vocabulary import Vocabulary

LETTER_DIM = 32
"""Size of character embeddings, where characters are features beside the embedding of a token."""
FEATURE_WIDTHS = (2, 3, 4, 5)
"""The widths of their filters: about the n-grams that a linear classifier counts."""
FEATURE_LONGEST = 24
"""The maximum number of characters of such a token, the two marks around it included."""


class Characters(Spelling):
    """The vector of every token of a vocabulary, computed from its characters."""

    def __init__(
        self, vocabulary: Vocabulary, dim: int, filters: Sequence[int], longest: int = 65, jamo: bool = False
    ) -> None:
        """`filters[w − 1]` filters of width w; words are truncated to `longest` characters, marks included."""
        super().__init__(vocabulary, dim, longest, jamo)
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


def check_characters(size: int, jamo: bool) -> None:
    """Refuse options of character features that cannot be, or have no effect."""
    if size < 0:
        raise ValueError(f"characters must be at least 0, but is {size}")
    if jamo and not size:
        raise ValueError("jamo has no effect on characters = 0")


def character_features(vocabulary: Vocabulary, size: int, jamo: bool) -> Characters | None:
    """A vector of that size for every token, from its characters or jamo; None for size 0."""
    if not size:
        return None
    each, rest = divmod(size, len(FEATURE_WIDTHS))
    counts = [each + (number < rest) for number in range(len(FEATURE_WIDTHS))]
    return Characters(vocabulary, LETTER_DIM, [*[0] * (FEATURE_WIDTHS[0] - 1), *counts], FEATURE_LONGEST, jamo)


def with_features(own: Float[Tensor, "rows time dim"], spelling: Characters | None, tokens: Tensor) -> Tensor:
    """The embeddings of tokens, with their character features beside them if there are some."""
    return own if spelling is None else torch.cat((own, spelling(tokens).to(own.dtype)), dim=-1)


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
