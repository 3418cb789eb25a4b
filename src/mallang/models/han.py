"""HAN: words make sentences, sentences make a document, and attention pools both.

Hierarchical Attention Networks for Document Classification. Yang, Yang, Dyer, He, Smola and Hovy, NAACL 2016,
doi:10.18653/v1/N16-1174.

New against `bag_of_means`: order counts, since a bidirectional GRU reads the words of each sentence and another one the
sentences of each document; and not all words count alike. Each level has a context vector of its own, which asks "is
this informative?" and gets an answer from every word, or sentence:

    u_t = tanh(W h_t + b)      a_t = softmax_t(u_tᵀ u_w)      s = Σ a_t h_t

    tokens → embedding → BiGRU → attention → vectors of sentences → BiGRU → attention → vector of the document

`attention = "ave"` and `"max"` are the paper's HN-AVE and HN-MAX: the mean and the maximum in place of attention, at
both levels. Differences: the GRU is that of torch with its candidate bias fixed at zero (layers/recurrent.py), Adam and
dropout replace SGD with momentum, and the embeddings start small and random, not from word2vec.

`record_attention` gives the weights as "word", a row per sentence, and "sentence", a row per document.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mallang.data.batch import Batch, lengths_to_mask
from mallang.layers.attention import Observer
from mallang.layers.checks import check_sizes
from mallang.layers.documents import gather_sentences
from mallang.layers.dropout import Dropout
from mallang.layers.encoded import Encoded, EncoderDims
from mallang.layers.pooling import masked_max, masked_mean
from mallang.layers.recurrent import BidirectionalReader
from mallang.text.vocabulary import Vocabulary

__all__ = ["HAN", "SIZES", "Config", "Model"]

TASK = "classification"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of a hierarchical attention network; the defaults are those of the paper."""

    embedding_dim: int = 200
    """Size of a word vector."""
    dim: int = 50
    """Size of a GRU state in each direction, at both levels."""
    attention: Literal["att", "ave", "max"] = "att"
    """How the words of a sentence, and the sentences of a document, are pooled: HN-ATT, HN-AVE or HN-MAX."""
    attention_dim: int | None = None
    """Size of u and of the context vectors; not set: that of both directions together, as in the paper."""
    dropout: float = 0.0
    """Dropout on the vectors of words and on those of sentences."""

    def __post_init__(self) -> None:
        check_sizes(self, "embedding_dim", "dim", "attention_dim")
        if self.attention_dim is not None and self.attention != "att":
            raise ValueError(f"attention_dim has no effect on attention = {self.attention!r}")


class HAN(nn.Module):
    """Tokens → vectors of sentences → one vector per document."""

    reads_source = False
    reads_sentences = True

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.embedding = nn.Embedding(len(vocabulary), config.embedding_dim)
        self.dropout = Dropout(config.dropout)
        self.word_reader = BidirectionalReader("gru", config.embedding_dim, config.dim)
        self.word_attention = pooling_of(config)
        self.sentence_reader = BidirectionalReader("gru", 2 * config.dim, config.dim)
        self.sentence_attention = pooling_of(config)
        self.init_weights()

    def forward(self, batch: Batch) -> Float[Tensor, "examples pooled"]:
        """The vector of every document."""
        return self.encode(batch).pooled

    def encode(self, batch: Batch) -> Encoded:
        """The vectors of the words in their sentences, and one vector per document."""
        words, _, _ = self.word_reader(self.dropout(self.embedding(batch.tokens)), batch.lengths)
        vectors, counts = gather_sentences(self.word_attention(words, batch.mask), batch)
        sentences, _, _ = self.sentence_reader(self.dropout(vectors), counts)
        pooled = self.sentence_attention(sentences, lengths_to_mask(counts, sentences.shape[1]))
        return Encoded(layers=[words], mask=batch.mask, pooled=pooled)

    def encoder_dims(self) -> EncoderDims:
        """The sizes of what `encode` gives."""
        return EncoderDims(pooled=2 * self.config.dim, token=2 * self.config.dim)

    def input_embedding(self) -> nn.Embedding:
        """The word vectors."""
        return self.embedding

    def init_weights(self) -> None:
        """Small normal word vectors; Xavier for W; recurrent.py initializes the GRUs."""
        nn.init.normal_(self.embedding.weight, std=0.1)
        for part in self.modules():
            if isinstance(part, AttentionPooling):
                nn.init.xavier_uniform_(part.hidden.weight)
                nn.init.zeros_(part.hidden.bias)


class AttentionPooling(nn.Module):
    """The mean of vectors weighted by attention: a = softmax(uᵀ u_w) with u = tanh(W h + b)."""

    def __init__(self, dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(dim, hidden_dim)
        self.context = nn.Parameter(torch.randn(hidden_dim) / math.sqrt(hidden_dim))  # u_w, or u_s
        self.recorders: list[Observer] = []

    def forward(
        self, vectors: Float[Tensor, "batch time dim"], mask: Bool[Tensor, "batch time"]
    ) -> Float[Tensor, "batch dim"]:
        """One vector per row; positions that may not be seen have weight 0."""
        scores = torch.tanh(self.hidden(vectors)) @ self.context
        weights = scores.masked_fill(~mask, -math.inf).softmax(dim=1)
        for recorder in self.recorders:
            recorder(scores[:, None, None], weights[:, None, None])
        return (weights[:, None].to(vectors.dtype) @ vectors)[:, 0]


class MeanPooling(nn.Module):
    """The mean in place of attention: HN-AVE."""

    def forward(
        self, vectors: Float[Tensor, "batch time dim"], mask: Bool[Tensor, "batch time"]
    ) -> Float[Tensor, "batch dim"]:
        """One vector per row."""
        return masked_mean(vectors, mask)


class MaxPooling(nn.Module):
    """The maximum in place of attention: HN-MAX."""

    def forward(
        self, vectors: Float[Tensor, "batch time dim"], mask: Bool[Tensor, "batch time"]
    ) -> Float[Tensor, "batch dim"]:
        """One vector per row."""
        return masked_max(vectors, mask)


def pooling_of(config: Config) -> nn.Module:
    """What pools one level, with parameters of its own."""
    if config.attention == "att":
        return AttentionPooling(2 * config.dim, config.attention_dim or 2 * config.dim)
    return MeanPooling() if config.attention == "ave" else MaxPooling()


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"embedding_dim": 16, "dim": 8},
    "small": {"embedding_dim": 100, "dim": 32},
    "base": {},
}
"""Named shapes, as changes to the defaults; base is the paper's."""

Model = HAN
