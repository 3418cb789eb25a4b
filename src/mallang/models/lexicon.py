"""Word by word: every source word is replaced by its likeliest translation, in the order of the source.

The Mathematics of Statistical Machine Translation. Brown, Della Pietra, Della Pietra, Mercer 1993, model 1.

What every later model is held against: it knows words and nothing of their order, number or neighbors. Its table
t(target word | source word) is read from a bilingual lexicon, or estimated from pairs of sentences by IBM model 1: each
target word was made by one of the source words or by none, which one is not known, so it is shared out among them
(expectation) and the shares are counted (maximization), again and again; the likelihood of the text never falls.

    share of source word i in target word j = t(j | i) / Σ_i′ t(j | i′)
    t(target | source) = its shares, summed over the text / those of all target words for that source word

    source w₁ w₂ … </s>   →   t(· | w₁), t(· | w₂), …, </s>      whatever was said before

Where this differs from the paper: model 1 was the first step of an aligner whose outputs were searched for with a
language model; here the table alone speaks. The `</s>` that ends every source is the empty word of the paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.data.lexicon import read_lexicon
from mallang.errors import UserError
from mallang.layers.attention import Observer
from mallang.layers.cache import State
from mallang.layers.checks import check_sizes
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "Config", "Lexicon", "Model", "expectation"]

TASK = "translation"
PENDING = 2**22
"""Pairs of words that are gathered before those that repeat are dropped."""
REMEMBERED = 2**28
"""Places in the table that are remembered from pass to pass: a gigabyte."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Where the table comes from, and how much of it is kept."""

    file: str | None = None
    """A bilingual lexicon to use, a source word and a target word a line; default: estimated from the text."""
    passes: int = 10
    """Rounds of expectation and maximization over the text."""
    candidates: int = 32
    """Translations that are kept for every source word, the likeliest."""
    smoothing: float = 0.5
    """Share of the probability that is spread evenly over the vocabulary, for words that come in another order."""

    def __post_init__(self) -> None:
        check_sizes(self, "passes", "candidates", dropouts=())
        if not 0 < self.smoothing < 1:
            raise ValueError(f"smoothing must lie between 0 and 1, but is {self.smoothing}")
        if self.file is not None and self.passes != Config.passes:
            raise ValueError(f"passes = {self.passes} has no effect on a lexicon from a file")


