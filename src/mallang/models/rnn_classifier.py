"""Recurrent classifiers: a recurrent network reads the words in order, and its states are pooled to one vector.

Semi-supervised Sequence Learning. Dai and Le 2015, arXiv:1511.01432 (the last state of an LSTM). Supervised Learning of
Universal Sentence Representations from Natural Language Inference Data. Conneau, Kiela, Schwenk, Barrault, Bordes 2017,
arXiv:1705.02364 (InferSent: a bidirectional LSTM with mean or max pooling).

New against bag_of_means: the vector of a word depends on the words around it, so that word order matters. The cell is
Elman's, a GRU or an LSTM; how its states become one vector is an option:

    last       the last state; of both directions, the state after the last word and the state after the first
    mean, max  over the states of all words; max is the best of InferSent's, and the most common
    mean-max   both, concatenated

    tokens → embedding → dropout → (bi)recurrent layers → pooling → dropout

With `bidirectional = false` it starts from the weights of a recurrent language model (rnn_lm) or of the encoder of a
sequence autoencoder (sutskever), as Dai and Le do: `mallang train rnn_classifier --from RUN`.

Where this differs from the papers: a token may have a second vector, from its characters; the GRU is torch's, which
resets after the matmul with U; in both directions candidates, and Elman's cell, have no bias, so that padding has no
effect (see recurrent.py). InferSent's sizes are `size = "infersent"`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.characters import character_features, check_characters, with_features
from mallang.layers.checks import check_sizes
from mallang.layers.dropout import Dropout
from mallang.layers.encoded import Encoded, EncoderDims
from mallang.layers.pooling import pooled
from mallang.layers.recurrent import BidirectionalReader, Cell, Recurrent
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "Config", "Model", "RNNClassifier"]

TASK = "classification"
CELLS: dict[str, Cell] = {"lstm": "lstm", "gru": "gru", "elman": "tanh"}


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of a recurrent classifier."""

    cell: Literal["elman", "gru", "lstm"] = "lstm"
    """The recurrent cell: Elman's without gates, GRU with two, or LSTM with three."""
    bidirectional: bool = True
    """Read the text in both directions; otherwise from the first word to the last."""
    layers: int = 1
    """Recurrent layers."""
    embedding_dim: int = 300
    """Size of word embeddings."""
    characters: int = 0
    """Size of a second vector of every token, from its characters; 0: none."""
    jamo: bool = False
    """Those characters are jamo, not syllables."""
    dim: int = 300
    """Size of the state of each direction."""
    pooling: Literal["last", "mean", "max", "mean-max"] = "max"
    """How the states become the vector of the text."""
    embedding_dropout: float = 0.3
    """Dropout on word embeddings."""
    dropout: float = 0.3
    """Dropout between layers and on the vector of the text."""

    def __post_init__(self) -> None:
        check_sizes(self, "layers", "embedding_dim", "dim", dropouts=("embedding_dropout", "dropout"))
        check_characters(self.characters, self.jamo)


class RNNClassifier(nn.Module):
    """Embeddings, recurrent layers and pooling."""

    reads_source = False

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.embedding = nn.Embedding(len(vocabulary), config.embedding_dim)
        self.spelling = character_features(vocabulary, config.characters, config.jamo)
        self.embedding_dropout = Dropout(config.embedding_dropout)
        make = BidirectionalReader if config.bidirectional else Recurrent
        inputs = config.embedding_dim + config.characters
        shape = CELLS[config.cell], inputs, config.dim, config.layers, config.dropout
        self.encoder: BidirectionalReader | Recurrent = make(*shape)
        self.dropout = Dropout(config.dropout)
        self.init_weights()

    def forward(self, batch: Batch) -> Float[Tensor, "batch pooled"]:
        """The vector of every text."""
        return self.encode(batch).pooled

    def encode(self, batch: Batch) -> Encoded:
        """The states at every word, and one vector of the text."""
        own = self.embedding(batch.tokens)
        words = self.embedding_dropout(with_features(own, self.spelling, batch.tokens))
        if isinstance(self.encoder, Recurrent):  # padding comes after the words, which do not see it
            states, _ = self.encoder(words)
            text = pooled(states, batch.mask, self.config.pooling)
        else:
            states, *ends = self.encoder(words, batch.lengths)
            last = torch.cat([memory.hidden[:, -1] for memory in ends], dim=-1)
            text = last if self.config.pooling == "last" else pooled(states, batch.mask, self.config.pooling)
        return Encoded(layers=[states], mask=batch.mask, pooled=self.dropout(text))

    def encoder_dims(self) -> EncoderDims:
        """The sizes of what `encode` gives."""
        token = self.config.dim * (2 if self.config.bidirectional else 1)
        return EncoderDims(pooled=token * (2 if self.config.pooling == "mean-max" else 1), token=token)

    def input_embedding(self) -> nn.Embedding:
        """The word embeddings."""
        return self.embedding

    def token_lookups(self) -> list[nn.Module]:
        """The word embeddings, and the characters."""
        return [part for part in (self.embedding, self.spelling) if part is not None]

    def adapted(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The weights of a recurrent language model, or of a sequence autoencoder, under the names of this model.

        The layers of the language model are those of the encoder here. The autoencoder multiplies its embeddings by the
        root of their size, and this model does not.
        """
        found = {re.sub(r"^stacks\.0\.", "encoder.", name): weight for name, weight in weights.items()}
        if any(name.startswith("decoder.") for name in found):
            table = found.pop("own_source_embedding.weight", found["embedding.weight"])
            found["embedding.weight"] = table * table.shape[1] ** 0.5
        return found

    @classmethod
    def adapted_shape(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """The shape of a language model or autoencoder, read in one direction; its last state is that of the text."""
        alike = "cell", "layers", "embedding_dim", "dim"
        return {"bidirectional": False, "pooling": "last", **{name: values[name] for name in alike if name in values}}

    def init_weights(self) -> None:
        """N(0, 0.1) for embeddings; recurrent.py initializes the recurrent layers."""
        nn.init.normal_(self.embedding.weight, std=0.1)
        if self.spelling is not None:
            self.spelling.init_weights(0.1)


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"embedding_dim": 24, "dim": 16},
    "small": {"embedding_dim": 100, "dim": 100},
    "base": {},
    "infersent": {"dim": 2048},
}
"""Named shapes, as changes to the defaults; infersent is that of Conneau et al. 2017."""

Model = RNNClassifier
