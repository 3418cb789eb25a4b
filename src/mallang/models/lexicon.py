"""Word-by-word translation with IBM model 1: each source word is replaced by its most probable translation.

The Mathematics of Statistical Machine Translation. Brown, Della Pietra, Della Pietra, Mercer 1993, model 1.

The baseline of every later model: it translates words without regard to their order, number or context. Its table
t(target word | source word) is read from a bilingual lexicon, or estimated from sentence pairs by IBM model 1 with EM.
Each target word is aligned to one source word or to the empty word; the alignment is hidden, so the E step computes its
posterior probabilities and the M step normalizes their counts. The likelihood of the text never decreases.

    posterior of source word i for target word j = t(j | i) / Σ_i′ t(j | i′)
    t(target | source) = expected count of the pair / expected count of all pairs with that source word

    source w₁ w₂ … </s>   →   t(· | w₁), t(· | w₂), …, </s>      independent of the tokens generated before

Where this differs from the paper: model 1 was the first step of a translation system that searched its outputs with a
language model; here the table alone translates. The `</s>` that ends every source is the empty word of the paper.
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
"""Word pairs that are collected before duplicates are removed."""
REMEMBERED = 2**28
"""Table indices that are cached from pass to pass: one gigabyte."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The source of the translation table, and its size."""

    file: str | None = None
    """A bilingual lexicon file with one source word and one target word per line; default: estimated from the text."""
    passes: int = 10
    """EM iterations over the text."""
    candidates: int = 32
    """Translations that are kept for every source word: the most probable ones."""
    smoothing: float = 0.5
    """Probability mass that is spread uniformly over the vocabulary, for words that come in another order."""

    def __post_init__(self) -> None:
        check_sizes(self, "passes", "candidates", dropouts=())
        if not 0 < self.smoothing < 1:
            raise ValueError(f"smoothing must be between 0 and 1, but is {self.smoothing}")
        if self.file is not None and self.passes != Config.passes:
            raise ValueError(f"passes = {self.passes} has no effect on a lexicon from a file")


