"""LSTM-CRF: a bidirectional LSTM over words and their characters, and a CRF over the whole sequence of tags.

Neural Architectures for Named Entity Recognition. Lample, Ballesteros, Subramanian, Kawakami, Dyer 2016,
arXiv:1603.01360. The CRF on a BiLSTM is from Huang, Xu and Yu 2015, arXiv:1508.01991; the character CNN, variational
dropout and initialization are from Ma and Hovy 2016, arXiv:1603.01354.

New against rnn_tagger: the tags of a sentence are predicted together, so that I-PER does not follow B-LOC, and a word
is read from its characters too, so that an unknown one still shows its capital letter or its ending.

    score(y) = Σ_t f_t(y_t) + Σ_t A(y_t, y_t+1)          −log p(y) = log Z − score(y)

    word     → embedding     ┐
    w o r d  → CNN or BiLSTM ┴→ dropout → BiLSTM → dropout → linear: emissions f → CRF: transitions A

Emissions and transitions are added. A transition that the tag scheme does not allow is forbidden. Where it differs from
the papers: words that differ in case or digits alone share a word vector, while characters are read as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.characters import Characters
from mallang.layers.checks import check_sizes
from mallang.layers.crf import CRF, Constraints
from mallang.layers.dropout import VariationalDropout
from mallang.layers.embedding import Spellings
from mallang.layers.encoded import Encoded, EncoderDims
from mallang.layers.pooling import first_of_words
from mallang.layers.recurrent import BidirectionalReader
from mallang.layers.spelling import NOTHING, Spelling
from mallang.layers.words import CharacterLSTM, Folds, WordVectors
from mallang.text.vocabulary import Vocabulary

__all__ = ["LSTMCRF", "SIZES", "Config", "Model"]

TASK = "tagging"
WIDTH = 3
"""The width of the character filters, as in Ma and Hovy 2016."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of an LSTM-CRF."""

    embedding_dim: int = 100
    """Size of the vector of a word itself."""
    fold_words: Folds = "case-and-digits"
    """Words that differ in nothing else share that vector; characters are read as they are."""
    characters: Literal["cnn", "lstm", "none"] = "cnn"
    """How the characters of a word are read."""
    character_dim: int = 30
    """Size of character embeddings."""
    character_features: int = 64
    """Size of the vector of a word from its characters."""
    jamo: bool = False
    """Spell Hangul in jamo, not in syllables."""
    longest_word: int = 30
    """The maximum number of characters of a word, the two marks around it included; longer words are cut."""
    dim: int = 200
    """Size of the hidden state of each direction."""
    layers: int = 1
    """Bidirectional layers."""
    dropout: float = 0.5
    """Variational dropout on word vectors and outputs; plain dropout between layers."""

    def __post_init__(self) -> None:
        check_sizes(self, "embedding_dim", "character_dim", "dim", "layers")
        if self.character_features < 2 or self.character_features % 2:
            raise ValueError(f"character_features must be even and at least 2, but is {self.character_features}")
        if self.longest_word < 3:
            raise ValueError(f"longest_word must be at least 3, a character and two marks, but is {self.longest_word}")


