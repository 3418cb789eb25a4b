"""The RNN encoder-decoder: encodes a sentence as one vector, which the decoder reads at every step.

Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine Translation. Cho, van Merriënboer,
Gulcehre, Bahdanau, Bougares, Schwenk, Bengio 2014, arXiv:1406.1078.

New against Sutskever's model: the gated recurrent unit (GRU), which has no cell state beside its hidden state; a
summary c of the source that is not only the initial state of the decoder, but an input of every step and of the
readout, so that the decoder's state need not carry it; and a maxout layer before the output projection.

    source → embedding → GRU → last state → c = tanh(V h)           s_0 = tanh(V' c)
                                            ↓
    y_{t−1} → embedding → s_t = GRU([y_{t−1}; c], s_{t−1}) → g_t = maxout(O_y y_{t−1} + O_s s_t + O_c c) → logits W g_t

Where this differs from the paper: the GRU is torch's, which resets after the matmul with U, and C c is not reset at
all; the candidate n of the encoder has no bias, so that padding has no effect (see recurrent.py); the output matrix is
not factorized; embeddings are multiplied by √embedding_dim, as the Transformer's are, since a GRU learns slowly from
small inputs. `dropout` and `tie_weights` came later and are off by default, as in the paper. The paper scored phrases
for another system; here the model translates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.cache import State
from mallang.layers.checks import check_alike, check_shared, check_sizes
from mallang.layers.dropout import Dropout
from mallang.layers.encoded import Encoded, EncoderDims
from mallang.layers.head import Projection
from mallang.layers.initialization import xavier
from mallang.layers.recurrent import Maxout, Memory, Reader, Recurrent
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "Cho", "Config", "Model"]

TASK = "translation"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of the model; the defaults are the paper's."""

    embedding_dim: int = 100
    """Size of word embeddings."""
    dim: int = 1000
    """Size of the encoder's state, of the summary c and of the decoder's state."""
    readout_dim: int = 500
    """Size of the maxout layer before the output projection."""
    dropout: float = 0.0
    """Dropout on embeddings, on the summary and before the output projection."""
    tie_weights: Literal["all", "target", "none"] = "none"
    """Tie both embeddings and the output projection (needs one vocabulary), those of the decoder, or none."""

    def __post_init__(self) -> None:
        check_sizes(self, "embedding_dim", "dim", "readout_dim")
        check_alike(self, "readout_dim")


class Cho(nn.Module):
    """A GRU encoder, and a GRU decoder that reads the summary of the source at every step."""

    reads_source = True

    def __init__(self, config: Config, vocabulary: Vocabulary, source_vocabulary: Vocabulary) -> None:
        super().__init__()
        check_shared(config.tie_weights, vocabulary, source_vocabulary)
        self.config, self.vocabulary, self.source_vocabulary = config, vocabulary, source_vocabulary
        words, dim = config.embedding_dim, config.dim
        self.embedding = nn.Embedding(len(vocabulary), words)
        self.own_source_embedding = None if config.tie_weights == "all" else nn.Embedding(len(source_vocabulary), words)
        self.encoder = Reader("gru", words, dim)
        self.summary = nn.Linear(dim, dim)  # V
        self.first_state = nn.Linear(dim, dim)  # V'
        self.decoder = Recurrent("gru", words + dim, dim)  # [W C], U
        self.readout = Maxout(words + dim + dim, config.readout_dim)  # [O_y O_s O_c]
        self.head = Projection(
            config.readout_dim, len(vocabulary), None if config.tie_weights == "none" else self.embedding
        )
        self.dropout = Dropout(config.dropout)
        self.init_weights()

    def forward(self, batch: Batch) -> Float[Tensor, "batch time readout"]:
        """The hidden vector of every position, from which its next token is predicted."""
        hidden, _ = self.write(batch.tokens, self.start(batch))
        return hidden

    def encode(self, batch: Batch) -> Encoded:
        """The states of the encoder, and the summary c of each source."""
        if batch.source is None or batch.source_lengths is None:
            raise ValueError("this batch has no source")
        words = self.embed(batch.source, self.input_embedding())
        states, memory = self.encoder(words, batch.source_lengths)
        return Encoded(layers=[states], mask=batch.source_mask, pooled=self.summary(memory.hidden[:, -1]).tanh())

    def encoder_dims(self) -> EncoderDims:
        """The sizes of what `encode` gives."""
        return EncoderDims(pooled=self.config.dim, token=self.config.dim)

    def start(self, batch: Batch) -> State:
        """Encode the source: its summary is fixed, and the decoder's initial state is computed from it."""
        summary = self.dropout(self.encode(batch).pooled)
        return State(fixed=summary, moving=Memory(self.first_state(summary).tanh()[:, None], None))

    def write(self, tokens: Int[Tensor, "rows time"], state: State) -> tuple[Float[Tensor, "rows time readout"], State]:
        """The hidden vector after each of these tokens: g(y_{t−1}, s_t, c)."""
        words, width = self.embed(tokens, self.embedding), len(tokens) // len(state.fixed)
        summary = state.fixed[:, None, None].expand(-1, width, tokens.shape[1], -1).flatten(0, 1).to(words.dtype)
        states, memory = self.decoder(torch.cat((words, summary), dim=-1), state.moving)
        hidden = self.readout(torch.cat((words, states.to(words.dtype), summary), dim=-1))
        return self.dropout(hidden), State(state.fixed, memory)

    def embed(self, tokens: Int[Tensor, "rows time"], table: nn.Embedding) -> Float[Tensor, "rows time word_dim"]:
        """Token embeddings, scaled to variance one also where the table is tied to the output projection."""
        x: Tensor = self.dropout(table(tokens) * math.sqrt(self.config.embedding_dim))
        return x

    def output(self, hidden: Float[Tensor, "*batch readout"]) -> Float[Tensor, "*batch words"]:
        """One logit per word of the target vocabulary."""
        logits: Tensor = self.head(hidden)
        return logits

    def input_embedding(self) -> nn.Embedding:
        """The embedding of source tokens."""
        return self.own_source_embedding or self.embedding

    def output_projection(self) -> Projection:
        """The linear layer that `output` applies."""
        return self.head

    def step(self, tokens: Int[Tensor, "rows time"], state: State) -> tuple[Float[Tensor, "rows time words"], State]:
        """The logits after each of these tokens, which follow those of earlier steps."""
        hidden, state = self.write(tokens, state)
        return self.output(hidden), state

    def init_weights(self) -> None:
        """Xavier for every matrix, N(0, 1/embedding_dim) for embeddings; recurrent.py initializes the GRUs."""
        xavier(self)


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"embedding_dim": 24, "dim": 32, "readout_dim": 24},
    "small": {"embedding_dim": 256, "dim": 512, "readout_dim": 256},
    "base": {},
}
"""Named shapes, as changes to the defaults; base is the paper's."""

Model = Cho
