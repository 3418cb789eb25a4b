"""N-grams: the last n − 1 words say which one comes next, by how often it came after them before.

Estimation of Probabilities from Sparse Data for the Language Model Component of a Speech Recognizer. Katz 1987,
doi:10.1109/TASSP.1987.1165125; An Empirical Study of Smoothing Techniques for Language Modeling. Chen and Goodman 1998;
Large Language Models in Machine Translation. Brants et al. 2007, for stupid back-off.

What every other language model is held against. Nothing is shared between histories that are not the same words: most
n-grams that a new text has were never seen, the more so the longer they are, and what becomes of them is all the art.

    p(w | w₁ … wₙ₋₁) = count of w₁ … wₙ₋₁ w / count of w₁ … wₙ₋₁      see layers/ngram_smoothing.py

    text → counts of 1-, 2-, …, n-grams → smoothing → one table of probabilities and back-off weights → looked up

The table is three sorted arrays, found by binary search; a text of so many tokens is looked up all at once. `hidden` is
the history itself, as numbers. Conventions are those of KenLM: one `<s>` before a text, which is read and never said,
`</s>` after it, and `<unk>` a word like others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.data.ngram_counts import count, sayable
from mallang.data.ngram_text import Flat, Text, flatten, text_of
from mallang.errors import UserError
from mallang.layers import ngram_smoothing as smoothing
from mallang.layers.cache import State
from mallang.layers.checks import check_sizes
from mallang.layers.ngram_table import Ngrams, Table, flat_arrays
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "Config", "Model", "NGram"]

TASK = "language_modeling"
Smoothing = Literal["mle", "add-k", "interpolation", "back-off", "stupid-back-off", "katz", "kneser-ney", "imported"]
SCORERS = ("back-off", "stupid-back-off")
"""What gives scores whose sum over all words is not 1."""
USED_BY = {
    "alpha": ("add-k",),
    "weights": ("interpolation",),
    "held_out": ("interpolation",),
    "threshold": ("back-off",),
    "penalty": ("stupid-back-off",),
    "good_turing": ("katz",),
    "min_counts": ("katz", "kneser-ney", "stupid-back-off"),
}
"""The smoothings that read an option; options not named here are read by all."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """How many words an n-gram has, and what becomes of those that were never seen."""

    order: int = 3
    """n: that many words make an n-gram; n − 1 are read, the last one is predicted."""
    smoothing: Smoothing = "kneser-ney"
    """What becomes of n-grams that the text does not have; back-off and stupid-back-off give scores, no perplexity."""
    alpha: float = 1.0
    """add-k: how often more than it was every word is counted."""
    weights: tuple[float, ...] = ()
    """interpolation: weights of equally likely words, of words, of pairs … up to n-grams; none: fitted by EM."""
    held_out: float = 0.1
    """interpolation: the share of texts that the weights are fitted to."""
    threshold: int = 0
    """back-off: n-grams that occur no more than so many times are left to shorter ones."""
    penalty: float = 0.4
    """stupid-back-off: what a score is multiplied by for every word that the history is shortened by."""
    good_turing: int = 7
    """katz: counts up to this one are discounted; those above are taken to be reliable."""
    min_counts: tuple[int, ...] = ()
    """How often words, pairs, … must occur to be kept, from 1 up; the last holds for all longer ones too."""
    begin: bool = True
    """Whether `<s>` is read before every text; without it a text begins with p(w1) p(w2 | w1)."""

    def __post_init__(self) -> None:
        check_sizes(self, "order", "good_turing", dropouts=())
        self._check_used()
        if not (self.alpha > 0 and math.isfinite(self.alpha)):
            raise ValueError(f"alpha must be above 0, but is {self.alpha}; smoothing = 'mle' adds nothing")
        if self.weights and len(self.weights) != self.order + 1:
            raise ValueError(
                f"weights must be {self.order + 1} numbers for order {self.order}, the first for equally likely words, "
                f"but are {len(self.weights)}"
            )
        if self.weights and not (min(self.weights) >= 0 and math.isclose(sum(self.weights), 1, abs_tol=1e-6)):
            raise ValueError(f"weights must not be negative and sum to 1, but are {list(self.weights)}")
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out must lie between 0 and 1, but is {self.held_out}")
        if self.threshold < 0:
            raise ValueError(f"threshold must not be negative, but is {self.threshold}")
        if not 0 < self.penalty <= 1:
            raise ValueError(f"penalty must lie above 0 and at most at 1, but is {self.penalty}")
        self._check_min_counts()

    def _check_used(self) -> None:
        for field in fields(self):
            names = USED_BY.get(field.name)
            if names and self.smoothing not in names and getattr(self, field.name) != field.default:
                raise ValueError(
                    f"{field.name} = {getattr(self, field.name)} has no effect on smoothing = {self.smoothing!r}; "
                    f"it is for {', '.join(names)}"
                )
        if self.weights and self.held_out != Config.held_out:
            raise ValueError(f"held_out = {self.held_out} has no effect on weights that are given")

    def _check_min_counts(self) -> None:
        least = self.min_counts
        if len(least) > self.order:
            raise ValueError(f"min_counts are {len(least)}, more than the order {self.order}")
        if least and (least[0] != 1 or list(least) != sorted(least)):
            raise ValueError(f"min_counts must begin with 1 and never fall, but are {list(least)}")

    def least(self) -> list[int]:
        """How often n-grams of each order must occur."""
        given = self.min_counts or (1,)
        return [*given, *[given[-1]] * (self.order - len(given))]


class NGram(nn.Module):
    """A table of n-grams; random until it is fitted."""

    reads_source = False

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        missing = math.log(config.penalty) if config.smoothing == "stupid-back-off" else 0.0
        self.table = Table(random_ngrams(config.order, vocabulary), missing)

    @property
    def past(self) -> int:
        """How many words are read."""
        return max(1, self.config.order - 1)

    @property
    def is_probability(self) -> bool:
        """Whether what it says of all words sums to 1: else it ranks words and texts, and has no perplexity."""
        return self.config.smoothing not in SCORERS

    @property
    def signature(self) -> str:
        """What must be known besides the text to get the same numbers."""
        least = self.config.min_counts
        cut = f"|least:{'-'.join(map(str, least))}" if least else ""
        begin = "<s>" if self.config.begin else "none"
        return f"ngram:{self.config.order}|smoothing:{self.config.smoothing}{cut}|begin:{begin}"

    def forward(self, batch: Batch) -> Float[Tensor, "batch time past"]:
        """The history of every position, as numbers of float32, which holds them exactly."""
        return self.histories(batch.tokens, self.start(batch).moving)

    def histories(
        self, tokens: Int[Tensor, "rows time"], before: Int[Tensor, "rows past"]
    ) -> Float[Tensor, "rows time past"]:
        """The words before each next one; `<pad>` where there are none."""
        seen = torch.cat((before, tokens), dim=1)
        if not self.config.begin:
            seen = torch.where(seen == self.vocabulary.bos, self.vocabulary.pad, seen)
        return seen.unfold(1, self.past, 1)[:, 1:].float()

    def output(self, hidden: Float[Tensor, "*batch past"]) -> Float[Tensor, "*batch words"]:
        """The log-probability of every word."""
        return self.table.next_words(hidden.flatten(0, -2).long()).view(*hidden.shape[:-1], -1)

    def token_log_probs(self, batch: Batch) -> Float[Tensor, "batch time"]:
        """The log-probability of every label, 0 where none is asked for; all of a batch at once."""
        assert batch.labels is not None
        flat = self.flat(batch)
        found = self.table.log_probs.new_zeros(batch.labels.shape)
        found[batch.labels != self.vocabulary.pad] = self.table.score(flat.words, flat.places)[flat.labels]
        return found

    def flat(self, batch: Batch) -> Flat:
        """The texts of a batch as one row of words."""
        assert batch.labels is not None
        return flatten(batch.tokens, batch.labels, batch.mask, self.vocabulary, begin=self.config.begin)

    def start(self, batch: Batch) -> State:
        """No word was read."""
        nothing = torch.full((len(batch), self.past), self.vocabulary.pad, device=batch.tokens.device)
        return State(fixed=None, moving=nothing)

    def step(self, tokens: Int[Tensor, "rows time"], state: State) -> tuple[Float[Tensor, "rows time words"], State]:
        """Read on: all that is remembered are the last words."""
        histories = self.histories(tokens, state.moving)
        return self.output(histories), State(None, torch.cat((state.moving, tokens), dim=1)[:, -self.past :])

    def fit(self, stream: Iterable[Batch]) -> Iterator[Mapping[str, float]]:
        """Count the n-grams of the text and smooth them; told are the n-grams of every order that are kept."""
        if self.config.smoothing == "imported":
            raise UserError("smoothing = 'imported' is for n-grams from a file", todo="mallang import FILE.arpa")
        text = text_of(self.flat(batch) for batch in stream)
        if not len(text.words):
            raise UserError("there is no text to count n-grams in", todo="look at what data.train names")
        counts = count(text, self.config.order, self.vocabulary)
        kept = smoothing.keep_counts(counts, self.config.least())
        told: dict[str, float] = {}
        match self.config.smoothing:
            case "mle":
                estimate = smoothing.maximum_likelihood(counts)
            case "add-k":
                estimate = smoothing.add_k(counts, self.config.alpha)
            case "interpolation":
                shares, losses = self.shares(text)
                yield from ({"held_out_loss": loss} for loss in losses)
                told = {f"weight_{i}": weight for i, weight in enumerate(smoothing.weights_of(shares))}
                estimate = smoothing.interpolation(counts, shares)
            case "back-off":
                kept = smoothing.keep_counts(counts, [self.config.threshold + 1] * self.config.order)
                estimate = smoothing.back_off(counts, 1.0)
            case "stupid-back-off":
                estimate = smoothing.back_off(counts, self.config.penalty)
            case "katz":
                estimate = smoothing.katz(counts, kept, self.config.good_turing)
            case _:
                estimate, made_up = smoothing.kneser_ney(counts, kept)
                told = {"orders_too_small_for_discounts": made_up}
        ngrams = estimate.table(counts, kept)
        self.keep(ngrams)
        yield {**{f"{order}_grams": size for order, size in enumerate(ngrams.sizes, start=1)}, **told}

    def shares(self, text: Text) -> tuple[list[float], list[float]]:
        """How much of what is left to it each order takes, as given or as held-out text likes best; its losses."""
        if self.config.weights:
            return smoothing.shares_of(self.config.weights), []
        rest, held_out = text.split(self.config.held_out)
        if not len(held_out.words) or not len(rest.words):
            raise UserError(
                f"model.held_out = {self.config.held_out} of the text leaves nothing to fit weights to, or to count",
                todo="give more text, or model.weights",
            )
        return smoothing.fit_shares(count(rest, self.config.order, self.vocabulary), held_out)

    def keep(self, ngrams: Ngrams) -> None:
        """Put a table into the model."""
        device = self.table.keys.device
        self.table.take({name: array.to(device) for name, array in flat_arrays(ngrams, self.table.missing).items()})

    def adopt(self, arrays: Mapping[str, Tensor]) -> None:
        """Use the saved arrays of a run where they lie: as long as the text made them, and mapped from the disk."""
        own = {name.removeprefix("table."): array for name, array in arrays.items()}
        if set(own) != {"keys", "log_probs", "backoffs", "sizes"}:
            raise ValueError(f"a table of n-grams has keys, log_probs, backoffs and sizes, not {', '.join(own)}")
        self.table.take(own)
        if (self.table.words, self.table.order) != (len(self.vocabulary), self.config.order):
            raise ValueError(
                f"the table is for {self.table.words} words and order {self.table.order}, "
                f"the model for {len(self.vocabulary)} and {self.config.order}"
            )


def random_ngrams(order: int, vocabulary: Vocabulary) -> Ngrams:
    """What a model says before it is fitted: random words, and after each of them one that is likelier."""
    words, said = len(vocabulary), sayable(vocabulary)
    random = np.random.default_rng(int(torch.randint(2**31, ())))
    probs = np.exp(2 * random.standard_normal(words)) * said
    probs /= probs.sum()
    if order == 1:
        return Ngrams.of(words, [], [probs], [])
    likelier = random.choice(np.flatnonzero(said), words)
    keys, told = np.arange(words) * words + likelier, random.uniform(0.3, 0.9, words)
    weights = (1 - told) / (1 - probs[likelier])
    none = [np.empty(0)] * (order - 2)
    return Ngrams.of(words, [keys, *(np.empty(0, np.int64) for _ in none)], [probs, told, *none],
                     [weights, np.ones(words), *none][: order - 1])  # fmt: skip


SIZES: dict[str, dict[str, Any]] = {"tiny": {"order": 3}, "base": {"order": 5}}
"""Named shapes, as changes to the defaults."""

Model = NGram
