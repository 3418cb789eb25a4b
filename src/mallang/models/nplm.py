"""NPLM: the first neural language model. The last few words, each as a vector, say which one comes next.

A Neural Probabilistic Language Model. Bengio, Ducharme, Vincent, Jauvin 2003, Journal of Machine Learning Research 3;
its beginnings: Bengio, Ducharme, Vincent 2001.

New against ngram: a word is a point in a space that all histories share, so that what was learned of "the cat is" also
tells something of "the dog was". The history is as short as an n-gram's, but an n-gram need not have been seen.

    n − 1 tokens → vectors, side by side: e → h = tanh(W e + b) → logits = U h [+ W′ e] + c
                                          └──────── direct ────────┘

A text is read with the window slid along, so that all positions are computed at once: see conv_lm, of which this is the
plainest. Before the beginning of a text the vectors are zeros.

Where this differs from the paper: dropout, and `tie_weights`, which makes U the table of the embedding; the paper
predates both. The paper mixes its network with an n-gram model; nothing is mixed here."""

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
    """n: that many tokens make an n-gram; n − 1 are read, the last one is predicted."""
    embedding_dim: int = 60
    """Size of token embeddings."""
    dim: int = 100
    """Size of the hidden layer."""
    direct: bool = False
    """Whether the vectors of the window also go to the output directly, past the hidden layer."""
    tie_weights: bool = False
    """Tie the embedding and the output projection, which must have the same size."""
    dropout: float = 0.0
    """Dropout on token embeddings and from the hidden layer."""

    def __post_init__(self) -> None:
        check_sizes(self, "embedding_dim", "dim")
        if self.order < 2:
            raise ValueError(f"order must be at least 2, one token to read and one to predict, but is {self.order}")
        if self.tie_weights and self.direct:
            raise ValueError("direct connections need a weight of their own, so tied = true is impossible with them")
        check_tied(self)


class NPLM(nn.Module):
    """A window of vectors, one hidden layer, and a softmax."""

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
        """The same with the last tokens of an earlier batch of these rows before it; and the last of this one."""
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
        """What lies before the beginning of a text: `<pad>`, whose vector counts as zeros."""
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
        """Xavier; the direct connections begin with nothing to say, so that the hidden layer learns first."""
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
