"""Recurrent tagger: a bidirectional RNN over the words of a sentence, and a tag for each word.

Part-of-Speech Tagging with Bidirectional Long Short-Term Memory Recurrent Neural Network. Wang, Qian, Soong, He, Zhao
2015, arXiv:1510.06168; of the systems that Huang, Xu and Yu 2015 compare (arXiv:1508.01991), the BI-LSTM.

It is the first step from a classifier to a tagger: every word has an output of its own, which sees the words before and
after it, but not the tags beside it. lstm_crf adds these, and the characters of words.

    tokens → embedding → dropout → BiLSTM or BiGRU layers → dropout → a vector per token (a linear layer of the task)

The paper adds a feature for capital letters; here they are in the vocabulary, unless `text.lowercase` is set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.checks import check_sizes
from mallang.layers.dropout import VariationalDropout
from mallang.layers.encoded import Encoded, EncoderDims
from mallang.layers.recurrent import BidirectionalReader, Kind
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "Config", "Model", "RNNTagger"]

TASK = "tagging"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of a recurrent tagger."""

    cell: Kind = "lstm"
    """The gated cell: lstm or gru."""
    embedding_dim: int = 100
    """Size of a word vector."""
    dim: int = 200
    """Size of the hidden state of each direction."""
    layers: int = 1
    """Bidirectional layers."""
    dropout: float = 0.5
    """Variational dropout on word vectors and outputs; plain dropout between layers."""

    def __post_init__(self) -> None:
        check_sizes(self, "embedding_dim", "dim", "layers")


class RNNTagger(nn.Module):
    """Tokens → a vector for each, from both directions."""

    reads_source = False

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.embedding = nn.Embedding(len(vocabulary), config.embedding_dim)
        self.rnn = BidirectionalReader(config.cell, config.embedding_dim, config.dim, config.layers, config.dropout)
        self.dropout = VariationalDropout(config.dropout)
        self.init_weights()

    def forward(self, batch: Batch) -> Float[Tensor, "batch time both"]:
        """The vector of every token."""
        return self.encode(batch).layers[-1]

    def encode(self, batch: Batch) -> Encoded:
        """The vector of every token; the last states of both directions are the vector of the text."""
        words = self.dropout(self.embedding(batch.tokens))
        outputs, last, first = self.rnn(words, batch.lengths)
        pooled = torch.cat((last.hidden[:, -1], first.hidden[:, -1]), dim=-1)
        return Encoded(layers=[self.dropout(outputs)], mask=batch.mask, pooled=pooled)

    def encoder_dims(self) -> EncoderDims:
        """The sizes of what `encode` gives."""
        return EncoderDims(pooled=2 * self.config.dim, token=2 * self.config.dim)

    def input_embedding(self) -> nn.Embedding:
        """The word vectors."""
        return self.embedding

    def init_weights(self) -> None:
        """Uniform word vectors of variance 1 / dim, as Ma and Hovy 2016; the recurrent layers initialize themselves."""
        spread = (3 / self.config.embedding_dim) ** 0.5
        nn.init.uniform_(self.embedding.weight, -spread, spread)


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"embedding_dim": 24, "dim": 24, "dropout": 0.1},
    "small": {"embedding_dim": 64, "dim": 64, "dropout": 0.3},
    "base": {},
}
"""Named shapes, as changes to the defaults."""

Model = RNNTagger
