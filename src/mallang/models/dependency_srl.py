"""Dependency SRL: semantic roles of head words by a BiLSTM with a flag at the predicate, and role vectors per lemma.

A Simple and Accurate Syntax-Agnostic Neural Model for Dependency-based Semantic Role Labeling. Marcheggiani, Frolov,
Titov 2017, arXiv:1701.02593.

New against deep_srl.py: roles stand on single words, and a role is scored by the states of both the word and the
predicate, with a weight vector that is computed from the role and from the lemma of the predicate: ARG1 of `break` has
another one than ARG1 of `give`.

    word, flag → BiLSTM → h          score of role r for word i, predicate p with lemma l:   w(l, r) · [h_i; h_p]
    u_l, v_r   → w(l, r) = relu(U [u_l; v_r])

Where this differs from the paper: no parts of speech are read, but the characters of words (Ma and Hovy 2016,
arXiv:1603.01354); the lemma of the predicate is not read beside the words. Senses of predicates are not told apart. The
loss of predicates is that of the same layers on the sentence without a flag; the paper takes predicates as given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.characters import check_characters
from mallang.layers.checks import check_sizes
from mallang.layers.dropout import VariationalDropout
from mallang.layers.embedding import Spellings
from mallang.layers.encoded import Encoded, EncoderDims
from mallang.layers.flagged_words import CharacterOptions, FlaggedWords, RoleScores, RoleSizes
from mallang.layers.pooling import first_of_words
from mallang.layers.recurrent import BidirectionalReader
from mallang.layers.words import Folds
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "Config", "DependencySRL", "Model"]

TASK = "semantic_roles"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of the model; the defaults are the paper's, but for characters."""

    embedding_dim: int = 100
    """Size of the vector of a word itself."""
    fold_words: Folds = "case-and-digits"
    """Words that differ in nothing else share that vector; characters are read as they are."""
    character_dim: int = 30
    """Size of character embeddings."""
    character_features: int = 64
    """Size of the vector of a word from its characters; 0: they are not read."""
    jamo: bool = False
    """Spell Hangul in jamo, not in syllables."""
    longest_word: int = 30
    """The maximum number of characters of a word, the two marks around it included; longer words are cut."""
    flag_dim: int = 16
    """Size of the vector that says whether a word is the predicate."""
    dim: int = 512
    """Size of the hidden state of each direction."""
    layers: int = 4
    """Bidirectional layers."""
    role_dim: int = 128
    """Size of the vectors of roles."""
    lemma_dim: int = 128
    """Size of the vectors of lemmas of predicates."""
    dropout: float = 0.3
    """Variational dropout on word vectors and outputs; plain dropout between layers."""

    def __post_init__(self) -> None:
        check_sizes(self, "embedding_dim", "character_dim", "flag_dim", "dim", "layers", "role_dim", "lemma_dim")
        check_characters(self.character_features, self.jamo)
        if self.longest_word < 3:
            raise ValueError(f"longest_word must be at least 3, a character and two marks, but is {self.longest_word}")


