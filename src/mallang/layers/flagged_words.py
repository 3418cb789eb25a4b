"""The input of role labelers: the vectors of words, a flag at the predicate, and the features of another encoder.

    word, its characters → word vector    ┐
    is it the predicate? → flag vector     ├→ concatenated
    given.features       → its vector      ┘

A word is one token, so that the first token of word i is position i of the text. Where no predicate is asked for, no
word has the flag.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.characters import Characters
from mallang.layers.embedding import Spellings
from mallang.layers.spelling import NOTHING
from mallang.layers.words import Folds, WordVectors
from mallang.text.vocabulary import Vocabulary

WIDTH = 3
"""The width of the character filters, as in Ma and Hovy 2016."""


class RoleSizes(NamedTuple):
    """What a role labeler is built for."""

    roles: int
    lemmas: int
    features: int = 0
    """The size of the features of another encoder; 0: there are none."""


class RoleScores(NamedTuple):
    """What a role labeler says of the words of a batch."""

    roles: Float[Tensor, "batch words roles"]
    """The score of every role for the predicate that is asked for."""
    predicates: Float[Tensor, "batch words"]
    """The logit of being a predicate, of rows that ask for none."""


class CharacterOptions(NamedTuple):
    """How words are read from their characters."""

    dim: int = 30
    features: int = 64
    """The size of the vector of a word from its characters; 0: words are not read from them."""
    jamo: bool = False
    longest: int = 30


class FlaggedWords(nn.Module):
    """The vector of every word with its flag, and with features where there are some."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        dim: int,
        flag_dim: int,
        folds: Folds,
        characters: CharacterOptions,
        features: int = 0,
    ) -> None:
        super().__init__()
        spelling = None
        if characters.features:
            filters = (*[0] * (WIDTH - 1), characters.features)
            spelling = Characters(vocabulary, characters.dim, filters, characters.longest, characters.jamo)
        self.words = WordVectors(vocabulary, dim, spelling, folds=folds)
        self.flags = nn.Embedding(2, flag_dim)
        self.features = features
        self.dim = dim + characters.features + flag_dim + features

    def forward(
        self, batch: Batch, features: Float[Tensor, "batch words _"] | None = None
    ) -> Float[Tensor, "batch time dim"]:
        """The vectors of all words of a batch."""
        places = torch.arange(batch.tokens.shape[1], device=batch.tokens.device)
        asked = torch.full_like(batch.lengths, -1) if batch.asked is None else batch.asked
        parts = [self.words(batch.tokens), self.flags((places == asked[:, None]).long())]
        if self.features:
            if features is None:  # without a task there is no other encoder
                parts.append(parts[0].new_zeros(*batch.tokens.shape, self.features))
            else:
                parts.append(F.pad(features, (0, 0, 0, batch.tokens.shape[1] - features.shape[1])).to(parts[0].dtype))
        return torch.cat(parts, dim=-1)

    def token_vectors(self, tokens: Int[Tensor, "rows time"]) -> Float[Tensor, "rows time dim"]:
        """The vectors of words alone."""
        vectors: Tensor = self.words(tokens)
        return vectors

    def spellings(self) -> Spellings:
        """How the word of every learned vector may be spelled."""
        return self.words.spellings()

    def ids_of_oov(self, words: Sequence[str]) -> list[int]:
        """Input ids for out-of-vocabulary words: they are read from their characters, if these are read."""
        return self.words.ids_of_oov(words)

    def init_weights(self) -> None:
        """As Ma and Hovy 2016: embeddings uniform with variance 1 / dim, filters by Xavier."""
        for table in (part for part in self.modules() if isinstance(part, nn.Embedding)):
            spread = (3 / table.embedding_dim) ** 0.5
            nn.init.uniform_(table.weight, -spread, spread)
        if isinstance(self.words.spelling, Characters):
            nn.init.zeros_(self.words.spelling.letters.weight.detach()[NOTHING])
            for weight in self.words.spelling.weights:
                nn.init.xavier_uniform_(weight)


@runtime_checkable
class RoleLabeler(Protocol):
    """A model of semantic roles; its constructor takes what it is built for (RoleSizes) last.

    Without these sizes it is built as an encoder alone. A word is one token.
    """

    def label(self, batch: Batch, features: Float[Tensor, "batch words _"] | None = None) -> RoleScores:
        """The scores of all words: of roles for `batch.asked`, and of being a predicate."""
