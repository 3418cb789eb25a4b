"""fastText: skip-gram over the character n-grams of words, so that rare and unseen words have vectors, too.

Enriching Word Vectors with Subword Information. Bojanowski, Grave, Joulin, Mikolov 2017, arXiv:1607.04606; Subword
Word Vector Representations for Korean. Park et al. 2018, doi:10.18653/v1/P18-1226, for n-grams of jamo.

New against word2vec.py: the vector of a word is the mean of its own and of its n-grams', which are hashed to a fixed
number of rows. Words of one stem or one ending share n-grams; for Korean, jamo are shared across syllables. A word
outside the vocabulary is the mean of its n-grams.

    where → where <wh whe her ere re> <whe … → rows of the table → their mean → predicts each word around

Where this differs from the paper: like its code, the mean takes the place of the sum, and every row takes the whole
gradient of the mean. Updates are those of mini-batches (`block` positions), so that the vectors depend on the seed and
not on threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.errors import UserError
from mallang.kernels.word_vectors import Groups, logistic_losses, logistic_updates_
from mallang.layers.checks import check_sizes
from mallang.layers.word_windows import (
    AliasTable,
    Positions,
    epoch_report,
    keep_probability,
    learning_rates,
    padded,
    text_of,
    windows,
)  # fmt: skip
from mallang.text.character_ngrams import jamo_letters, ngram_hashes
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "Config", "FastText", "Model"]

TASK = "word_vectors"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The size of the vectors, their n-grams, and how long they are trained."""

    dim: int = 100
    """The size of a vector."""
    min_ngram: int = 3
    """The shortest character n-grams."""
    max_ngram: int = 6
    """The longest character n-grams; 0: none."""
    min_jamo: int = 3
    """The shortest jamo n-grams."""
    max_jamo: int = 0
    """The longest jamo n-grams, of Korean words; 0: none."""
    buckets: int = 2_000_000
    """Rows that the n-grams are hashed to."""
    window: int = 5
    """The most words to each side; the number is drawn for every position, from 1."""
    negatives: int = 5
    """Random words per pair."""
    exponent: float = 0.5
    """Random words are drawn with probability count^exponent."""
    subsample: float = 1e-4
    """Words of a higher frequency than this are left out at random; 0: never."""
    epochs: int = 5
    """Passes over the text."""
    learning_rate: float = 0.05
    """The learning rate at the start; it decays linearly to 0."""
    block: int = 256
    """Positions of the text whose updates are computed together, from the same vectors."""

    def __post_init__(self) -> None:
        check_sizes(self, "dim", "min_ngram", "min_jamo", "buckets", "window", "negatives", "epochs", "block",
                    dropouts=())  # fmt: skip
        for shortest, longest in (("min_ngram", "max_ngram"), ("min_jamo", "max_jamo")):
            least, most = getattr(self, shortest), getattr(self, longest)
            if most and most < least:
                raise ValueError(f"{longest} = {most} is less than {shortest} = {least}; 0 is for none")
        for name in ("subsample", "max_ngram", "max_jamo"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, but is {getattr(self, name)}")
        if not self.max_jamo and self.min_jamo != Config.min_jamo:
            raise ValueError(f"min_jamo = {self.min_jamo} has no effect without max_jamo")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be above 0, but is {self.learning_rate}")


class FastText(nn.Module):
    """One row for every word and every bucket of n-grams; random until it is fitted."""

    reads_source = False
    counts: Int64[Tensor, " words"]
    rows: Int64[Tensor, " rows"]
    ends: Int64[Tensor, " words"]

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        shape = len(vocabulary) + config.buckets, config.dim
        self.table = nn.Parameter(torch.empty(shape).uniform_(-1 / config.dim, 1 / config.dim), requires_grad=False)
        self.output = nn.Parameter(torch.zeros(len(vocabulary), config.dim), requires_grad=False)
        self.register_buffer("counts", torch.zeros(len(vocabulary), dtype=torch.int64))
        bags = [[number, *self.ngram_rows(token, number)] for number, token in enumerate(vocabulary.tokens)]
        self.register_buffer("rows", torch.tensor([row for bag in bags for row in bag]), persistent=False)
        self.register_buffer("ends", torch.tensor([len(bag) for bag in bags]).cumsum(0), persistent=False)

    @property
    def signature(self) -> str:
        """The settings besides the text that are needed to reproduce its scores."""
        return (
            f"fasttext:skip-gram|loss:negative-sampling|negatives:{self.config.negatives}|window:{self.config.window}"
        )

    def ngram_rows(self, token: str, number: int | None = None) -> list[int]:
        """The rows of a token's n-grams; special tokens have none."""
        if number in self.vocabulary.specials:
            return []
        word, config = token.removeprefix("▁"), self.config
        found = list(ngram_hashes(word, config.min_ngram, config.max_ngram))
        if config.max_jamo and (letters := jamo_letters(word)) != word:
            found += ngram_hashes(letters, config.min_jamo, config.max_jamo)
        return [len(self.vocabulary) + value % config.buckets for value in found]

    def forward(self, batch: Batch) -> Float[Tensor, "batch time dim"]:
        """The vector of every token."""
        return self.vectors()[batch.tokens]

    def vectors(self) -> Float[Tensor, "words dim"]:
        """The vector of every word: the mean of its rows."""
        return F.embedding_bag(self.rows, self.table, F.pad(self.ends, (1, 0))[:-1], mode="mean")

    def spelled_vectors(self, words: Sequence[str]) -> Float[Tensor, "words dim"]:
        """The vectors of words outside the vocabulary: the mean of their n-grams' rows, 0 where there is none."""
        found = [self.table[self.ngram_rows(word)].mean(dim=0) for word in words]
        return torch.stack(found).nan_to_num() if found else self.table[:0]

    def fit(self, stream: Iterable[Batch]) -> Iterator[Mapping[str, float]]:
        """Train on the text; each epoch reports its mean loss per pair of words."""
        text, config = text_of(stream, self.vocabulary), self.config
        if not len(text):
            raise UserError("there are no words to learn vectors of", todo="check data.train and text.min_count")
        self.counts.copy_(text.counts(self.vocabulary))
        keep, negatives = keep_probability(self.counts, config.subsample), self.negatives()
        seed, span = int(torch.randint(2**31, ())), (config.learning_rate, 0.0)
        for epoch in range(config.epochs):
            (total, pairs), rates = torch.zeros(2, dtype=torch.float64, device=text.words.device), torch.zeros(1)
            for positions, random in windows(text, config.window, keep, (seed, epoch)):
                rates = learning_rates(positions, config.block, epoch, config.epochs, len(text), span)
                groups = self.groups(positions, negatives, random)
                total += logistic_updates_(self.table, self.output, groups, rates, config.block, "bag").sum()
                pairs += positions.pairs
            yield {**epoch_report(total, pairs), "learning_rate": float(rates[-1])}

    def negatives(self) -> AliasTable:
        """The distribution of negative samples."""
        return AliasTable.of(self.counts.double().pow(self.config.exponent) * (self.counts > 0))

    def groups(self, positions: Positions, negatives: AliasTable, random: torch.Generator) -> Groups:
        """The rows of the word at each position, the words around it, and for each of these its negative samples."""
        around = positions.context
        drawn = negatives.draw(len(positions), around.shape[1] * self.config.negatives, random).int()
        theirs = around.repeat_interleave(self.config.negatives, dim=1)
        outputs = torch.cat((around, torch.where((theirs < 0) | (theirs == drawn), -1, drawn)), dim=1)
        labels = torch.arange(outputs.shape[1], device=outputs.device) < around.shape[1]
        inputs = padded(positions.words, self.rows, self.ends).int()
        return Groups(inputs, outputs, labels.float().expand(outputs.shape))

    def held_out_loss(self, stream: Iterable[Batch]) -> tuple[float, int]:
        """The summed loss of a text, and the number of its pairs; windows are full, negatives always the same."""
        total, pairs, negatives = 0.0, 0, self.negatives()
        for positions, random in windows(text_of(stream, self.vocabulary), self.config.window):
            groups = self.groups(positions, negatives, random)
            total += float(logistic_losses(self.table, self.output, groups, self.config.block, "bag").sum())
            pairs += int(positions.pairs)
        return total, pairs


SIZES: dict[str, dict[str, Any]] = {"tiny": {"dim": 8, "epochs": 2, "block": 4, "buckets": 50}, "base": {}}
"""Named shapes, as changes to the defaults."""

Model = FastText
