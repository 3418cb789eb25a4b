"""word2vec: vectors of words that predict the words around them, so that words of like contexts have like vectors.

Efficient Estimation of Word Representations in Vector Space. Mikolov, Chen, Corrado, Dean 2013, arXiv:1301.3781;
Distributed Representations of Words and Phrases and their Compositionality. Mikolov et al. 2013, arXiv:1310.4546, for
negative sampling and subsampling.

New against nplm.py: no hidden layer, words on both sides are read, and the softmax over the vocabulary may be replaced.

    skip-gram   the vector of a word predicts each word around it          cbow   the mean of those around predicts it
    softmax                 −log softmax(v · u of all words)[word]
    negative-sampling       −log σ(v · u) − Σ log σ(−v · u of a random word), words drawn with count^exponent
    hierarchical-softmax    −Σ log σ(± v · u of each node on the word's path in a Huffman tree)

    text → subsampling → windows → groups of input and output vectors → blocks of updates     see layers/word_windows.py

Where this differs from the original code: updates are those of mini-batches (`block` positions), so that the vectors
depend on the seed and not on threads; the pairs of a position share their negative samples (Ji et al. 2016,
arXiv:1604.04661); in cbow every word around takes its own share of the gradient, as the mean has it (İrsoy et al. 2021,
arXiv:2012.15332), so the learning rate must be larger than the original's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.errors import UserError
from mallang.kernels.word_vectors import Groups, logistic_losses, logistic_updates_, softmax_updates_
from mallang.layers.checks import check_sizes
from mallang.layers.huffman import HuffmanTree, huffman_tree
from mallang.layers.word_windows import (
    AliasTable,
    Positions,
    epoch_report,
    keep_probability,
    learning_rates,
    text_of,
    windows,
)  # fmt: skip
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "Config", "Model", "Word2Vec"]

TASK = "word_vectors"
USED_BY = {"negatives": "negative-sampling", "exponent": "negative-sampling"}
"""The loss that uses an option; options not listed here are used by all."""
BLOCKS = {"negative-sampling": 256, "hierarchical-softmax": 32, "softmax": 256}
"""Positions of a block."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The size of the vectors, what they predict, and how long they are trained."""

    dim: int = 100
    """The size of a vector."""
    architecture: Literal["skip-gram", "cbow"] = "skip-gram"
    """Whether a word predicts those around it, or those around it predict the word."""
    loss: Literal["negative-sampling", "hierarchical-softmax", "softmax"] = "negative-sampling"
    """How the probability of a word is computed; softmax is exact, and slow for large vocabularies."""
    window: int = 5
    """The most words to each side; the number is drawn for every position, from 1."""
    negatives: int = 5
    """negative-sampling: random words per position."""
    exponent: float = 0.75
    """negative-sampling: random words are drawn with probability count^exponent."""
    subsample: float = 1e-3
    """Words of a higher frequency than this are left out at random; 0: never."""
    epochs: int = 5
    """Passes over the text."""
    learning_rate: float = 0.025
    """The learning rate at the start; it decays linearly."""
    final_learning_rate: float = 1e-4
    """The learning rate at the end."""
    block: int | None = None
    """Positions of the text whose updates are computed from the same vectors; none: 256, hierarchical softmax 32."""

    def __post_init__(self) -> None:
        check_sizes(self, "dim", "window", "negatives", "epochs", "block", dropouts=())
        if self.subsample < 0:
            raise ValueError(f"subsample must not be negative, but is {self.subsample}")
        if not 0 <= self.final_learning_rate <= self.learning_rate:
            raise ValueError(
                f"final_learning_rate must be between 0 and learning_rate = {self.learning_rate}, but is "
                f"{self.final_learning_rate}"
            )
        for field in fields(self):
            used = USED_BY.get(field.name, self.loss)
            if used != self.loss and getattr(self, field.name) != field.default:
                raise ValueError(
                    f"{field.name} = {getattr(self, field.name)} has no effect on loss = {self.loss!r}, but on {used}"
                )