class Lexicon(nn.Module):
    """A translation table, applied to the source from left to right; random until it is fitted."""

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
        """The id of the source word that each position translates, as its hidden vector."""
        source = self.read(batch)
        places = torch.arange(batch.tokens.shape[1], device=source.device).expand(len(batch), -1)
        self.cross_attention(places, batch.source_mask)
        return self.look_up(source, places)

    def read(self, batch: Batch) -> Int[Tensor, "batch source"]:
        """The source, with padding replaced by `</s>`."""
        assert batch.source is not None
        return batch.source.masked_fill(~batch.source_mask, self.source_vocabulary.eos)

    def look_up(
        self, source: Int[Tensor, "sentences source"], places: Int[Tensor, "rows time"]
    ) -> Float[Tensor, "rows time 1"]:
        """The source ids at these positions, as float32, which represents them exactly; `</s>` after the end."""
        folded = places.clamp(max=source.shape[1] - 1).reshape(len(source), -1)
        return source.gather(1, folded).view(*places.shape, 1).float()

    def output(self, hidden: Float[Tensor, "*batch 1"]) -> Float[Tensor, "*batch words"]:
        """The log-probability of every target word."""
        words = hidden[..., 0].long()
        likely = self.probabilities[words].float()  # in a bfloat16 copy too: sums and logarithms stay exact
        nothing = likely.new_zeros(*words.shape, len(self.vocabulary))
        given = nothing.scatter_add_(-1, self.candidates[words], likely)
        return given.mul_(1 - self.config.smoothing).add_(self.config.smoothing / len(self.vocabulary)).log_()

    def start(self, batch: Batch) -> State:
        """Read the source; the next word to translate is the first."""
        source = self.read(batch)
        return State(source, moving=torch.zeros(len(source), dtype=torch.long, device=source.device))

    def step(self, tokens: Int[Tensor, "rows time"], state: State) -> tuple[Float[Tensor, "rows time words"], State]:
        """The translations of the next source words, whatever the tokens are."""
        places = state.moving[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
        return self.output(self.look_up(state.fixed, places)), State(state.fixed, state.moving + tokens.shape[1])

    def fit(self, stream: Iterable[Batch]) -> Iterator[Mapping[str, float]]:
        """Load the lexicon of the file, or estimate one from the text."""
        if self.config.file is not None:
            return self.take(read_lexicon(self.config.file))
        return self.estimate(stream)

    def take(self, entries: list[tuple[str, str]]) -> Iterator[Mapping[str, float]]:
        """Load lexicon entries: all translations of a word get equal probability; case is ignored."""
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
                todo="a line begins with the source word; text.unit=word keeps words whole",
            )
        pairs = torch.tensor(sorted(found), device=self.probabilities.device)
        self.keep(pairs, self.share(pairs, torch.ones(len(pairs), dtype=torch.float64, device=pairs.device)))
        words = len(torch.unique(pairs // len(self.vocabulary)))
        yield {"entries": len(entries), "pairs": len(pairs), "source_words": words}

    def estimate(self, stream: Iterable[Batch]) -> Iterator[Mapping[str, float]]:
        """Estimate IBM model 1 with EM; each pass reports the loss of the table before it, in nats per target word."""
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
        """The pair ids of all source and target words of each sentence, and which of them are not padding."""
        assert batch.source is not None and batch.labels is not None
        target = (batch.labels != self.vocabulary.pad) & (batch.labels != self.vocabulary.eos)
        keys = batch.source[:, :, None] * len(self.vocabulary) + batch.labels[:, None, :]
        return keys, batch.source_mask[:, :, None] & target[:, None, :]

    def pairs_of(self, stream: Iterable[Batch]) -> Int[Tensor, " pairs"]:
        """The ids of all word pairs that occur together in a sentence, sorted."""
        found: list[Tensor] = []
        for batch in stream:
            keys, real = self.links(batch)
            found.append(torch.unique(keys[real]))
            if sum(map(len, found[1:])) > PENDING:
                found = [torch.unique(torch.cat(found))]
        pairs: Tensor = torch.unique(torch.cat(found))
        return pairs

    def share(self, pairs: Int[Tensor, " pairs"], counts: Float[Tensor, " pairs"]) -> Float[Tensor, " pairs"]:
        """Normalize the counts of the pairs of each source word to probabilities."""
        sources = pairs // len(self.vocabulary)
        sums = counts.new_zeros(len(self.source_vocabulary)).index_add_(0, sources, counts)
        return counts / sums[sources].clamp_min(torch.finfo(counts.dtype).tiny)

    def keep(self, pairs: Int[Tensor, " pairs"], table: Float[Tensor, " pairs"]) -> None:
        """Store the most probable translations of every word; ties go to the lower id.

        A word without translations is copied if it is in the target vocabulary, else it becomes `<unk>`.
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
        """Set the only translation of a source word."""
        self.candidates[source], self.probabilities[source] = target, 0.0
        self.probabilities[source, 0] = 1.0


class Found:
    """Table indices of word pairs; those of one pass are cached for the next, within a memory limit."""

    def __init__(self, pairs: Int[Tensor, " pairs"]) -> None:
        self.pairs = pairs
        self.remembered: dict[int, Tensor] = {}
        self.left = REMEMBERED

    def places(self, number: int, keys: Int[Tensor, "batch source time"]) -> Int[Tensor, "batch source time"]:
        """The table indices of a batch's pairs; arbitrary for padding."""
        if number in self.remembered:
            return self.remembered[number].long()
        places = torch.searchsorted(self.pairs, keys).clamp_(max=len(self.pairs) - 1)
        if places.numel() <= self.left:
            self.left -= places.numel()
            self.remembered[number] = places.int()
        return places


class Place(nn.Module):
    """The alignment as attention weights: all weight on the source word that is translated."""

    def __init__(self) -> None:
        super().__init__()
        self.recorders: list[Observer] = []

    def forward(self, places: Int[Tensor, "batch time"], mask: Bool[Tensor, "batch source"]) -> None:
        """Pass the weights to the recorders."""
        if self.recorders:
            aligned = torch.minimum(places, mask.sum(dim=1, keepdim=True) - 1)
            weights = (aligned[:, :, None] == torch.arange(mask.shape[1], device=mask.device)).float()[:, None]
            for recorder in self.recorders:
                recorder(weights.log(), weights)


def expectation(
    likely: Float[Tensor, "batch source time"], real: Bool[Tensor, "batch source time"]
) -> tuple[Float[Tensor, "batch source time"], Float[Tensor, ""]]:
    """The E step: the posterior alignment of every target word, and the log-likelihood of all target words.

    `likely` is t(target | source), 0 for padding. The prior over source words is uniform.
    """
    sums, words = likely.sum(dim=1, keepdim=True), real.sum(dim=1, keepdim=True)
    shares = torch.where(words > 0, likely / sums, 0.0)
    return shares, torch.where(words > 0, (sums / words).log(), 0.0).sum()


def spellings(vocabulary: Vocabulary) -> dict[str, list[int]]:
    """The ids of all tokens that spell a word, regardless of case and of a space before it."""
    found: dict[str, list[int]] = {}
    for number, token in enumerate(vocabulary.tokens):
        if number not in vocabulary.specials:
            found.setdefault(token.removeprefix("▁").casefold(), []).append(number)
    return found


SIZES: dict[str, dict[str, Any]] = {"tiny": {"candidates": 4}, "base": {}}
"""Named shapes, as changes to the defaults."""

Model = Lexicon
