"""Bag of means: the mean of the word vectors of a text, and nothing else.

A Simple but Tough-to-Beat Baseline for Sentence Embeddings. Arora, Liang and Ma, ICLR 2017; as a classifier it is the
bag of means of Zhang, Zhao and LeCun 2015, arXiv:1509.01626, and what fastText trains (Joulin et al. 2016,
arXiv:1607.01759).

It is the first neural step after counting words: order is lost, but similar words have similar vectors.

    tokens → embedding → dropout → mean over the tokens
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.checks import check_sizes
from mallang.layers.encoded import Encoded, EncoderDims
from mallang.layers.pooling import masked_mean
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "BagOfMeans", "Config", "Model"]

TASK = "classification"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of a bag of means."""

    dim: int = 300
    """Size of a word vector, which is the size of the vector of a text."""
    dropout: float = 0.3
    """Dropout on the word vectors."""

    def __post_init__(self) -> None:
        check_sizes(self, "dim")


class BagOfMeans(nn.Module):
    """Tokens → the mean of their vectors."""

    reads_source = False

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.embedding = nn.Embedding(len(vocabulary), config.dim)
        self.dropout = nn.Dropout(config.dropout)
        self.init_weights()

    def forward(self, batch: Batch) -> Float[Tensor, "batch dim"]:
        """The vector of every text."""
        return self.encode(batch).pooled

    def encode(self, batch: Batch) -> Encoded:
        """The vectors of the tokens, and their mean."""
        words = self.dropout(self.embedding(batch.tokens))
        return Encoded(layers=[words], mask=batch.mask, pooled=masked_mean(words, batch.mask))

    def encoder_dims(self) -> EncoderDims:
        """The sizes of what `encode` gives."""
        return EncoderDims(pooled=self.config.dim, token=self.config.dim)

    def input_embedding(self) -> nn.Embedding:
        """The word vectors."""
        return self.embedding

    def init_weights(self) -> None:
        """Small normal vectors: their mean starts near zero, so that the first words that matter stand out."""
        nn.init.normal_(self.embedding.weight, std=0.1)


SIZES: dict[str, dict[str, Any]] = {"tiny": {"dim": 24}, "small": {"dim": 100}, "base": {}}
"""Named shapes, as changes to the defaults."""

Model = BagOfMeans
