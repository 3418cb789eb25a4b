"""N-gram language models: the next word is predicted from the last n − 1 words by smoothed counts.

Estimation of Probabilities from Sparse Data for the Language Model Component of a Speech Recognizer. Katz 1987,
doi:10.1109/TASSP.1987.1165125; An Empirical Study of Smoothing Techniques for Language Modeling. Chen and Goodman 1998;
Large Language Models in Machine Translation. Brants et al. 2007, for stupid back-off.

The baseline of every other language model. Nothing is shared between different histories: most n-grams of a new text
were never seen, the more so the longer they are, and smoothing decides how probable these are.

    p(w | w₁ … wₙ₋₁) = count of w₁ … wₙ₋₁ w / count of w₁ … wₙ₋₁      see layers/ngram_smoothing.py

    text → counts of 1-, 2-, …, n-grams → smoothing → one table of probabilities and back-off weights → lookup

The table is three sorted arrays, searched by binary search; all tokens of a text are looked up in one call. `hidden` is
the history itself, as ids. Conventions are those of KenLM: one `<s>` before a text, which is read and never predicted,
`</s>` after it, and `<unk>` is a word like others.
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
"""The smoothing methods whose scores of all words do not sum to 1."""
USED_BY = {
    "alpha": ("add-k",),
    "weights": ("interpolation",),
    "held_out": ("interpolation",),
    "threshold": ("back-off",),
    "penalty": ("stupid-back-off",),
    "good_turing": ("katz",),
    "min_counts": ("katz", "kneser-ney", "stupid-back-off"),
}
"""The smoothing methods that use an option; options not listed here are used by all."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The order of an n-gram model, and its smoothing."""

    order: int = 3
    """n, the length of the n-grams: n − 1 words are read, the last one is predicted."""
    smoothing: Smoothing = "kneser-ney"
    """The smoothing method, for unseen n-grams; back-off and stupid-back-off give scores, no perplexity."""
    alpha: float = 1.0
    """add-k: the constant that is added to every count."""
    weights: tuple[float, ...] = ()
    """interpolation: weights of the uniform distribution, unigrams, bigrams … n-grams; default: fitted by EM."""
    held_out: float = 0.1
    """interpolation: the fraction of texts that the weights are fitted to."""
    threshold: int = 0
    """back-off: n-grams with at most this count back off to shorter ones."""
    penalty: float = 0.4
    """stupid-back-off: the factor of a score for every word by which the history is shortened."""
    good_turing: int = 7
    """katz: counts up to this one are discounted; higher ones are considered reliable."""
    min_counts: tuple[int, ...] = ()
    """Minimum counts of unigrams, bigrams, … to be kept, starting with 1; the last applies to all longer n-grams."""
    begin: bool = True
    """Whether `<s>` is read before every text; without it a text begins with p(w1) p(w2 | w1)."""

    def __post_init__(self) -> None:
        check_sizes(self, "order", "good_turing", dropouts=())
        self._check_used()
        if not (self.alpha > 0 and math.isfinite(self.alpha)):
            raise ValueError(f"alpha must be above 0, but is {self.alpha}; smoothing = 'mle' adds nothing")
        if self.weights and len(self.weights) != self.order + 1:
            raise ValueError(
                f"weights must be {self.order + 1} numbers for order {self.order}, the first for the uniform "
                f"distribution, but are {len(self.weights)}"
            )
        if self.weights and not (min(self.weights) >= 0 and math.isclose(sum(self.weights), 1, abs_tol=1e-6)):
            raise ValueError(f"weights must not be negative and sum to 1, but are {list(self.weights)}")
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out must be between 0 and 1, but is {self.held_out}")
        if self.threshold < 0:
            raise ValueError(f"threshold must not be negative, but is {self.threshold}")
        if not 0 < self.penalty <= 1:
            raise ValueError(f"penalty must be above 0 and at most 1, but is {self.penalty}")
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
            raise ValueError(f"min_counts must begin with 1 and never decrease, but are {list(least)}")

    def least(self) -> list[int]:
        """The minimum count of n-grams of each order."""
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
        """The length of the history in words."""
        return max(1, self.config.order - 1)

    @property
    def is_probability(self) -> bool:
        """Whether its scores of all words sum to 1; otherwise it only ranks, and has no perplexity."""
        return self.config.smoothing not in SCORERS

    @property
    def signature(self) -> str:
        """The settings besides the text that are needed to reproduce its scores."""
        least = self.config.min_counts
        cut = f"|least:{'-'.join(map(str, least))}" if least else ""
        begin = "<s>" if self.config.begin else "none"
        return f"ngram:{self.config.order}|smoothing:{self.config.smoothing}{cut}|begin:{begin}"

    def forward(self, batch: Batch) -> Float[Tensor, "batch time past"]:
        """The history of every position, as ids in float32, which represents them exactly."""
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
        """The log-probability of every label, 0 at positions without a label; one lookup for the whole batch."""
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
        """The initial state: an empty history."""
        nothing = torch.full((len(batch), self.past), self.vocabulary.pad, device=batch.tokens.device)
        return State(fixed=None, moving=nothing)

    def step(self, tokens: Int[Tensor, "rows time"], state: State) -> tuple[Float[Tensor, "rows time words"], State]:
        """The log-probabilities after each of these tokens; the state is the last words."""
        histories = self.histories(tokens, state.moving)
        return self.output(histories), State(None, torch.cat((state.moving, tokens), dim=1)[:, -self.past :])

    def fit(self, stream: Iterable[Batch]) -> Iterator[Mapping[str, float]]:
        """Count the n-grams of the text and smooth them; reports the number of n-grams kept of every order."""
        if self.config.smoothing == "imported":
            raise UserError("smoothing = 'imported' is for n-grams from a file", todo="mallang import FILE.arpa")
        text = text_of(self.flat(batch) for batch in stream)
        if not len(text.words):
            raise UserError("there is no text to count n-grams in", todo="check data.train")
        counts = count(text, self.config.order, self.vocabulary)
        kept = smoothing.keep_counts(counts, self.config.least())
        notes: dict[str, float] = {}
        match self.config.smoothing:
            case "mle":
                estimate = smoothing.maximum_likelihood(counts)
            case "add-k":
                estimate = smoothing.add_k(counts, self.config.alpha)
            case "interpolation":
                shares, losses = self.shares(text)
                yield from ({"held_out_loss": loss} for loss in losses)
                notes = {f"weight_{i}": weight for i, weight in enumerate(smoothing.weights_of(shares))}
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
                notes = {"orders_too_small_for_discounts": made_up}
        ngrams = estimate.table(counts, kept)
        self.keep(ngrams)
        yield {**{f"{order}_grams": size for order, size in enumerate(ngrams.sizes, start=1)}, **notes}

    def shares(self, text: Text) -> tuple[list[float], list[float]]:
        """The interpolation share of each order in the remaining mass, given or fitted to held-out text; its losses."""
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
        """Load n-grams into the table of the model."""
        device = self.table.keys.device
        self.table.take({name: array.to(device) for name, array in flat_arrays(ngrams, self.table.missing).items()})

    def adopt(self, arrays: Mapping[str, Tensor]) -> None:
        """Use the saved arrays of a run without a copy: of any length, and memory-mapped from disk."""
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
    """The n-grams of a model that is not fitted: random unigrams, and one likelier successor of each word."""
    words, said = len(vocabulary), sayable(vocabulary)
    random = np.random.default_rng(int(torch.randint(2**31, ())))
    probs = np.exp(2 * random.standard_normal(words)) * said
    probs /= probs.sum()
    if order == 1:
        return Ngrams.of(words, [], [probs], [])
    likelier = random.choice(np.flatnonzero(said), words)
    keys, boosted = np.arange(words) * words + likelier, random.uniform(0.3, 0.9, words)
    weights = (1 - boosted) / (1 - probs[likelier])
    none = [np.empty(0)] * (order - 2)
    return Ngrams.of(words, [keys, *(np.empty(0, np.int64) for _ in none)], [probs, boosted, *none],
                     [weights, np.ones(words), *none][: order - 1])  # fmt: skip


SIZES: dict[str, dict[str, Any]] = {"tiny": {"order": 3}, "base": {"order": 5}}
"""Named shapes, as changes to the defaults."""

Model = NGram
