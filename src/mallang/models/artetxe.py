"""Unsupervised translation with one encoder for two languages and a decoder for each.

Unsupervised Neural Machine Translation. Artetxe, Labaka, Agirre, Cho 2018, arXiv:1710.11041.

New against Luong's model: nobody has pairs of sentences. The encoder is shared; it reads embeddings of both languages
that lie in one space and stay fixed, so that it reads meanings rather than words. Each language has a decoder of its
own, which learns to restore noisy sentences of its language and to translate back what the other decoder wrote.

    source → fixed embedding of its language → bidirectional GRU stack → memory
                                                                           ↓
    tokens → embedding of their language → GRU stack of their language → attention → logits in their language

The two languages are numbered: 0 is that of `source_vocabulary`, 1 that of `vocabulary`. `forward`, `start` and `step`
translate from 0 to 1; `between` gives the other directions. Against Lample's model (lample.py) there is no
discriminator, and nothing of the decoders is shared.

Where this differs from the paper: attention follows the decoder's GRU, without input feeding, so that training needs no
loop over time; the embeddings of the decoders begin as those of the encoder and are trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.attention import additive
from mallang.layers.cache import State
from mallang.layers.checks import check_sizes
from mallang.layers.direction import Direction, directions
from mallang.layers.dropout import Dropout
from mallang.layers.head import Projection
from mallang.layers.initialization import xavier
from mallang.layers.recurrent import BidirectionalReader, Memory, Recurrent
from mallang.layers.scores import GeneralScore, ScoredAttention
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "Artetxe", "Config", "Model"]

TASK = "unsupervised_translation"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of the model; the defaults are the paper's."""

    layers: int = 2
    """GRU layers of the encoder and of each decoder."""
    embedding_dim: int = 300
    """Size of word embeddings."""
    dim: int = 600
    """Size of hidden states, in the encoder that of each direction."""
    dropout: float = 0.3
    """Dropout on embeddings, between layers and before the output projection."""

    def __post_init__(self) -> None:
        check_sizes(self, "layers", "embedding_dim", "dim")


class Artetxe(nn.Module):
    """A shared encoder of GRUs over fixed embeddings, and a decoder for each language."""

    reads_source = True

    def __init__(self, config: Config, vocabulary: Vocabulary, source_vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary, self.source_vocabulary = config, vocabulary, source_vocabulary
        languages = source_vocabulary, vocabulary
        self.embeddings = nn.ModuleList(nn.Embedding(len(each), config.embedding_dim) for each in languages)
        stack = config.embedding_dim, config.dim, config.layers, config.dropout
        self.encoder = BidirectionalReader("gru", *stack)
        self.decoders = nn.ModuleList(Decoder(config, len(each)) for each in languages)
        self.dropout = Dropout(config.dropout)
        self.ways = directions(self, languages)
        self.init_weights()
        self.embeddings.requires_grad_(False)

    def forward(self, batch: Batch, source: int = 0, target: int = 1) -> Float[Tensor, "batch time readout"]:
        """The hidden vector of every position, from which its next token is predicted."""
        hidden, _ = self.decoder(target).write(batch.tokens, self.start(batch, source, target))
        return hidden

    def start(self, batch: Batch, source: int = 0, target: int = 1) -> State:
        """Encode the source; the decoder starts from the last states of both directions."""
        if batch.source is None or batch.source_lengths is None:
            raise ValueError("this batch has no source")
        words = self.dropout(self.embeddings[source](batch.source))
        memory, last, first = self.encoder(words, batch.source_lengths)
        decoder = self.decoder(target)
        hidden = decoder.first_hidden(torch.cat((last.hidden, first.hidden), dim=-1)).tanh()
        keys = decoder.cross_attention.score.remember(memory)
        fixed = {"memory": memory, "keys": keys, "mask": additive(batch.source_mask, keys)}
        return State(fixed, moving=Memory(hidden, None))

    def output(self, hidden: Float[Tensor, "*batch readout"], target: int = 1) -> Float[Tensor, "*batch words"]:
        """One logit per word of a language."""
        logits: Tensor = self.decoder(target).head(hidden)
        return logits

    def step(
        self, tokens: Int[Tensor, "rows time"], state: State, target: int = 1
    ) -> tuple[Float[Tensor, "rows time words"], State]:
        """The logits after each of these tokens, which follow those of earlier steps."""
        hidden, state = self.decoder(target).write(tokens, state)
        return self.output(hidden, target), state

    def between(self, source: int, target: int) -> Direction:
        """This model as a translator from one language to another, or to itself."""
        return self.ways[source, target]

    def decoder(self, target: int) -> Decoder:
        """The decoder of a language."""
        found = self.decoders[target]
        assert isinstance(found, Decoder)
        return found

    def input_embedding(self, source: int = 0) -> nn.Embedding:
        """The fixed embedding of a language."""
        table = self.embeddings[source]
        assert isinstance(table, nn.Embedding)
        return table

    def word_tables(self, language: int) -> list[nn.Embedding]:
        """The embeddings of a language that begin as word vectors."""
        return [self.input_embedding(language), self.decoder(language).embedding]

    def output_projection(self, target: int = 1) -> Projection:
        """The linear layer that `output` applies."""
        return self.decoder(target).head

    def init_weights(self) -> None:
        """Xavier for every matrix; embeddings of expected norm 1; recurrent.py initializes the GRUs."""
        xavier(self)


class Decoder(nn.Module):
    """The decoder of one language."""

    def __init__(self, config: Config, words: int) -> None:
        super().__init__()
        dim = config.dim
        self.embedding = nn.Embedding(words, config.embedding_dim)
        self.first_hidden = nn.Linear(2 * dim, dim)
        self.recurrent = Recurrent("gru", config.embedding_dim, dim, config.layers, config.dropout)
        self.cross_attention = ScoredAttention(GeneralScore(dim, 2 * dim))
        self.combine = nn.Linear(3 * dim, config.embedding_dim, bias=False)
        self.head = Projection(config.embedding_dim, words, self.embedding)
        self.dropout = Dropout(config.dropout)

    def write(self, tokens: Int[Tensor, "rows time"], state: State) -> tuple[Float[Tensor, "rows time readout"], State]:
        """The hidden vector after each of these tokens."""
        states, after = self.recurrent(self.dropout(self.embedding(tokens)), state.moving)
        contexts = self.cross_attention(states, state.fixed["keys"], state.fixed["memory"], state.fixed["mask"])
        vectors = self.combine(torch.cat((contexts, states.to(contexts.dtype)), dim=-1)).tanh()
        return self.dropout(vectors), State(state.fixed, after)


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 1, "embedding_dim": 32, "dim": 32},
    "small": {"layers": 2, "embedding_dim": 256, "dim": 256},
    "base": {},
}
"""Named shapes, as changes to the defaults; base is the paper's."""

Model = Artetxe
