"""What word vectors learn from: every word of a text with the words around it, and negative samples.

    text        the quick brown fox jumps           lines as one row of words, special tokens left out
    subsampled  quick brown fox jumps               frequent words are left out at random (Mikolov et al. 2013b)
    windows     brown: quick fox jumps              at most 1 … window words to each side, drawn for every position

All random numbers of a chunk of the text come from the key (seed, epoch, chunk): they do not depend on what ran before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64, Int, Int32, Int64
from torch import Tensor

from mallang.data.batch import Batch
from mallang.errors import UserError
from mallang.kernels.word_vectors import words_at_once
from mallang.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class WordText:
    """The words of all lines, one after the other, and the number of each word's line."""

    words: Int32[Tensor, " words"]
    lines: Int32[Tensor, " words"]

    def __len__(self) -> int:
        return len(self.words)

    def counts(self, vocabulary: Vocabulary) -> Int64[Tensor, " vocabulary"]:
        """How often each word occurs."""
        return torch.bincount(self.words, minlength=len(vocabulary))


def text_of(stream: Iterable[Batch], vocabulary: Vocabulary) -> WordText:
    """The text of batches, without special tokens: `<unk>`, too, is left out, as word2vec leaves out rare words."""
    words, lines, before = [torch.empty(0, dtype=torch.int32)], [torch.empty(0, dtype=torch.int32)], 0
    specials = torch.tensor(sorted(vocabulary.specials))
    for batch in stream:
        specials = specials.to(batch.tokens.device)
        kept = batch.mask & ~torch.isin(batch.tokens, specials)
        words.append(batch.tokens[kept].int())
        lines.append((before + kept.nonzero()[:, 0]).int())
        before += len(batch)
    device = words[-1].device
    return WordText(torch.cat([part.to(device) for part in words]), torch.cat([part.to(device) for part in lines]))


@dataclass(frozen=True)
class Positions:
    """Positions of a text: the word at each, and the words around it."""

    words: Int32[Tensor, " positions"]
    context: Int32[Tensor, "positions width"]
    """Left to right; −1 where the window does not reach."""
    lines: Int32[Tensor, " positions"]
    begin: int
    """Where in the text this chunk begins."""
    end: int

    def __len__(self) -> int:
        return len(self.words)

    @property
    def pairs(self) -> Int64[Tensor, ""]:
        """The number of context words of all positions."""
        return (self.context >= 0).sum()


def windows(
    text: WordText,
    window: int,
    keep: Float[Tensor, " vocabulary"] | None = None,
    key: tuple[int, ...] | None = None,
) -> Iterator[tuple[Positions, torch.Generator]]:
    """The positions of a text, chunk by chunk, each with a generator for further random numbers.

    With a `key`, windows have random sizes, and each word is kept with its probability in `keep`. Without one, they are
    as large as can be, and nothing is left out. A window ends where its chunk ends.
    """
    chunk = words_at_once(text.words.device)
    for number, begin in enumerate(range(0, len(text), chunk)):
        words, lines = text.words[begin : begin + chunk], text.lines[begin : begin + chunk]
        end, random = begin + len(words), generator(words.device, *(key or ()), number)
        if keep is not None and key is not None:
            kept = torch.rand(len(words), generator=random, device=words.device) < keep[words]
            words, lines = words[kept], lines[kept]
        if not len(words):
            continue
        context, theirs = (
            F.pad(row, (window, window), value=-1).unfold(0, 2 * window + 1, 1) for row in (words, lines)
        )
        there = theirs == lines[:, None]
        there[:, window] = False
        if key is not None:
            reach = torch.randint(1, window + 1, (len(words), 1), generator=random, device=words.device)
            there &= torch.arange(-window, window + 1, device=words.device).abs() <= reach
        around = torch.where(there, context, -1)
        sides = torch.cat((around[:, :window], around[:, window + 1 :]), dim=1)
        yield Positions(words, sides, lines, begin, end), random