class LSTMCRF(nn.Module):
    """Words and characters → BiLSTM → emissions and transitions; without tags it is an encoder alone."""

    reads_source = False

    def __init__(self, config: Config, vocabulary: Vocabulary, constraints: Constraints | None = None) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        spelling = spelling_of(config, vocabulary)
        self.words = WordVectors(vocabulary, config.embedding_dim, spelling, folds=config.fold_words)
        inputs = config.embedding_dim + (0 if spelling is None else config.character_features)
        self.lstm = BidirectionalReader("lstm", inputs, config.dim, config.layers, config.dropout)
        self.dropout = VariationalDropout(config.dropout)
        self.to_tags = None if constraints is None else nn.Linear(2 * config.dim, len(constraints.starts))
        self.crf = None if constraints is None else CRF(len(constraints.starts), constraints)
        self.init_weights()

    def forward(self, batch: Batch) -> Float[Tensor, "batch time both"]:
        """The vector of every token."""
        return self.encode(batch).layers[-1]

    def encode(self, batch: Batch) -> Encoded:
        """The vector of every token; the last states of both directions are the vector of the text."""
        words = self.dropout(self.word_vectors(batch.tokens))
        outputs, last, first = self.lstm(words, batch.lengths)
        pooled = torch.cat((last.hidden[:, -1], first.hidden[:, -1]), dim=-1)
        return Encoded(layers=[self.dropout(outputs)], mask=batch.mask, pooled=pooled)

    def encoder_dims(self) -> EncoderDims:
        """The sizes of what `encode` gives."""
        return EncoderDims(pooled=2 * self.config.dim, token=2 * self.config.dim)

    def emissions(self, batch: Batch) -> Float[Tensor, "batch words tags"]:
        """The score of every tag for every word, before the transitions."""
        assert self.to_tags is not None and batch.words is not None, "this model was built without tags"
        scores: Tensor = self.to_tags(first_of_words(self.encode(batch).layers[-1], batch.words))
        return scores

    def tag_crf(self) -> CRF:
        """The transitions between tags."""
        assert self.crf is not None, "this model was built without tags"
        return self.crf

    def word_vectors(self, tokens: Int[Tensor, "rows time"]) -> Float[Tensor, "rows time inputs"]:
        """The vectors of words from both of their parts."""
        vectors: Tensor = self.words(tokens)
        return vectors

    def shared_embedding(self) -> nn.Embedding:
        """The learned vectors of words, which those that differ in case or digits alone share."""
        return self.words.embedding

    def shared_spellings(self) -> Spellings:
        """How the word of every learned vector may be spelled."""
        return self.words.spellings()

    def token_lookups(self) -> list[nn.Module]:
        """The word vectors, with both of their parts."""
        return [self.words]

    def ids_of_oov(self, words: Sequence[str]) -> list[int]:
        """Input ids for out-of-vocabulary words: they are read from their characters."""
        return self.words.ids_of_oov(words)

    def forget_oov(self, most: int | None = None) -> None:
        """Free the ids of out-of-vocabulary words if there are many."""
        self.words.forget_oov(most)

    @property
    def hidden_from(self) -> int:
        """What is added to the id of a token to hide the word and leave its characters."""
        return self.words.hidden_from

    def init_weights(self) -> None:
        """As Ma and Hovy 2016: embeddings uniform with variance 1 / dim, matrices by Xavier, biases zero."""
        for table in (part for part in self.modules() if isinstance(part, nn.Embedding)):
            spread = (3 / table.embedding_dim) ** 0.5
            nn.init.uniform_(table.weight, -spread, spread)
        if self.words.spelling is not None:
            nn.init.zeros_(self.words.spelling.letters.weight.detach()[NOTHING])
        if isinstance(self.words.spelling, Characters):
            for weight in self.words.spelling.weights:
                nn.init.xavier_uniform_(weight)
        if self.to_tags is not None:
            nn.init.xavier_uniform_(self.to_tags.weight)
            nn.init.zeros_(self.to_tags.bias)


def spelling_of(config: Config, vocabulary: Vocabulary) -> Spelling | None:
    """The part that reads characters."""
    if config.characters == "none":
        return None
    size, features = config.character_dim, config.character_features
    if config.characters == "lstm":
        return CharacterLSTM(vocabulary, size, features, config.longest_word, config.jamo)
    filters = (*[0] * (WIDTH - 1), features)
    return Characters(vocabulary, size, filters, config.longest_word, config.jamo)


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"embedding_dim": 24, "character_dim": 8, "character_features": 16, "dim": 24, "dropout": 0.1},
    "small": {"embedding_dim": 50, "character_dim": 16, "character_features": 32, "dim": 64, "dropout": 0.3},
    "base": {},
}
"""Named shapes, as changes to the defaults."""

Model = LSTMCRF
