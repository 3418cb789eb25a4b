"""Unsupervised translation with a shared latent space: a discriminator cannot tell which language a sentence was in.

Unsupervised Machine Translation Using Monolingual Corpora Only. Lample, Conneau, Denoyer, Ranzato 2018,
arXiv:1711.00043.

New against Luong's model: nobody has pairs of sentences. One encoder and one decoder serve both languages; only the
embeddings are those of a language, that of `<s>` too, which tells the decoder what to write. The model learns to
restore noisy sentences and to translate its own translations back, while a discriminator reads the latent states of
the encoder and the encoder learns to deceive it.

    source → embedding of its language → bidirectional LSTM stack → memory → discriminator: which language?
                                                                      ↓
    tokens → embedding of their language → LSTM stack → h_t → attention to the memory → logits in their language

The two languages are numbered: 0 is that of `source_vocabulary`, 1 that of `vocabulary`. `forward`, `start` and `step`
translate from 0 to 1; `between` gives the other directions.

Where this differs from the paper: attention follows the decoder's LSTM, as in Luong's model, so that training needs no
loop over time; `tie_weights` ties the output projection of a language to its embedding.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call

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

__all__ = ["SIZES", "Config", "Lample", "Model"]

TASK = "unsupervised_translation"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of the model; the defaults are the paper's."""

    layers: int = 3
    """LSTM layers of the encoder and of the decoder."""
    dim: int = 300
    """Size of word embeddings and of hidden states, in the encoder that of each direction."""
    dropout: float = 0.1
    """Dropout on embeddings, between layers and before the output projection."""
    discriminator_dim: int = 1024
    """Hidden size of the discriminator."""
    discriminator_layers: int = 3
    """Hidden layers of the discriminator."""
    tie_weights: bool = True
    """Tie the output projection of each language to its embedding."""

    def __post_init__(self) -> None:
        check_sizes(self, "layers", "dim", "discriminator_dim", "discriminator_layers")