class DependencySRL(nn.Module):
    """Flagged words → BiLSTM → scores of roles by word and predicate; without sizes it is an encoder alone."""

    reads_source = False

    def __init__(self, config: Config, vocabulary: Vocabulary, sizes: RoleSizes | None = None) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        characters = CharacterOptions(config.character_dim, config.character_features, config.jamo, config.longest_word)
        features = 0 if sizes is None else sizes.features
        self.words = FlaggedWords(
            vocabulary, config.embedding_dim, config.flag_dim, config.fold_words, characters, features
        )
        self.dropout = VariationalDropout(config.dropout)
        self.lstm = BidirectionalReader("lstm", self.words.dim, config.dim, config.layers, config.dropout)
        self.to_roles = None if sizes is None else RoleWeights(config, sizes)
        self.to_predicate = None if sizes is None else nn.Linear(2 * config.dim, 1)
        self.words.init_weights()

    def forward(self, batch: Batch) -> Float[Tensor, "batch time both"]:
        """The vector of every token."""
        return self.encode(batch).layers[-1]

    def encode(self, batch: Batch, features: Float[Tensor, "batch words _"] | None = None) -> Encoded:
        """The vector of every token; the last states of both directions are the vector of the text."""
        outputs, last, first = self.lstm(self.dropout(self.words(batch, features)), batch.lengths)
        pooled = torch.cat((last.hidden[:, -1], first.hidden[:, -1]), dim=-1)
        return Encoded(layers=[self.dropout(outputs)], mask=batch.mask, pooled=pooled)

    def encoder_dims(self) -> EncoderDims:
        """The sizes of what `encode` gives."""
        return EncoderDims(pooled=2 * self.config.dim, token=2 * self.config.dim)

    def label(self, batch: Batch, features: Float[Tensor, "batch words _"] | None = None) -> RoleScores:
        """The scores of all words: of roles for the predicate that is asked for, and of being a predicate."""
        assert self.to_roles is not None and self.to_predicate is not None, "this model was built without roles"
        assert batch.words is not None and batch.asked is not None and batch.lemmas is not None
        hidden = first_of_words(self.encode(batch, features).layers[-1], batch.words)
        predicate = first_of_words(hidden, batch.asked[:, None])[:, 0]
        return RoleScores(self.to_roles(hidden, predicate, batch.lemmas), self.to_predicate(hidden)[:, :, 0])

    def word_vectors(self, tokens: Int[Tensor, "rows time"]) -> Float[Tensor, "rows time _"]:
        """The vectors of words, without a flag."""
        return self.words.token_vectors(tokens)

    def shared_embedding(self) -> nn.Embedding:
        """The learned vectors of words, which those that differ in case or digits alone share."""
        return self.words.words.embedding

    def shared_spellings(self) -> Spellings:
        """How the word of every learned vector may be spelled."""
        return self.words.spellings()

    def token_lookups(self) -> list[nn.Module]:
        """The word vectors, with both of their parts."""
        return [self.words.words]

    def ids_of_oov(self, words: Sequence[str]) -> list[int]:
        """Input ids for out-of-vocabulary words: they are read from their characters."""
        return self.words.ids_of_oov(words)

    def forget_oov(self, most: int | None = None) -> None:
        """Free the ids of out-of-vocabulary words if there are many."""
        self.words.words.forget_oov(most)

    @property
    def hidden_from(self) -> int:
        """What is added to the id of a token to hide the word and leave its characters."""
        return self.words.words.hidden_from


class RoleWeights(nn.Module):
    """w(l, r) · [h_i; h_p] with w(l, r) = relu(U [u_l; v_r]): one weight vector per lemma and role."""

    def __init__(self, config: Config, sizes: RoleSizes) -> None:
        super().__init__()
        self.lemmas = nn.Embedding(sizes.lemmas, config.lemma_dim)
        self.roles = nn.Embedding(sizes.roles, config.role_dim)
        self.from_lemma = nn.Linear(config.lemma_dim, 4 * config.dim, bias=False)
        """The part of U for u."""
        self.from_role = nn.Linear(config.role_dim, 4 * config.dim, bias=False)
        """The part of U for v."""

    def forward(
        self,
        words: Float[Tensor, "batch words both"],
        predicate: Float[Tensor, "batch both"],
        lemmas: Int[Tensor, " batch"],
    ) -> Float[Tensor, "batch words roles"]:
        """The score of every role for every word."""
        of_lemma, of_role = self.from_lemma(self.lemmas(lemmas)), self.from_role(self.roles.weight)
        of_word, of_predicate = (of_lemma[:, None] + of_role).relu().chunk(2, dim=-1)  # batch, roles, both
        scores: Tensor = words @ of_word.mT + (of_predicate @ predicate[:, :, None]).mT
        return scores


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {
        "embedding_dim": 24, "character_dim": 8, "character_features": 16, "flag_dim": 8, "dim": 24, "layers": 1,
        "role_dim": 8, "lemma_dim": 8, "dropout": 0.1,
    },
    "small": {
        "embedding_dim": 50, "character_dim": 16, "character_features": 32, "dim": 64, "layers": 2, "role_dim": 32,
        "lemma_dim": 32,
    },
    "original": {},
}  # fmt: skip
"""Named shapes, as changes to the defaults; original reads characters where the paper reads parts of speech."""

Model = DependencySRL
