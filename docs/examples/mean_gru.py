"""A model of one's own: the source is the mean of its word vectors, the target is written by a GRU.

Too simple to translate well, but whole: it trains, resumes, searches and scores like any model of mallang.
    mallang train mean-gru --plugin docs/examples/mean_gru.py
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.cache import State
from mallang.text.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class Config:
    """What a recipe may set under [model]."""

    dim: int = 128
    """Size of the word vectors and of the GRU's state."""


class MeanGRU(nn.Module):
    """p(target | source) with a bag of words for the source."""

    reads_source = True

    def __init__(self, config: Config, vocabulary: Vocabulary, source_vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary, self.source_vocabulary = config, vocabulary, source_vocabulary
        self.source_embedding = nn.Embedding(len(source_vocabulary), config.dim)
        self.embedding = nn.Embedding(len(vocabulary), config.dim)
        self.gru = nn.GRU(config.dim, config.dim, batch_first=True)
        self.head = nn.Linear(config.dim, len(vocabulary))

    def forward(self, batch: Batch) -> Tensor:
        """The hidden vector of every position: [batch, time, dim]."""
        hidden, _ = self.gru(self.embedding(batch.tokens), self.read(batch)[None])
        return hidden

    def output(self, hidden: Tensor) -> Tensor:
        """One logit a word."""
        return self.head(hidden)

    def input_embedding(self) -> nn.Embedding:
        """The vectors of source words, which `mallang embed --words` shows."""
        return self.source_embedding

    def read(self, batch: Batch) -> Tensor:
        """The mean of the source's vectors, padding left out: [batch, dim]."""
        seen = batch.source_mask[:, :, None]
        return (self.source_embedding(batch.source) * seen).sum(dim=1) / seen.sum(dim=1)

    def start(self, batch: Batch) -> State:
        """Read the source. The GRU's state moves with the hypotheses; nothing stays fixed."""
        return State(fixed=None, moving=self.read(batch))

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Read tokens, one or many a row, and say what comes after each: [rows, time, vocabulary]."""
        hidden, last = self.gru(self.embedding(tokens), state.moving[None])
        return self.output(hidden), State(fixed=None, moving=last[0])


SIZES = {"tiny": {"dim": 16}}
Model = MeanGRU

if __name__ == "__main__":  # a look without training
    words = Vocabulary(("<pad>", "<unk>", "<s>", "</s>", "물", "water"))
    model = Model(Config(dim=8), words, words)
    ones = torch.ones(1, dtype=torch.long)
    pair = Batch(tokens=torch.tensor([[2]]), lengths=ones, source=torch.tensor([[4, 3]]), source_lengths=ones + 1)
    print(model.output(model(pair)).softmax(dim=-1))
