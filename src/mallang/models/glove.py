"""GloVe: vectors whose dot products are the logarithms of how often words occur together.

GloVe: Global Vectors for Word Representation. Pennington, Socher, Manning 2014, doi:10.3115/v1/D14-1162.

New against word2vec.py: the text is read once, to count; training goes over the counts, each of which stands for all
its places in the text.

    loss = ½ Σ f(x) (v · u + b + c − log x)²        x the count of a pair of words, f(x) = min(1, (x / x_max)^alpha)

    text → co-occurrence counts → shuffled entries → blocks of AdaGrad steps → v + u

Where this differs from the original code: the gradients of a block of entries are summed before a step, so that the
vectors depend on the seed and not on threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.errors import UserError
from mallang.kernels.glove import Entries, Table, errors_of, glove_updates_
from mallang.layers.checks import check_sizes
from mallang.layers.cooccurrence import Cooccurrences, cooccurrences
from mallang.layers.word_windows import generator, text_of
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "Config", "GloVe", "Model"]

TASK = "word_vectors"
CHUNK = 2**20
"""Entries that are passed to the kernel at once."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The size of the vectors, the counts, and how long they are trained."""

    dim: int = 100
    """The size of a vector."""
    window: int = 10
    """The words to each side that are counted; one at distance d counts 1 / d."""
    x_max: float = 100.0
    """Counts from this one on have the full weight."""
    alpha: float = 0.75
    """The exponent of the weight of smaller counts."""
    epochs: int = 50
    """Passes over the counts."""
    learning_rate: float = 0.05
    """The learning rate of AdaGrad."""
    block: int = 1024
    """Entries whose gradients are computed together, from the same vectors."""

    def __post_init__(self) -> None:
        check_sizes(self, "dim", "window", "epochs", "block", dropouts=())
        for name in ("x_max", "alpha", "learning_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, but is {getattr(self, name)}")


class GloVe(nn.Module):
    """One vector and one bias of every word as a row of the counts, others as a column; random until it is fitted."""

    reads_source = False
    text_size: Float64[Tensor, ""]

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.rows = nn.Parameter(self.start(), requires_grad=False)
        self.columns = nn.Parameter(self.start(), requires_grad=False)
        self.register_buffer("text_size", torch.ones((), dtype=torch.float64))

    @property
    def signature(self) -> str:
        """The settings besides the text that are needed to reproduce its scores."""
        config = self.config
        return f"glove:weighted-squares|window:{config.window}|x_max:{config.x_max:g}|alpha:{config.alpha:g}"

    def start(self) -> Float[Tensor, "words columns"]:
        """Random vectors, the last two columns for the two biases."""
        return (torch.rand(len(self.vocabulary), self.config.dim + 2) - 0.5) / (self.config.dim + 1)

    def forward(self, batch: Batch) -> Float[Tensor, "batch time dim"]:
        """The vector of every token."""
        return self.vectors()[batch.tokens]

    def vectors(self) -> Float[Tensor, "words dim"]:
        """The vector of every word: its two vectors summed."""
        return (self.rows + self.columns)[:, : self.config.dim]

    def fit(self, stream: Iterable[Batch]) -> Iterator[Mapping[str, float]]:
        """Count the text and train on the counts; each epoch reports its mean loss per count."""
        text, config = text_of(stream, self.vocabulary), self.config
        entries = self.entries(cooccurrences(text, config.window, len(self.vocabulary)))
        if not len(entries):
            raise UserError("there are no two words in a line to count", todo="check data.train and text.min_count")
        self.text_size.fill_(len(text))
        tables = self.tables()
        seed, device = int(torch.randint(2**31, ())), self.rows.device
        for epoch in range(config.epochs):
            order = torch.randperm(len(entries), generator=generator(device, seed, epoch), device=device)
            total = 0.0
            for chunk in torch.split(order, CHUNK):
                total += float(glove_updates_(*tables, entries[chunk], config.learning_rate, config.block).sum())
            yield {"loss": total / len(entries), "counts": len(entries)}

    def entries(self, counts: Cooccurrences, scale: float = 1.0) -> Entries:
        """The entries of the matrix with their logarithms and weights; counts are multiplied by `scale`."""
        device, scaled = self.rows.device, counts.counts.to(self.rows.device) * scale
        weights = (scaled / self.config.x_max).pow(self.config.alpha).clamp_max(1.0)
        return Entries(counts.rows.to(device), counts.columns.to(device), scaled.log(), weights)

    def tables(self) -> tuple[Table, Table]:
        """Both tables, the bias of each beside a column of ones in the other."""
        found = []
        for values, fixed in ((self.rows, self.config.dim + 1), (self.columns, self.config.dim)):
            values[:, fixed] = 1.0
            found.append(Table(values.data, torch.ones_like(values), fixed))
        return found[0], found[1]

    def held_out_loss(self, stream: Iterable[Batch]) -> tuple[float, int]:
        """The summed loss on the counts of a text, scaled to the size of the training text, and their number."""
        text, total = text_of(stream, self.vocabulary), 0.0
        counts = cooccurrences(text, self.config.window, len(self.vocabulary))
        entries = self.entries(counts, float(self.text_size) / max(1, len(text)))
        for first in range(0, len(entries), CHUNK):
            some = entries[first : first + CHUNK]
            errors = errors_of(self.rows[some.rows], self.columns[some.columns], some)
            total += float((0.5 * some.weights * errors.square()).sum(dtype=torch.float64))
        return total, len(entries)


SIZES: dict[str, dict[str, Any]] = {"tiny": {"dim": 8, "epochs": 2, "block": 4}, "base": {}}
"""Named shapes, as changes to the defaults."""

Model = GloVe