def generator(device: torch.device, *key: int) -> torch.Generator:
    """Random numbers that depend on these numbers and on the kind of device alone."""
    seed = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0]) >> 1
    return torch.Generator(device).manual_seed(seed)


def keep_probability(counts: Int64[Tensor, " vocabulary"], threshold: float) -> Float[Tensor, " vocabulary"] | None:
    """The probability that subsampling keeps each word, as in the code of word2vec; None: all are kept.

    With f, the frequency of a word, and t, the threshold, it is √(t / f) + t / f, and 1 at most.
    """
    if not threshold:
        return None
    ratio = threshold * counts.sum() / counts.clamp_min(1).double()
    return (ratio.sqrt() + ratio).clamp_max(1.0).float()


@dataclass(frozen=True)
class AliasTable:
    """Draws from a discrete distribution in constant time (Walker 1977): a column at random, then one of its two."""

    threshold: Float64[Tensor, " columns"]
    alias: Int64[Tensor, " columns"]

    @classmethod
    def of(cls, weights: Float64[Tensor, " columns"]) -> AliasTable:
        """The table of a distribution that is proportional to these weights."""
        threshold, alias = alias_table(weights.cpu().numpy())
        return cls(torch.from_numpy(threshold).to(weights.device), torch.from_numpy(alias).to(weights.device))

    def draw(self, rows: int, columns: int, random: torch.Generator) -> Int64[Tensor, "rows columns"]:
        """Random numbers of this distribution."""
        device = self.threshold.device
        place = torch.rand(rows, columns, dtype=torch.float64, generator=random, device=device) * len(self.alias)
        column = place.long()
        return torch.where(place - column < self.threshold[column], column, self.alias[column])

    def probabilities(self) -> Float64[Tensor, " columns"]:
        """The distribution that it draws from."""
        own = self.threshold / len(self.alias)
        return own.index_add(0, self.alias, 1 / len(self.alias) - own)


def alias_table(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The probability of each column's own number, and the other number that fills the rest of the column."""
    height = weights * (len(weights) / weights.sum())
    threshold, alias = np.ones(len(weights)), np.arange(len(weights))
    low, high = list(np.flatnonzero(height < 1)[::-1]), list(np.flatnonzero(height >= 1)[::-1])
    while low and high:
        short, tall = low.pop(), high[-1]
        threshold[short], alias[short] = height[short], tall
        height[tall] -= 1 - height[short]
        if height[tall] < 1:
            low.append(high.pop())
    return threshold, alias


def learning_rates(
    positions: Positions, block: int, epoch: int, epochs: int, words: int, span: tuple[float, float]
) -> Float[Tensor, " blocks"]:
    """The learning rate of every block: from the first of `span` to the last, linearly in the words read."""
    blocks = -(-len(positions) // block)
    share = torch.arange(blocks, dtype=torch.float64) * block / max(1, len(positions))
    read = epoch * words + positions.begin + share * (positions.end - positions.begin)
    return (span[0] + (span[1] - span[0]) * read / (epochs * words)).float()


def epoch_report(total: Float64[Tensor, ""], predicted: Float64[Tensor, ""]) -> dict[str, float]:
    """The mean loss of an epoch and the number of its predictions; an error if the vectors are not finite any more."""
    loss = float(total) / max(1.0, float(predicted))
    if not math.isfinite(loss):
        raise UserError(
            "the word vectors have diverged: their loss is no longer a number",
            todo="a lower model.learning_rate or a smaller model.block",
        )
    return {"loss": loss, "predictions": int(predicted)}


def padded(rows: Int[Tensor, " rows"], table: Int[Tensor, " flat"], ends: Int64[Tensor, " owners"]) -> Tensor:
    """The entries that belong to each of these rows, padded with −1; those of row r end at ends[r] of the table."""
    first = F.pad(ends, (1, 0))[:-1]
    sizes = (ends - first)[rows]
    places = torch.arange(int(sizes.max()) if len(sizes) else 0, device=rows.device)
    inside = places < sizes[:, None]
    return torch.where(inside, table[(first[rows][:, None] + places).clamp_max(max(0, len(table) - 1))], -1)