class Word2Vec(nn.Module):
    """One vector of every word as an input, another as an output; random until it is fitted."""

    reads_source = False
    counts: Int64[Tensor, " words"]

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.embedding = nn.Embedding(len(vocabulary), config.dim).requires_grad_(False)
        nn.init.uniform_(self.embedding.weight, -0.5 / config.dim, 0.5 / config.dim)
        self.output = nn.Parameter(torch.zeros(len(vocabulary), config.dim), requires_grad=False)
        self.register_buffer("counts", torch.zeros(len(vocabulary), dtype=torch.int64))

    @property
    def signature(self) -> str:
        """The settings besides the text that are needed to reproduce its scores."""
        config = self.config
        drawn = f"|negatives:{config.negatives}" if config.loss == "negative-sampling" else ""
        return f"word2vec:{config.architecture}|loss:{config.loss}{drawn}|window:{config.window}"

    def forward(self, batch: Batch) -> Float[Tensor, "batch time dim"]:
        """The vector of every token."""
        found: Tensor = self.embedding(batch.tokens)
        return found

    def input_embedding(self) -> nn.Embedding:
        """The table of the vectors."""
        return self.embedding

    def vectors(self) -> Float[Tensor, "words dim"]:
        """The vector of every word."""
        return self.embedding.weight

    def fit(self, stream: Iterable[Batch]) -> Iterator[Mapping[str, float]]:
        """Train on the text; each epoch reports its mean loss, per pair of words (cbow: per word)."""
        text, config = text_of(stream, self.vocabulary), self.config
        if not len(text):
            raise UserError("there are no words to learn vectors of", todo="check data.train and text.min_count")
        self.counts.copy_(text.counts(self.vocabulary))
        keep, objective = keep_probability(self.counts, config.subsample), Objective(config, self.counts)
        seed, span = int(torch.randint(2**31, ())), (config.learning_rate, config.final_learning_rate)
        for epoch in range(config.epochs):
            (total, predicted), rates = torch.zeros(2, dtype=torch.float64, device=text.words.device), torch.zeros(1)
            for positions, random in windows(text, config.window, keep, (seed, epoch)):
                rates = learning_rates(positions, objective.block, epoch, config.epochs, len(text), span)
                groups = objective.groups(positions, random)
                total += objective.update_(self.embedding.weight, self.output, groups, rates).sum()
                predicted += objective.predictions(positions)
            yield {**epoch_report(total, predicted), "learning_rate": float(rates[-1])}

    def held_out_loss(self, stream: Iterable[Batch]) -> tuple[float, int]:
        """The summed loss of a text, and the number of its predictions; windows are full, negatives always the same."""
        objective, total, predicted = Objective(self.config, self.counts), 0.0, 0
        for positions, random in windows(text_of(stream, self.vocabulary), self.config.window):
            groups = objective.groups(positions, random)
            total += float(objective.losses(self.embedding.weight, self.output, groups).sum())
            predicted += int(objective.predictions(positions))
        return total, predicted


class Objective:
    """What is predicted from what, and its loss."""

    def __init__(self, config: Config, counts: Int64[Tensor, " words"]) -> None:
        self.config, self.counts = config, counts
        self.block = config.block or BLOCKS[config.loss]
        self.negatives: AliasTable | None = None
        self.tree: HuffmanTree | None = None
        if config.loss == "negative-sampling":
            weights = counts.double().pow(config.exponent) * (counts > 0)
            self.negatives = AliasTable.of(weights)
        elif config.loss == "hierarchical-softmax":
            self.tree = huffman_tree(counts)

    def predictions(self, positions: Positions) -> Int64[Tensor, ""]:
        """How many words are predicted at these positions."""
        if self.config.architecture == "skip-gram":
            return positions.pairs
        return (positions.context >= 0).any(dim=1).sum()

    def groups(self, positions: Positions, random: torch.Generator) -> Groups:
        """The inputs, outputs and labels of every position."""
        words, around = positions.words[:, None], positions.context
        if self.negatives is not None:
            drawn = self.negatives.draw(len(positions), self.config.negatives, random).int()
            outputs = torch.cat((words, torch.where(drawn == words, -1, drawn)), dim=1)
            return Groups(around, outputs, (torch.arange(outputs.shape[1], device=words.device) == 0).float()
                          .expand(outputs.shape))  # fmt: skip
        if self.tree is not None:
            return Groups(around, self.tree.nodes[positions.words], self.tree.labels[positions.words])
        inputs, outputs = (words, around) if self.config.architecture == "skip-gram" else (around, words)
        return Groups(inputs, outputs, torch.ones(outputs.shape, device=outputs.device))

    def update_(self, inputs: Tensor, outputs: Tensor, groups: Groups, rates: Tensor) -> Float64[Tensor, " groups"]:
        """Update both tables; the loss of every position."""
        if self.config.loss == "softmax":
            return softmax_updates_(inputs, outputs, groups, rates, self.block, self.counts > 0)
        return logistic_updates_(inputs, outputs, groups, rates, self.block, self.pooling)

    def losses(self, inputs: Tensor, outputs: Tensor, groups: Groups) -> Float64[Tensor, " groups"]:
        """The loss of every position."""
        if self.config.loss == "softmax":
            rates = torch.zeros(-(-len(groups) // self.block))
            return self.update_(inputs, outputs, groups, rates)
        return logistic_losses(inputs, outputs, groups, self.block, self.pooling)

    @property
    def pooling(self) -> Literal["none", "mean"]:
        """The words around a position predict one by one, or as their mean."""
        return "none" if self.config.architecture == "skip-gram" else "mean"


SIZES: dict[str, dict[str, Any]] = {"tiny": {"dim": 8, "epochs": 2, "block": 4}, "base": {}}
"""Named shapes, as changes to the defaults."""

Model = Word2Vec
