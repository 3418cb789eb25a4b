"""Two small models that obey the decoding contract: one remembers the last two tokens, the other a hidden state."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mallang.data.batch import Batch, pad_rows
from mallang.layers.cache import State
from mallang.text.vocabulary import SPECIALS, Vocabulary


def tiny_vocabulary(words: int) -> Vocabulary:
    return Vocabulary((*SPECIALS, *(f"w{number}" for number in range(words))))


def source_batch(sources: list[list[int]], extra_padding: int = 0) -> Batch:
    """Sentences to translate; `</s>` is added here, and `<s>` is all that is known of the output."""
    rows, lengths = pad_rows([[*row, 3] for row in sources])
    rows = torch.nn.functional.pad(rows, (0, extra_padding))
    return Batch(
        tokens=torch.full((len(sources), 1), 2),
        lengths=torch.ones(len(sources), dtype=torch.long),
        source=rows,
        source_lengths=lengths,
    )


def empty_batch(sentences: int) -> Batch:
    """Nothing to read: what a language model starts from."""
    return Batch(tokens=torch.full((sentences, 1), 2), lengths=torch.ones(sentences, dtype=torch.long))


class Table(nn.Module):
    """A trigram: logits by the last two tokens, and by the words of the source if there is one."""

    def __init__(self, vocabulary: Vocabulary, logits: Tensor, source: Tensor | None = None) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.register_buffer("logits", logits)  # before the last, last, next
        self.register_buffer("source", source)  # source word, next

    def forward(self, batch: Batch) -> Tensor:
        history = self.start(batch).moving
        before = torch.cat([history[:, 1:], batch.tokens[:, :-1]], dim=1)
        return self.logits[before, batch.tokens] + self.read(batch)[:, None]

    def output(self, hidden: Tensor) -> Tensor:
        return hidden

    def read(self, batch: Batch) -> Tensor:
        if self.source is None or batch.source is None:
            return self.logits.new_zeros(len(batch), len(self.vocabulary))
        return (self.source[batch.source] * batch.source_mask[:, :, None]).sum(dim=1)

    def start(self, batch: Batch) -> State:
        history = torch.full((len(batch), 2), self.vocabulary.pad, device=batch.tokens.device)
        return State(fixed=self.read(batch), moving=history)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        seen = torch.cat([state.moving, tokens], dim=1)
        logits = self.logits[seen[:, 1:-1], seen[:, 2:]]  # rows, time, vocabulary
        sentences, words = state.fixed.shape
        folded = logits.view(sentences, -1, tokens.shape[1], words) + state.fixed[:, None, None]
        return folded.view_as(logits), State(state.fixed, seen[:, -2:])


class GRU(nn.Module):
    """A recurrent encoder and decoder with dot attention over the source."""

    def __init__(self, vocabulary: Vocabulary, dim: int = 8) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.embedding = nn.Embedding(len(vocabulary), dim)
        self.encoder = nn.GRUCell(dim, dim)
        self.decoder = nn.GRUCell(dim, dim)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(2 * dim, len(vocabulary))

    def forward(self, batch: Batch) -> Tensor:
        hidden, _ = self.forward_stateful(batch.tokens, self.start(batch))
        return hidden

    def output(self, hidden: Tensor) -> Tensor:
        return self.head(self.dropout(hidden))

    def start(self, batch: Batch) -> State:
        state = torch.zeros(len(batch), self.encoder.hidden_size, device=batch.tokens.device)
        memory = []
        for word, real in zip(self.embedding(batch.source).unbind(1), batch.source_mask.unbind(1), strict=True):
            state = torch.where(real[:, None], self.encoder(word, state), state)
            memory.append(state)
        return State(fixed=(torch.stack(memory, dim=1), batch.source_mask), moving={"hidden": state})

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        hidden, state = self.forward_stateful(tokens, state)
        return self.output(hidden), state

    def forward_stateful(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        memory, mask = state.fixed
        hidden, outputs = state.moving["hidden"], []
        for word in self.embedding(tokens).unbind(1):
            hidden = self.decoder(word, hidden)
            query = hidden.view(len(memory), -1, hidden.shape[-1])  # the width is folded into the queries
            scores = (query @ memory.transpose(1, 2)).masked_fill(~mask[:, None], -torch.inf)
            context = (scores.softmax(dim=-1) @ memory).view_as(hidden)
            outputs.append(torch.cat([hidden, context], dim=-1))
        return torch.stack(outputs, dim=1), State(state.fixed, {"hidden": hidden})


def random_table(vocabulary: Vocabulary, seed: int, sharpness: float = 2.0) -> Table:
    generator = torch.Generator().manual_seed(seed)
    size = len(vocabulary)
    logits = torch.randn(size, size, size, generator=generator) * sharpness
    return Table(vocabulary, logits, torch.randn(size, size, generator=generator))


def random_gru(vocabulary: Vocabulary, seed: int) -> GRU:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = GRU(vocabulary)
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=1.0)
    return model
