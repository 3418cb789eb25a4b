"""Self-attentive sentence embedding: a text as several weighted sums of its states, each a view of other words.

A Structured Self-Attentive Sentence Embedding. Lin, Feng, dos Santos, Yu, Xiang, Zhou, Bengio 2017, arXiv:1703.03130.

New against rnn_classifier: pooling is learned. Attention decides for each of r views how much every word counts; no
query comes from elsewhere, hence self-attentive. A penalty keeps the views apart. The weights show which words made
the decision: `record_attention` gives them under the name `view`, one head per view.

    H = BiLSTM(embedding)                       n states of 2·dim
    A = softmax(W_s2 tanh(W_s1 Hᵀ))             r rows that sum to one; W_s1 has attention_dim rows
    M = A H                                     r views of 2·dim, the embedding of the text
    penalty = ‖A Aᵀ − I‖²_F                     0 if each view attends to one word, and no two to the same

    tokens → embedding → BiLSTM → views → concatenated → hidden layer, ReLU → dropout

Where this differs from the paper: the candidate g of the LSTM has no bias, so that padding has no effect (see
recurrent.py); the weights of the hidden layer are not pruned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.attention import Observer
from mallang.layers.checks import check_sizes
from mallang.layers.dropout import Dropout
from mallang.layers.encoded import Encoded, EncoderDims
from mallang.layers.initialization import xavier
from mallang.layers.recurrent import BidirectionalReader
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "Config", "Model", "SelfAttentive"]

TASK = "classification"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of a self-attentive encoder; the defaults are the paper's."""

    embedding_dim: int = 300
    """Size of word embeddings."""
    dim: int = 300
    """Size of the state of each direction (u)."""
    layers: int = 1
    """Bidirectional layers."""
    attention_dim: int = 350
    """Hidden units of the attention (d_a)."""
    views: int = 30
    """Views of the text (r)."""
    penalty: float = 1.0
    """Weight of the penalty on views that attend to the same words; 0: none."""
    hidden_dim: int = 3000
    """Size of the hidden layer above the views; 0: none, the views are the vector of the text."""
    embedding_dropout: float = 0.0
    """Dropout on word embeddings; the paper drops none."""
    dropout: float = 0.5
    """Dropout on the views and on the vector of the text."""

    def __post_init__(self) -> None:
        sizes = "embedding_dim", "dim", "layers", "attention_dim", "views"
        check_sizes(self, *sizes, dropouts=("embedding_dropout", "dropout"))
        for name in ("penalty", "hidden_dim"):
            if (value := getattr(self, name)) < 0:
                raise ValueError(f"{name} must be at least 0, but is {value}")


class SelfAttentive(nn.Module):
    """A bidirectional LSTM and attention with several views."""

    reads_source = False

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.embedding = nn.Embedding(len(vocabulary), config.embedding_dim)
        self.embedding_dropout = Dropout(config.embedding_dropout)
        self.encoder = BidirectionalReader("lstm", config.embedding_dim, config.dim, config.layers, config.dropout)
        self.view_attention = ViewAttention(2 * config.dim, config.attention_dim, config.views)
        self.dropout = Dropout(config.dropout)
        self.hidden = nn.Linear(2 * config.dim * config.views, config.hidden_dim) if config.hidden_dim else None
        self.init_weights()

    def forward(self, batch: Batch) -> Float[Tensor, "batch pooled"]:
        """The vector of every text."""
        return self.encode(batch).pooled

    def encode(self, batch: Batch) -> Encoded:
        """The states at every word, the views as one vector, and the penalty of each text."""
        words = self.embedding_dropout(self.embedding(batch.tokens))
        states, _, _ = self.encoder(words, batch.lengths)
        weights = self.view_attention(states, batch.mask)
        text = self.dropout((weights.to(states.dtype) @ states).flatten(1))
        if self.hidden is not None:
            text = self.dropout(self.hidden(text).relu())
        penalties = {"penalty": self.config.penalty * overlap(weights)} if self.config.penalty else {}
        return Encoded(layers=[states], mask=batch.mask, pooled=text, penalties=penalties)

    def encoder_dims(self) -> EncoderDims:
        """The sizes of what `encode` gives."""
        token = 2 * self.config.dim
        return EncoderDims(pooled=self.config.hidden_dim or token * self.config.views, token=token)

    def input_embedding(self) -> nn.Embedding:
        """The word embeddings."""
        return self.embedding

    def init_weights(self) -> None:
        """Xavier for every matrix, N(0, 0.1) for embeddings; recurrent.py initializes the LSTMs."""
        xavier(self)
        nn.init.normal_(self.embedding.weight, std=0.1)


class ViewAttention(nn.Module):
    """A = softmax(W_s2 tanh(W_s1 Hᵀ)): for each view a weight of every word; the weights can be recorded."""

    def __init__(self, dim: int, hidden_dim: int, views: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(dim, hidden_dim, bias=False)  # W_s1
        self.score = nn.Linear(hidden_dim, views, bias=False)  # W_s2
        self.recorders: list[Observer] = []

    def forward(
        self, states: Float[Tensor, "batch time dim"], mask: Bool[Tensor, "batch time"]
    ) -> Float[Tensor, "batch views time"]:
        """The weights of every view; padding has none."""
        scores = self.score(self.hidden(states).tanh()).mT.float()
        weights: Tensor = scores.masked_fill(~mask[:, None], -torch.inf).softmax(dim=-1)
        for recorder in self.recorders:
            recorder(scores[:, :, None], weights[:, :, None])  # a view is a head with one query, the whole text
        return weights


def overlap(weights: Float[Tensor, "batch views time"]) -> Float[Tensor, " batch"]:
    """‖A Aᵀ − I‖²_F: how far the views of each text are from attending to one word each, all of them different."""
    gram = weights @ weights.mT
    return (gram.float() - torch.eye(weights.shape[1], device=weights.device)).square().sum(dim=(1, 2))


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"embedding_dim": 24, "dim": 16, "attention_dim": 12, "views": 3, "hidden_dim": 24},
    "small": {"embedding_dim": 100, "dim": 100, "attention_dim": 100, "views": 8, "hidden_dim": 200},
    "base": {},
}
"""Named shapes, as changes to the defaults; base is the paper's."""

Model = SelfAttentive
