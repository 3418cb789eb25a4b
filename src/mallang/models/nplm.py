"""NPLM: the first neural language model, a feed-forward network over the embeddings of the last n − 1 words.

A Neural Probabilistic Language Model. Bengio, Ducharme, Vincent, Jauvin 2003, Journal of Machine Learning Research 3;
its beginnings: Bengio, Ducharme, Vincent 2001.

New against ngram: words are embedded in a space that all histories share, so that what was learned about "the cat is"
generalizes to "the dog was". The history is as short as an n-gram's, but an n-gram need not have been seen.

    n − 1 tokens → vectors, side by side: e → h = tanh(W e + b) → logits = U h [+ W′ e] + c
                                          └──────── direct ────────┘

The window slides along a text, so that all positions are computed in parallel: this is the simplest case of conv_lm.
Before the start of a text the vectors are zeros.

Where this differs from the paper: dropout, and `tie_weights`, which ties U to the embedding; the paper predates both.
The paper interpolates its network with an n-gram model; this one does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.cache import State
from mallang.layers.checks import check_sizes, check_tied
from mallang.layers.convolution import windows_of
from mallang.layers.dropout import Dropout
from mallang.layers.head import Projection
from mallang.layers.initialization import xavier
from mallang.layers.stateful import StatefulOutput
from mallang.text.vocabulary import PAD, Vocabulary

__all__ = ["NPLM", "SIZES", "Config", "Model"]

TASK = "language_modeling"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of a feed-forward language model; the defaults are of the order of the paper's sizes."""

    order: int = 6
    """n, the length of the n-grams: n − 1 tokens are read, the last one is predicted."""
    embedding_dim: int = 60
    """Size of token embeddings."""
    dim: int = 100
    """Size of the hidden layer."""
    direct: bool = False
    """Direct connections from the embeddings of the window to the output, past the hidden layer."""
    tie_weights: bool = False
    """Tie the embedding and the output projection, which must have the same size."""
    dropout: float = 0.0
    """Dropout on token embeddings and from the hidden layer."""

    def __post_init__(self) -> None:
        check_sizes(self, "embedding_dim", "dim")
        if self.order < 2:
            raise ValueError(f"order must be at least 2, one token to read and one to predict, but is {self.order}")
        if self.tie_weights and self.direct:
            raise ValueError("direct connections need a weight of their own, so tie_weights = true is impossible")
        check_tied(self)


class NPLM(nn.Module):
    """The embeddings of a window, one hidden layer and an output projection."""

    reads_source = False

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        joined = (config.order - 1) * config.embedding_dim
        self.embedding = nn.Embedding(len(vocabulary), config.embedding_dim)
        self.dropout = Dropout(config.dropout)
        self.hidden = nn.Linear(joined, config.dim)
        said = config.dim + joined if config.direct else config.dim
        self.head = Projection(said, len(vocabulary), self.embedding if config.tie_weights else None, bias=True)
        self.init_weights()

    def forward(self, batch: Batch) -> Float[Tensor, "batch time dim"]:
        """The hidden vector of every position, from which its next token is predicted."""
        return self.read(batch.tokens, self.nothing(batch))[0]

    def forward_stateful(self, batch: Batch, carry: Int[Tensor, "batch kept"] | None) -> StatefulOutput:
        """Hidden vectors of a window that continues from the tokens in `carry`, if any; and its own last tokens."""
        return StatefulOutput(*self.read(batch.tokens, self.nothing(batch) if carry is None else carry))

    def read(
        self, tokens: Int[Tensor, "rows time"], before: Int[Tensor, "rows kept"]
    ) -> tuple[Float[Tensor, "rows time dim"], Int[Tensor, "rows kept"]]:
        """The hidden vectors of tokens that follow those before them, and the tokens before the next ones."""
        seen = torch.cat((before, tokens), dim=1)
        vectors = self.dropout(self.embedding(seen) * (seen != PAD)[:, :, None])
        joined = windows_of(vectors, self.config.order - 1)
        hidden = self.dropout(torch.tanh(self.hidden(joined)))
        if self.config.direct:
            hidden = torch.cat((hidden, joined.to(hidden.dtype)), dim=2)
        return hidden, seen[:, tokens.shape[1] :]

    def nothing(self, batch: Batch) -> Int[Tensor, "batch kept"]:
        """The history before the start of a text: `<pad>`, whose vector counts as zeros."""
        return torch.full((len(batch), self.config.order - 2), PAD, device=batch.tokens.device)

    def output(self, hidden: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch words"]:
        """One logit per word of the vocabulary."""
        logits: Tensor = self.head(hidden)
        return logits

    def input_embedding(self) -> nn.Embedding:
        """The embedding of tokens."""
        return self.embedding

    def output_projection(self) -> Projection:
        """The linear layer that `output` applies."""
        return self.head

    def start(self, batch: Batch) -> State:
        """The initial state, before any token."""
        return State(fixed=None, moving=self.nothing(batch))

    def step(self, tokens: Int[Tensor, "rows time"], state: State) -> tuple[Float[Tensor, "rows time words"], State]:
        """The logits after each of these tokens, which follow those of earlier steps."""
        hidden, before = self.read(tokens, state.moving)
        return self.output(hidden), State(None, before)

    def init_weights(self) -> None:
        """Xavier; the direct connections start at zero, so that the hidden layer learns first."""
        xavier(self)
        if self.head.own is not None:
            nn.init.zeros_(self.head.own.weight[:, self.config.dim :].detach())


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"order": 4, "embedding_dim": 32, "dim": 32},
    "small": {"embedding_dim": 128, "dim": 256},
    "brown": {},
    "ap-news": {"dim": 60, "embedding_dim": 100, "direct": True},
}
"""Named shapes, as changes to the defaults; brown and ap-news are named after the paper's corpora, of the order
of its sizes, and not compared with the rows of its tables."""

Model = NPLM
