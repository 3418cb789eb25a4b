"""Sequence-to-sequence with deep LSTMs: an encoder reads a sentence into a state, and a decoder generates from it.

Sequence to Sequence Learning with Neural Networks. Sutskever, Vinyals, Le 2014, arXiv:1409.3215.

New against word-by-word translation: one network maps sentences to sentences end to end. The decoder sees the source
only through the encoder's last state, whatever the length. The source is reversed, so that its first words, with which
a translation begins, are the most recent in the state.

    </s> c b a → embedding → LSTM layers → last state of every layer
                                                     ↓
    <s> w x y  → embedding  ───────────────→  LSTM layers → hidden → logits → w x y </s>

Where this differs from the paper: the candidate g of the encoder has no bias, so that padding has no effect (see
recurrent.py); weights have Xavier initialization, recurrent ones orthogonal, where the paper draws all from −0.08 to
0.08, and embeddings are multiplied by √embedding_dim, as the Transformer's are: an LSTM learns slowly from small
inputs. `</s>` is part of the source and reversed with it, since `<s>` starts the decoder. `dropout` and `tie_weights`
came later and are off by default, as in the paper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.cache import State
from mallang.layers.checks import check_alike, check_shared, check_sizes
from mallang.layers.dropout import Dropout
from mallang.layers.encoded import Encoded, EncoderDims
from mallang.layers.head import Projection
from mallang.layers.initialization import xavier
from mallang.layers.recurrent import Memory, Reader, Recurrent
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "Config", "Model", "Sutskever"]

TASK = "translation"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of the model; the defaults are the paper's."""

    layers: int = 4
    """LSTM layers of the encoder, and of the decoder."""
    embedding_dim: int = 1000
    """Size of word embeddings."""
    dim: int = 1000
    """Size of the hidden state of each layer."""
    reverse_source: bool = True
    """Read the source in reverse order, as in the paper."""
    dropout: float = 0.0
    """Dropout on embeddings, between layers and before the output projection."""
    tie_weights: Literal["all", "target", "none"] = "none"
    """Tie both embeddings and the output projection (needs one vocabulary), those of the decoder, or none."""

    def __post_init__(self) -> None:
        check_sizes(self, "layers", "embedding_dim", "dim")
        check_alike(self, "dim")


class Sutskever(nn.Module):
    """A deep LSTM encoder and a deep LSTM decoder."""

    reads_source = True

    def __init__(self, config: Config, vocabulary: Vocabulary, source_vocabulary: Vocabulary) -> None:
        super().__init__()
        check_shared(config.tie_weights, vocabulary, source_vocabulary)
        self.config, self.vocabulary, self.source_vocabulary = config, vocabulary, source_vocabulary
        shape = config.embedding_dim, config.dim, config.layers, config.dropout
        self.embedding = nn.Embedding(len(vocabulary), config.embedding_dim)
        own = config.tie_weights != "all"
        self.own_source_embedding = nn.Embedding(len(source_vocabulary), config.embedding_dim) if own else None
        self.encoder = Reader("lstm", *shape)
        self.decoder = Recurrent("lstm", *shape)
        self.head = Projection(config.dim, len(vocabulary), None if config.tie_weights == "none" else self.embedding)
        self.dropout = Dropout(config.dropout)
        self.init_weights()

    def forward(self, batch: Batch) -> Float[Tensor, "batch time dim"]:
        """The hidden vector of every position, from which its next token is predicted."""
        _, memory = self.read(batch)
        hidden, _ = self.write(batch.tokens, memory)
        return hidden

    def read(self, batch: Batch) -> tuple[Float[Tensor, "batch source dim"], Memory]:
        """The encoder: the output of its last layer at every word, and the final state of all layers."""
        if batch.source is None or batch.source_lengths is None:
            raise ValueError("this batch has no source")
        words = self.embed(batch.source, self.input_embedding())
        outputs, memory = self.encoder(words, batch.source_lengths, backwards=self.config.reverse_source)
        return outputs, memory

    def write(self, tokens: Int[Tensor, "rows time"], memory: Memory) -> tuple[Float[Tensor, "rows time dim"], Memory]:
        """The decoder: the hidden vector after each of these tokens, and the state after the last."""
        outputs, memory = self.decoder(self.embed(tokens, self.embedding), memory)
        return self.dropout(outputs), memory

    def embed(self, tokens: Int[Tensor, "rows time"], table: nn.Embedding) -> Float[Tensor, "rows time word_dim"]:
        """Token embeddings, scaled to variance one also where the table is tied to the output projection."""
        x: Tensor = self.dropout(table(tokens) * math.sqrt(self.config.embedding_dim))
        return x

    def output(self, hidden: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch words"]:
        """One logit per word of the target vocabulary."""
        logits: Tensor = self.head(hidden)
        return logits

    def input_embedding(self) -> nn.Embedding:
        """The embedding of source tokens."""
        return self.own_source_embedding or self.embedding

    def output_projection(self) -> Projection:
        """The linear layer that `output` applies."""
        return self.head

    def start(self, batch: Batch) -> State:
        """Encode the source; the decoder needs only the encoder's final state."""
        return State(fixed=None, moving=self.read(batch)[1])

    def step(self, tokens: Int[Tensor, "rows time"], state: State) -> tuple[Float[Tensor, "rows time words"], State]:
        """The logits after each of these tokens, which follow those of earlier steps."""
        hidden, memory = self.write(tokens, state.moving)
        return self.output(hidden), State(None, memory)

    def encode(self, batch: Batch) -> Encoded:
        """The sentence as a vector: the final state of the last layer, which the paper plots."""
        outputs, memory = self.read(batch)
        return Encoded(layers=[outputs], mask=batch.source_mask, pooled=memory.hidden[:, -1])

    def encoder_dims(self) -> EncoderDims:
        """The sizes of what `encode` gives."""
        return EncoderDims(pooled=self.config.dim, token=self.config.dim)

    def init_weights(self) -> None:
        """N(0, 1/embedding_dim) for embeddings, Xavier for the output; recurrent.py initializes the LSTMs."""
        xavier(self)


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 2, "embedding_dim": 24, "dim": 32},
    "small": {"layers": 2, "embedding_dim": 256, "dim": 256},
    "base": {},
}
"""Named shapes, as changes to the defaults; base is the paper's."""

Model = Sutskever