class Lexicon(nn.Module):
    """A table of translations, read off from left to right; random until it is fitted."""

    reads_source = True
    candidates: Int[Tensor, "source_words kept"]

    def __init__(self, config: Config, vocabulary: Vocabulary, source_vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary, self.source_vocabulary = config, vocabulary, source_vocabulary
        shape = len(source_vocabulary), config.candidates
        self.register_buffer("candidates", torch.randint(len(vocabulary), shape))
        self.probabilities = nn.Parameter((4 * torch.randn(shape)).softmax(dim=1), requires_grad=False)
        self.cross_attention = Place()
        self.fix(source_vocabulary.eos, vocabulary.eos)
        self.fix(source_vocabulary.unk, vocabulary.unk)

    def forward(self, batch: Batch) -> Float[Tensor, "batch time 1"]:
        """The number of the source word that each position translates: all that is known there."""
        source = self.read(batch)
        places = torch.arange(batch.tokens.shape[1], device=source.device).expand(len(batch), -1)
        self.cross_attention(places, batch.source_mask)
        return self.look_up(source, places)

    def read(self, batch: Batch) -> Int[Tensor, "batch source"]:
        """The source with `</s>` from its end on."""
        assert batch.source is not None
        return batch.source.masked_fill(~batch.source_mask, self.source_vocabulary.eos)

    def look_up(
        self, source: Int[Tensor, "sentences source"], places: Int[Tensor, "rows time"]
    ) -> Float[Tensor, "rows time 1"]:
        """The words at these places, as numbers of float32, which holds them exactly; past the end lies `</s>`."""
        folded = places.clamp(max=source.shape[1] - 1).reshape(len(source), -1)
        return source.gather(1, folded).view(*places.shape, 1).float()

    def output(self, hidden: Float[Tensor, "*batch 1"]) -> Float[Tensor, "*batch words"]:
        """The logarithm of the probability of every target word."""
        words = hidden[..., 0].long()
        likely = self.probabilities[words].float()  # in a bfloat16 copy too: sums and logarithms stay exact
        nothing = likely.new_zeros(*words.shape, len(self.vocabulary))
        given = nothing.scatter_add_(-1, self.candidates[words], likely)
        return given.mul_(1 - self.config.smoothing).add_(self.config.smoothing / len(self.vocabulary)).log_()

    def start(self, batch: Batch) -> State:
        """Read the source; the first word is next."""
        source = self.read(batch)
        return State(source, moving=torch.zeros(len(source), dtype=torch.long, device=source.device))

    def step(self, tokens: Int[Tensor, "rows time"], state: State) -> tuple[Float[Tensor, "rows time words"], State]:
        """The translations of the next source words, whatever the tokens are."""
        places = state.moving[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
        return self.output(self.look_up(state.fixed, places)), State(state.fixed, state.moving + tokens.shape[1])

    def fit(self, stream: Iterable[Batch]) -> Iterator[Mapping[str, float]]:
        """Take the lexicon of the file, or estimate one from the text."""
        if self.config.file is not None:
            return self.take(read_lexicon(self.config.file))
        return self.estimate(stream)

    def take(self, entries: list[tuple[str, str]]) -> Iterator[Mapping[str, float]]:
        """All translations of a word are equally likely; capitals and small letters are the same word."""
        known = [spellings(vocabulary) for vocabulary in (self.source_vocabulary, self.vocabulary)]
        found = {
            source * len(self.vocabulary) + target
            for pair in entries
            for source in known[0].get(pair[0].casefold(), ())
            for target in known[1].get(pair[1].casefold(), ())
        }
        if not found:
            raise UserError(
                f"none of the {len(entries)} entries has both its words in the vocabularies",
                where=self.config.file,
                todo="the first word of a line is of the source; text.unit=word keeps words whole",
            )
        pairs = torch.tensor(sorted(found), device=self.probabilities.device)
        self.keep(pairs, self.share(pairs, torch.ones(len(pairs), dtype=torch.float64, device=pairs.device)))
        words = len(torch.unique(pairs // len(self.vocabulary)))
        yield {"entries": len(entries), "pairs": len(pairs), "source_words": words}

    def estimate(self, stream: Iterable[Batch]) -> Iterator[Mapping[str, float]]:
        """IBM model 1; what is told of each pass is the loss of the table before it, in nats per target word."""
        pairs = self.pairs_of(stream)
        table = self.share(pairs, torch.ones(len(pairs), dtype=torch.float64, device=pairs.device))
        found = Found(pairs)
        for _ in range(self.config.passes):
            counts, loss, said = torch.zeros_like(table), 0.0, 0
            for number, batch in enumerate(stream):
                keys, real = self.links(batch)
                places = found.places(number, keys)
                shares, likelihood = expectation(table[places] * real, real)
                counts.index_add_(0, places.flatten(), shares.flatten())
                loss -= float(likelihood)
                said += int(real.any(dim=1).sum())
            table = self.share(pairs, counts)
            yield {"loss": loss / max(1, said), "pairs": len(pairs)}
        self.keep(pairs, table)

    def links(self, batch: Batch) -> tuple[Int[Tensor, "batch source time"], Bool[Tensor, "batch source time"]]:
        """For every source and target word of a sentence the number of their pair, and which of them are real."""
        assert batch.source is not None and batch.labels is not None
        target = (batch.labels != self.vocabulary.pad) & (batch.labels != self.vocabulary.eos)
        keys = batch.source[:, :, None] * len(self.vocabulary) + batch.labels[:, None, :]
        return keys, batch.source_mask[:, :, None] & target[:, None, :]

    def pairs_of(self, stream: Iterable[Batch]) -> Int[Tensor, " pairs"]:
        """The numbers of all pairs of words that occur in one sentence, sorted."""
        found: list[Tensor] = []
        for batch in stream:
            keys, real = self.links(batch)
            found.append(torch.unique(keys[real]))
            if sum(map(len, found[1:])) > PENDING:
                found = [torch.unique(torch.cat(found))]
        pairs: Tensor = torch.unique(torch.cat(found))
        return pairs

    def share(self, pairs: Int[Tensor, " pairs"], counts: Float[Tensor, " pairs"]) -> Float[Tensor, " pairs"]:
        """The counts of the pairs of each source word, divided by their sum."""
        sources = pairs // len(self.vocabulary)
        sums = counts.new_zeros(len(self.source_vocabulary)).index_add_(0, sources, counts)
        return counts / sums[sources].clamp_min(torch.finfo(counts.dtype).tiny)

    def keep(self, pairs: Int[Tensor, " pairs"], table: Float[Tensor, " pairs"]) -> None:
        """Put the likeliest translations of every word into the model; of equal ones those of lower number.

        A word without any stands for itself where the target knows it, else it is unknown.
        """
        itself = torch.tensor([self.vocabulary.id(token) for token in self.source_vocabulary.tokens])
        self.candidates.copy_(itself[:, None].expand_as(self.candidates))
        self.probabilities.zero_()[:, 0] = 1.0
        order = table.argsort(descending=True, stable=True)
        order = order[(pairs[order] // len(self.vocabulary)).argsort(stable=True)]
        sources, targets = pairs[order] // len(self.vocabulary), pairs[order] % len(self.vocabulary)
        first = torch.searchsorted(sources, sources)  # where the row of each source word begins
        rank = torch.arange(len(pairs), device=pairs.device) - first
        chosen = rank < self.config.candidates
        self.probabilities[sources] = 0.0
        self.candidates[sources[chosen], rank[chosen]] = targets[chosen]
        self.probabilities[sources[chosen], rank[chosen]] = table[order][chosen].float()
        self.fix(self.source_vocabulary.eos, self.vocabulary.eos)
        self.fix(self.source_vocabulary.unk, self.vocabulary.unk)

    def fix(self, source: int, target: int) -> None:
        """Let a source word have one translation."""
        self.candidates[source], self.probabilities[source] = target, 0.0
        self.probabilities[source, 0] = 1.0


class Found:
    """Where pairs lie in the table; what was looked up in one pass is remembered for the next, as memory allows."""

    def __init__(self, pairs: Int[Tensor, " pairs"]) -> None:
        self.pairs = pairs
        self.remembered: dict[int, Tensor] = {}
        self.left = REMEMBERED

    def places(self, number: int, keys: Int[Tensor, "batch source time"]) -> Int[Tensor, "batch source time"]:
        """The places of a batch's pairs; of what is no pair, any place."""
        if number in self.remembered:
            return self.remembered[number].long()
        places = torch.searchsorted(self.pairs, keys).clamp_(max=len(self.pairs) - 1)
        if places.numel() <= self.left:
            self.left -= places.numel()
            self.remembered[number] = places.int()
        return places


class Place(nn.Module):
    """Which source word each output translates, told as attention is: one word gets all of the weight."""

    def __init__(self) -> None:
        super().__init__()
        self.recorders: list[Observer] = []

    def forward(self, places: Int[Tensor, "batch time"], mask: Bool[Tensor, "batch source"]) -> None:
        """Tell the recorders."""
        if self.recorders:
            looked = torch.minimum(places, mask.sum(dim=1, keepdim=True) - 1)
            weights = (looked[:, :, None] == torch.arange(mask.shape[1], device=mask.device)).float()[:, None]
            for recorder in self.recorders:
                recorder(weights.log(), weights)


def expectation(
    likely: Float[Tensor, "batch source time"], real: Bool[Tensor, "batch source time"]
) -> tuple[Float[Tensor, "batch source time"], Float[Tensor, ""]]:
    """How much of every target word each source word has made, and the log-likelihood of all target words.

    `likely` is t(target | source), 0 where there is no word. Every source word is as likely as another to speak.
    """
    sums, words = likely.sum(dim=1, keepdim=True), real.sum(dim=1, keepdim=True)
    shares = torch.where(words > 0, likely / sums, 0.0)
    return shares, torch.where(words > 0, (sums / words).log(), 0.0).sum()


def spellings(vocabulary: Vocabulary) -> dict[str, list[int]]:
    """The numbers of all tokens that spell a word, whatever its capitals and whether a space lies before it."""
    found: dict[str, list[int]] = {}
    for number, token in enumerate(vocabulary.tokens):
        if number not in vocabulary.specials:
            found.setdefault(token.removeprefix("▁").casefold(), []).append(number)
    return found


SIZES: dict[str, dict[str, Any]] = {"tiny": {"candidates": 4}, "base": {}}
"""Named shapes, as changes to the defaults."""

Model = Lexicon
