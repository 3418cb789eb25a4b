"""N-gram smoothing: from counts to probabilities and back-off weights.

Every smoothing method yields one table of probabilities and back-off weights:

    p(w | h) = p of (h w), if that is in the table, else weight of h × p(w | h without its first word)

where a history that is not in the table has the weight 1 (`missing` for stupid back-off). c is a count, d the number
of words that can be predicted, h′ is h without its first word.

    mle              c(hw) / c(h), and 0 for the rest
    add-k            (c(hw) + α) / (c(h) + α d), h the n − 1 words before, or fewer if they begin with <s>; else 1 / d
    interpolation    Σ λₙ cₙ(hw) / cₙ(h) over the orders, order 0 being 1 / d
    back-off         c(hw) / c(h) if c(hw) > k, else that of h′: no discount, no weight, so not normalized
    stupid-back-off  c(hw) / c(h) if that is not 0, else 0.4 × that of h′: not normalized either
    katz             d_c × c(hw) / c(h), and what the discounts d_c leave is shared out in proportion to p(w | h′)
    kneser-ney       (a(hw) − D) / a(h) + γ(h) p(w | h′), where a(hw) counts the different words before hw

An n-gram that is pruned for its low count still counts for its history; its probability goes to lower orders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from mallang.data.ngram_counts import Counts
from mallang.data.ngram_text import Text
from mallang.layers.ngram_table import Ngrams

Values = Float64[np.ndarray, " _"]

EPSILON = 3e-6
"""A remaining probability that counts as zero, as in SRILM."""
FALLBACK = (0.0, 0.5, 1.0, 1.5)
"""Discounts of counts 0, 1, 2 and more where a text is too small to estimate them, as in KenLM."""
ROUNDS, ENOUGH = 100, 1e-6
"""The maximum number of EM iterations, and the gain in nats per word below which they end."""


@dataclass(frozen=True)
class Estimate:
    """A probability for each n-gram of every order, from words up, and a weight for each history."""

    probs: Sequence[Values]
    weights: Sequence[Values]
    """Back-off weights of the n-grams of every order but the last, as histories of the next order."""

    def table(self, counts: Counts, kept: Sequence[Bool[np.ndarray, " _"]]) -> Ngrams:
        """The table of the n-grams that are kept, with new indices."""
        keys, numbers = [], np.arange(counts.words)
        for order, flags in zip(counts.orders[1:], kept[1:], strict=True):
            chosen = order.keys[flags]
            keys.append(numbers[chosen // counts.words] * counts.words + chosen % counts.words)
            numbers = np.cumsum(flags) - 1
        kept_probs = [values[flags] for values, flags in zip(self.probs, kept, strict=True)]
        kept_weights = [values[flags] for values, flags in zip(self.weights, kept[:-1], strict=True)]
        return Ngrams.of(counts.words, keys, kept_probs, kept_weights)


def keep_counts(counts: Counts, least: Sequence[int]) -> list[Bool[np.ndarray, " _"]]:
    """Which n-grams are kept: those with at least the minimum count of their order, and all words."""
    words = np.ones(counts.words, dtype=np.bool_)
    return [words, *(order.counts >= low for order, low in zip(counts.orders[1:], least[1:], strict=True))]


def maximum_likelihood(counts: Counts) -> Estimate:
    """Relative frequencies; an unseen history backs off to the next shorter one."""
    weights = [np.where(total > 0, 0.0, 1.0) for total in totals_of(counts)[1:]]
    return Estimate(frequencies(counts), weights)


def add_k(counts: Counts, alpha: float) -> Estimate:
    """Add `alpha` to the count of every word after the longest history; an unseen history gives uniform probabilities.

    Shorter n-grams apply at the start of a text, with `<s>`. All others hold the uniform probability that unseen words
    back off to.
    """
    even, more = uniform(counts), alpha * int(counts.said.sum())
    probs, weights = [even], []
    for order, total, below in zip(counts.orders[1:], totals_of(counts)[1:], counts.orders, strict=False):
        is_last = order is counts.orders[-1]
        smoothed = (order.counts + alpha) / (total + more)[order.parents]
        probs.append(np.where(order.is_first | is_last, smoothed, even[order.keys % counts.words]))
        weights.append(np.where(below.is_first | is_last, more / (total + more), 1.0))
    if not weights:
        words = counts.orders[0].counts
        return Estimate([np.where(counts.said, (words + alpha) / (words.sum() + more), 0.0)], [])
    return Estimate(probs, weights)


def interpolation(counts: Counts, shares: Sequence[float]) -> Estimate:
    """Each order's relative frequency has its share, the order below the rest; `shares` are those of orders from 1."""
    probs: list[Values] = []
    weights = []
    found, totals, below = frequencies(counts), totals_of(counts), uniform(counts)
    for order, frequency, total, share in zip(counts.orders, found, totals, shares, strict=True):
        known = np.where(total > 0, share, 0.0)
        weights.append(1 - known)
        parents = order.parents
        probs.append(
            known[parents] * frequency + (1 - known)[parents] * (probs[-1][order.suffixes] if probs else below)
        )
    return Estimate(probs, weights[1:])