class Lample(nn.Module):
    """A shared encoder and decoder of LSTMs, embeddings of two languages, and a discriminator of latent states."""

    reads_source = True

    def __init__(self, config: Config, vocabulary: Vocabulary, source_vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary, self.source_vocabulary = config, vocabulary, source_vocabulary
        languages, dim, stack = (source_vocabulary, vocabulary), config.dim, (config.dim, config.layers, config.dropout)
        self.embeddings = nn.ModuleList(nn.Embedding(len(each), dim) for each in languages)
        self.encoder = BidirectionalReader("lstm", dim, *stack)
        self.first_hidden, self.first_cell = nn.Linear(2 * dim, dim), nn.Linear(2 * dim, dim)
        self.decoder = Recurrent("lstm", dim, *stack)
        self.cross_attention = ScoredAttention(GeneralScore(dim, 2 * dim))
        self.combine = nn.Linear(3 * dim, dim, bias=False)
        tables = self.embeddings if config.tie_weights else (None, None)
        self.heads = nn.ModuleList(
            Projection(dim, len(each), table)  # type: ignore[arg-type]
            for each, table in zip(languages, tables, strict=True)
        )
        self.discriminator = make_discriminator(2 * dim, config.discriminator_dim, config.discriminator_layers)
        self.dropout = Dropout(config.dropout)
        self.ways = directions(self, languages)
        self.init_weights()

    def forward(self, batch: Batch, source: int = 0, target: int = 1) -> Float[Tensor, "batch time dim"]:
        """The hidden vector of every position, from which its next token is predicted."""
        return self.states(batch, source, target)[0]

    def states(
        self, batch: Batch, source: int, target: int
    ) -> tuple[Float[Tensor, "batch time dim"], Float[Tensor, "batch source both"]]:
        """The hidden vector of every position, and the latent states of the source."""
        state = self.start(batch, source, target)
        hidden, _ = self.write(batch.tokens, state, target)
        return hidden, state.fixed["memory"]

    def start(self, batch: Batch, source: int = 0, target: int = 1) -> State:
        """Encode the source; the decoder starts from the last states of both directions."""
        if batch.source is None or batch.source_lengths is None:
            raise ValueError("this batch has no source")
        words = self.dropout(self.embeddings[source](batch.source))
        memory, last, first = self.encoder(words, batch.source_lengths)
        keys = self.cross_attention.score.remember(memory)
        assert last.cell is not None and first.cell is not None
        hidden = self.first_hidden(torch.cat((last.hidden, first.hidden), dim=-1)).tanh()
        cell = self.first_cell(torch.cat((last.cell, first.cell), dim=-1)).tanh()
        fixed = {"memory": memory, "keys": keys, "mask": additive(batch.source_mask, keys)}
        return State(fixed, moving=Memory(hidden, cell))

    def write(
        self, tokens: Int[Tensor, "rows time"], state: State, target: int
    ) -> tuple[Float[Tensor, "rows time dim"], State]:
        """The hidden vector after each of these tokens of a language."""
        states, after = self.decoder(self.dropout(self.embeddings[target](tokens)), state.moving)
        contexts = self.cross_attention(states, state.fixed["keys"], state.fixed["memory"], state.fixed["mask"])
        vectors = self.combine(torch.cat((contexts, states.to(contexts.dtype)), dim=-1)).tanh()
        return self.dropout(vectors), State(state.fixed, after)

    def output(self, hidden: Float[Tensor, "*batch dim"], target: int = 1) -> Float[Tensor, "*batch words"]:
        """One logit per word of a language."""
        logits: Tensor = self.heads[target](hidden)
        return logits

    def step(
        self, tokens: Int[Tensor, "rows time"], state: State, target: int = 1
    ) -> tuple[Float[Tensor, "rows time words"], State]:
        """The logits after each of these tokens, which follow those of earlier steps."""
        hidden, state = self.write(tokens, state, target)
        return self.output(hidden, target), state

    def between(self, source: int, target: int) -> Direction:
        """This model as a translator from one language to another, or to itself."""
        return self.ways[source, target]

    def judge(self, memory: Float[Tensor, "batch source both"], *, frozen: bool) -> Float[Tensor, "batch source"]:
        """The logit that each latent state is of language 1; `frozen` keeps gradients from the discriminator."""
        if not frozen:
            found: Tensor = self.discriminator(memory)
        else:
            weights = {name: weight.detach() for name, weight in self.discriminator.named_parameters()}
            found = functional_call(self.discriminator, weights, (memory,))
        return found.squeeze(-1)

    def input_embedding(self, source: int = 0) -> nn.Embedding:
        """The embedding of a language."""
        table = self.embeddings[source]
        assert isinstance(table, nn.Embedding)
        return table

    def word_tables(self, language: int) -> list[nn.Embedding]:
        """The embeddings of a language that begin as word vectors."""
        return [self.input_embedding(language)]

    def output_projection(self, target: int = 1) -> Projection:
        """The linear layer that `output` applies."""
        head = self.heads[target]
        assert isinstance(head, Projection)
        return head

    def init_weights(self) -> None:
        """Xavier for every matrix; embeddings of expected norm 1; recurrent.py initializes the LSTMs."""
        xavier(self)


def make_discriminator(inputs: int, dim: int, layers: int) -> nn.Sequential:
    """Hidden layers with leaky ReLU, and one logit."""
    sizes = [inputs, *[dim] * layers]
    parts: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        parts += [nn.Linear(before, after), nn.LeakyReLU(0.2)]
    return nn.Sequential(*parts, nn.Linear(dim, 1))


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 1, "dim": 32, "discriminator_dim": 32, "discriminator_layers": 1},
    "small": {"layers": 2, "dim": 256, "discriminator_dim": 512},
    "base": {},
}
"""Named shapes, as changes to the defaults; base is the paper's."""

Model = Lample