def back_off(counts: Counts, weight: float) -> Estimate:
    """Relative frequencies, and one back-off weight for all histories: unnormalized scores."""
    return Estimate(frequencies(counts), [np.full(len(order), weight) for order in counts.orders[:-1]])


def katz(counts: Counts, kept: Sequence[Bool[np.ndarray, " _"]], most: int) -> Estimate:
    """Good-Turing discounts for counts up to `most`, and weights that make every history's probabilities sum to 1.

    As in SRILM: unigrams are not discounted, and where no probability is left for the unseen words of a history, its
    count is raised by one.
    """
    probs: list[Values] = []
    weights = []
    kinds = int(counts.said.sum())
    for order, flags, total in zip(counts.orders, kept, totals_of(counts), strict=True):
        parents = order.parents
        discounts = good_turing(order.counts, most if probs else 0)
        discounted = order.counts * discounts[np.minimum(order.counts, len(discounts) - 1)] * flags
        given, size = summed(parents, discounted, len(total)), len(total)
        has_more = summed(parents, flags & (order.counts > 0), size) < kinds
        total = total + (has_more & (given > (1 - EPSILON) * total))
        discounted_probs = discounted / np.maximum(total, 1)[parents]
        left = 1 - given / np.maximum(total, 1)
        if not probs:
            probs.append(share_rest(discounted_probs, left[0], counts))
            continue
        below = probs[-1][order.suffixes]
        rest = 1 - summed(parents, below * flags, size)
        is_full = rest < EPSILON  # nothing is left to back off to
        scale = np.where(is_full & (given > 0), total / np.maximum(given, EPSILON), 1.0)
        probs.append(discounted_probs * scale[parents])
        weights.append(np.where(is_full, 1.0, left / np.where(is_full, 1.0, rest)))
    return Estimate(probs, weights)


def share_rest(probs: Values, left: float, counts: Counts) -> Values:
    """Unigram probabilities, with the remaining probability distributed evenly among the unseen words."""
    unseen = counts.said & (probs == 0)
    shared: Values = np.where(unseen, left / unseen.sum(), probs) if unseen.any() else probs / probs.sum()
    return shared


def good_turing(counts: Int64[np.ndarray, " ngrams"], most: int) -> Float64[np.ndarray, " discounts"]:
    """Good-Turing discount ratios for the counts up to `most`, then 1 for all above.

    r* / r = (r + 1) n₍ᵣ₊₁₎ / (r nᵣ), where nᵣ n-grams occur r times, shifted so that counts above `most` are reliable.
    A ratio that is not between 0 and 1 is replaced by 1.
    """
    discounts = np.ones(most + 2)
    tally = np.bincount(np.minimum(counts, most + 2), minlength=most + 3)
    while most and not tally[most + 1]:
        most -= 1
    if most and tally[1]:
        beyond = (most + 1) * tally[most + 1] / tally[1]
        for r in range(1, most + 1):
            if tally[r]:
                ratio = (r + 1) * tally[r + 1] / (r * tally[r])
                discount = (ratio - beyond) / (1 - beyond) if beyond != 1 else 0.0
                if EPSILON < discount <= 1 and ratio <= 1:
                    discounts[r] = discount
    return discounts


def kneser_ney(counts: Counts, kept: Sequence[Bool[np.ndarray, " _"]]) -> tuple[Estimate, int]:
    """Interpolated modified Kneser-Ney as in KenLM's lmplz, and the number of orders with fallback discounts."""
    probs: list[Values] = []
    weights, made_up = [], 0
    for number, (order, flags) in enumerate(zip(counts.orders, kept, strict=True)):
        adjusted = adjusted_counts(counts, number)
        discounts, is_estimated = estimate_discounts(adjusted)
        made_up += not is_estimated
        parents = order.parents
        size = len(counts.orders[number - 1]) if number else 1
        total = summed(parents, adjusted, size)
        off = discounts[np.minimum(adjusted, 3)]
        given_up = summed(parents, np.where(flags, off, adjusted), size)
        gamma = np.where(total > 0, given_up / np.maximum(total, 1), 1.0)
        below = probs[-1][order.suffixes] if probs else uniform(counts)
        probs.append((adjusted - off) * flags / np.maximum(total, 1)[parents] + gamma[parents] * below)
        weights.append(gamma)
    return Estimate(probs, weights[1:]), made_up


def adjusted_counts(counts: Counts, number: int) -> Int64[np.ndarray, " ngrams"]:
    """The counts of the highest order; for lower orders the number of different words before each n-gram.

    Nothing can precede an n-gram that starts with `<s>`: it keeps its count. The start of a text counts as one word.
    """
    order = counts.orders[number]
    if number + 1 == len(counts.orders):
        return order.counts
    longer = counts.orders[number + 1]
    before = np.bincount(longer.suffixes, minlength=len(order)) + order.begins
    return np.where(order.is_first, order.counts, before)


def estimate_discounts(adjusted: Int64[np.ndarray, " ngrams"]) -> tuple[Float64[np.ndarray, " 4"], bool]:
    """Discounts for counts 0, 1, 2 and 3 or more (Chen and Goodman 1998), and whether the text sufficed for them."""
    n = np.bincount(np.minimum(adjusted, 5), minlength=6)
    if not (n[1:4] > 0).all():
        return np.array(FALLBACK), False
    y = n[1] / (n[1] + 2 * n[2])
    found = np.array([0.0, *(i - (i + 1) * y * n[i + 1] / n[i] for i in (1, 2, 3))])
    is_right = bool(((found >= 0) & (found <= (0, 1, 2, 3))).all())
    return (found, True) if is_right else (np.array(FALLBACK), False)


def shares_of(weights: Sequence[float]) -> list[float]:
    """Interpolation weights of the orders from 0 as shares of the orders from 1: the fraction that each order takes of
    what the higher orders leave."""
    up_to = np.cumsum(weights)
    return [float(weight / all_below) if all_below else 1.0 for weight, all_below in zip(weights, up_to, strict=True)][
        1:
    ]


def weights_of(shares: Sequence[float]) -> list[float]:
    """The inverse of `shares_of`, where all histories are known: weights of the orders from 0, which sum to 1."""
    left = np.cumprod([1.0, *(1 - share for share in reversed(shares))])
    return [float(left[-1]), *(float(share * rest) for share, rest in zip(shares, left[-2::-1], strict=True))]


def fit_shares(counts: Counts, held_out: Text) -> tuple[list[float], list[float]]:
    """The shares of the orders from 1 that maximize the likelihood of held-out text, by expectation maximization (EM),
    and its loss in nats per word before each iteration.

    Which order generated a word, from its longest known history down, is a latent variable: the E-step computes its
    posterior, the M-step sets the shares to the expected counts.
    """
    probs, known = looked_up(counts, held_out)
    shares, losses = np.full(probs.shape[1], 0.5), []
    shares[0] = 1.0
    for _ in range(ROUNDS):
        passed = np.where(known, 1 - shares, 1.0)[:, :0:-1].cumprod(axis=1)[:, ::-1]
        reached = np.concatenate((passed, np.ones((len(probs), 1))), axis=1)
        joint = known * shares * reached * probs
        likelihood = joint.sum(axis=1, keepdims=True)
        losses.append(-float(np.log(likelihood).mean()))
        if len(losses) > 1 and losses[-2] - losses[-1] < ENOUGH:
            break
        taken = joint / likelihood
        visits = (known * taken.cumsum(axis=1)).sum(axis=0)
        shares = np.where(visits > 0, taken.sum(axis=0) / np.maximum(visits, EPSILON), shares)
    return [float(share) for share in shares[1:]], losses


def looked_up(
    counts: Counts, text: Text
) -> tuple[Float64[np.ndarray, "words orders"], Bool[np.ndarray, "words orders"]]:
    """For every word of a text, its relative frequency in every order from 0, and which histories are known."""
    words = text.words.astype(np.int64)
    probs = np.zeros((len(words), len(counts.orders) + 1))
    known = np.zeros(probs.shape, dtype=np.bool_)
    found, totals = frequencies(counts), totals_of(counts)
    probs[:, 0], probs[:, 1], known[:, :2] = 1 / counts.said.sum(), found[0][words], True
    ids = words
    for number, order in enumerate(counts.orders[1:], start=1):
        starts = np.flatnonzero(text.places[number:] >= number)
        ends, histories = starts + number, ids[starts]
        keys = histories * counts.words + words[ends]
        at = np.minimum(np.searchsorted(order.keys, keys), len(order) - 1)
        is_found = (order.keys[at] == keys) & (histories >= 0)
        known[ends, number + 1] = (histories >= 0) & (totals[number][histories] > 0)
        probs[ends, number + 1] = np.where(is_found, found[number][at], 0.0)
        ids = np.full(len(words), -1)
        ids[starts] = np.where(is_found, at, -1)
    said = counts.said[words]
    return probs[said], known[said]


def totals_of(counts: Counts) -> list[Values]:
    """The total count of the words after each history, per order: the whole text for order 1, each word for order 2,
    …"""
    sizes = [1, *(len(order) for order in counts.orders)]
    return [summed(order.parents, order.counts, size) for order, size in zip(counts.orders, sizes, strict=False)]


def frequencies(counts: Counts) -> list[Values]:
    """The relative frequency of each n-gram after its history."""
    return [
        order.counts / np.maximum(total, 1)[order.parents]
        for order, total in zip(counts.orders, totals_of(counts), strict=True)
    ]


def uniform(counts: Counts) -> Values:
    """A uniform probability for every word that can be predicted."""
    even: Values = counts.said / counts.said.sum()
    return even


def summed(parents: Int64[np.ndarray, " ngrams"], values: np.ndarray, size: int) -> Values:
    """The sum of the values of each history's n-grams, in float64 even where there are none."""
    return np.bincount(parents, values, size).astype(np.float64)
