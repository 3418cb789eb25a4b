"""From counts to probabilities: what becomes of n-grams that a text does not have.

Whatever the smoothing, it ends as one table of probabilities and back-off weights:

    p(w | h) = p of (h w), if that is in the table, else weight of h × p(w | h without its first word)

where a history that is not in the table has the weight 1 (`missing` for stupid back-off). c is a count, d the number
of words that can be said, h′ is h without its first word.

    mle              c(hw) / c(h), and nothing for the rest
    add-k            (c(hw) + α) / (c(h) + α d), h the n − 1 words before, or fewer if they begin with <s>; else 1 / d
    interpolation    Σ λₙ cₙ(hw) / cₙ(h) over the orders, order 0 being 1 / d
    back-off         c(hw) / c(h) if c(hw) > k, else that of h′: no discount, no weight, so no probability
    stupid-back-off  c(hw) / c(h) if that is not 0, else 0.4 × that of h′: no probability either
    katz             d_c × c(hw) / c(h), and what the discounts d_c leave is shared out in proportion to p(w | h′)
    kneser-ney       (a(hw) − D) / a(h) + γ(h) p(w | h′), where a(hw) counts the different words before hw

An n-gram that is dropped for its low count still counts for its history, and leaves its probability to shorter ones.
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
"""A probability that counts as nothing left, as in SRILM."""
FALLBACK = (0.0, 0.5, 1.0, 1.5)
"""Discounts of counts 0, 1, 2 and more where a text is too small to estimate them, as in KenLM."""
ROUNDS, ENOUGH = 100, 1e-6
"""The most rounds of expectation and maximization, and the gain in nats per word at which they end."""


@dataclass(frozen=True)
class Estimate:
    """A probability for each n-gram of every order, from words up, and a weight for each history."""

    probs: Sequence[Values]
    weights: Sequence[Values]
    """Of the n-grams of every order but the last, as histories of the next."""

    def table(self, counts: Counts, kept: Sequence[Bool[np.ndarray, " _"]]) -> Ngrams:
        """The n-grams that are kept, numbered again."""
        keys, numbers = [], np.arange(counts.words)
        for order, flags in zip(counts.orders[1:], kept[1:], strict=True):
            chosen = order.keys[flags]
            keys.append(numbers[chosen // counts.words] * counts.words + chosen % counts.words)
            numbers = np.cumsum(flags) - 1
        kept_probs = [values[flags] for values, flags in zip(self.probs, kept, strict=True)]
        kept_weights = [values[flags] for values, flags in zip(self.weights, kept[:-1], strict=True)]
        return Ngrams.of(counts.words, keys, kept_probs, kept_weights)


def keep_counts(counts: Counts, least: Sequence[int]) -> list[Bool[np.ndarray, " _"]]:
    """Which n-grams are kept: those with at least the count of their order; of words, all."""
    words = np.ones(counts.words, dtype=np.bool_)
    return [words, *(order.counts >= low for order, low in zip(counts.orders[1:], least[1:], strict=True))]


def maximum_likelihood(counts: Counts) -> Estimate:
    """Relative frequencies; a history that was never seen leaves the word to the one it ends with."""
    weights = [np.where(total > 0, 0.0, 1.0) for total in totals_of(counts)[1:]]
    return Estimate(frequencies(counts), weights)


def add_k(counts: Counts, alpha: float) -> Estimate:
    """Every word counted `alpha` times more after the longest history there is; one never seen tells nothing.

    Shorter n-grams are looked at where a text begins, with `<s>`. All others are what unseen words back off to: even.
    """
    even, more = uniform(counts), alpha * int(counts.said.sum())
    probs, weights = [even], []
    for order, total, below in zip(counts.orders[1:], totals_of(counts)[1:], counts.orders, strict=False):
        is_last = order is counts.orders[-1]
        told = (order.counts + alpha) / (total + more)[order.parents]
        probs.append(np.where(order.is_first | is_last, told, even[order.keys % counts.words]))
        weights.append(np.where(below.is_first | is_last, more / (total + more), 1.0))
    if not weights:
        words = counts.orders[0].counts
        return Estimate([np.where(counts.said, (words + alpha) / (words.sum() + more), 0.0)], [])
    return Estimate(probs, weights)


def interpolation(counts: Counts, shares: Sequence[float]) -> Estimate:
    """Each order's frequency has its share, the rest is left to the order below; shares are those of orders 1 up."""
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
    """Relative frequencies, and the same weight for every history: scores, no probabilities."""
    return Estimate(frequencies(counts), [np.full(len(order), weight) for order in counts.orders[:-1]])


def katz(counts: Counts, kept: Sequence[Bool[np.ndarray, " _"]], most: int) -> Estimate:
    """Good-Turing discounts for counts up to `most`, and weights that make every history's probabilities sum to 1.

    As in SRILM: words are not discounted, and where nothing is left for what a history has not had, its count is
    raised by one.
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
        told = discounted / np.maximum(total, 1)[parents]
        left = 1 - given / np.maximum(total, 1)
        if not probs:
            probs.append(share_rest(told, left[0], counts))
            continue
        below = probs[-1][order.suffixes]
        rest = 1 - summed(parents, below * flags, size)
        is_full = rest < EPSILON  # nothing is left to back off to
        scale = np.where(is_full & (given > 0), total / np.maximum(given, EPSILON), 1.0)
        probs.append(told * scale[parents])
        weights.append(np.where(is_full, 1.0, left / np.where(is_full, 1.0, rest)))
    return Estimate(probs, weights)


def share_rest(told: Values, left: float, counts: Counts) -> Values:
    """The probabilities of words, with what is left of them shared among those that were never seen."""
    unseen = counts.said & (told == 0)
    shared: Values = np.where(unseen, left / unseen.sum(), told) if unseen.any() else told / told.sum()
    return shared


def good_turing(counts: Int64[np.ndarray, " ngrams"], most: int) -> Float64[np.ndarray, " discounts"]:
    """What a count is multiplied by: for each up to `most`, then 1 for all above.

    r* / r = (r + 1) n₍ᵣ₊₁₎ / (r nᵣ), where nᵣ n-grams occur r times, moved so that counts above `most` are reliable.
    A discount that is none, not between 0 and 1, is left out: 1.
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
    """Modified Kneser-Ney, interpolated, as KenLM's lmplz has it; and for how many orders discounts were made up."""
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
    """Of the longest n-grams the counts; of others how many different words stand before them.

    Before what begins with `<s>` nothing can stand: it keeps its count. The beginning of a text is a word of its own.
    """
    order = counts.orders[number]
    if number + 1 == len(counts.orders):
        return order.counts
    longer = counts.orders[number + 1]
    before = np.bincount(longer.suffixes, minlength=len(order)) + order.begins
    return np.where(order.is_first, order.counts, before)


def estimate_discounts(adjusted: Int64[np.ndarray, " ngrams"]) -> tuple[Float64[np.ndarray, " 4"], bool]:
    """Discounts for counts 0, 1, 2 and from 3 up (Chen and Goodman 1998), and whether the text could tell them."""
    n = np.bincount(np.minimum(adjusted, 5), minlength=6)
    if not (n[1:4] > 0).all():
        return np.array(FALLBACK), False
    y = n[1] / (n[1] + 2 * n[2])
    found = np.array([0.0, *(i - (i + 1) * y * n[i + 1] / n[i] for i in (1, 2, 3))])
    is_right = bool(((found >= 0) & (found <= (0, 1, 2, 3))).all())
    return (found, True) if is_right else (np.array(FALLBACK), False)


def shares_of(weights: Sequence[float]) -> list[float]:
    """Weights of orders 0 up as shares of orders 1 up: how much of what is left to it each order takes."""
    up_to = np.cumsum(weights)
    return [float(weight / all_below) if all_below else 1.0 for weight, all_below in zip(weights, up_to, strict=True)][
        1:
    ]


def weights_of(shares: Sequence[float]) -> list[float]:
    """The other way round, where all histories are known: weights of orders 0 up, whose sum is 1."""
    left = np.cumprod([1.0, *(1 - share for share in reversed(shares))])
    return [float(left[-1]), *(float(share * rest) for share, rest in zip(shares, left[-2::-1], strict=True))]


def fit_shares(counts: Counts, held_out: Text) -> tuple[list[float], list[float]]:
    """The shares of orders 1 up that make held-out text likeliest, and its loss in nats a word before each round.

    From the longest history that is known a word is told by its order or else by one below. Which one is not known, so
    it is shared out among them (expectation) and the shares are counted (maximization), again and again.
    """
    told, known = looked_up(counts, held_out)
    shares, losses = np.full(told.shape[1], 0.5), []
    shares[0] = 1.0
    for _ in range(ROUNDS):
        passed = np.where(known, 1 - shares, 1.0)[:, :0:-1].cumprod(axis=1)[:, ::-1]
        reached = np.concatenate((passed, np.ones((len(told), 1))), axis=1)
        joint = known * shares * reached * told
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
    """For every word of a text its relative frequency in every order from 0 up, and which histories are known."""
    words = text.words.astype(np.int64)
    told = np.zeros((len(words), len(counts.orders) + 1))
    known = np.zeros(told.shape, dtype=np.bool_)
    found, totals = frequencies(counts), totals_of(counts)
    told[:, 0], told[:, 1], known[:, :2] = 1 / counts.said.sum(), found[0][words], True
    ids = words
    for number, order in enumerate(counts.orders[1:], start=1):
        starts = np.flatnonzero(text.places[number:] >= number)
        ends, histories = starts + number, ids[starts]
        keys = histories * counts.words + words[ends]
        at = np.minimum(np.searchsorted(order.keys, keys), len(order) - 1)
        is_found = (order.keys[at] == keys) & (histories >= 0)
        known[ends, number + 1] = (histories >= 0) & (totals[number][histories] > 0)
        told[ends, number + 1] = np.where(is_found, found[number][at], 0.0)
        ids = np.full(len(words), -1)
        ids[starts] = np.where(is_found, at, -1)
    said = counts.said[words]
    return told[said], known[said]


def totals_of(counts: Counts) -> list[Values]:
    """How often each history of every order went on: for words the whole text, then for words, pairs, …"""
    sizes = [1, *(len(order) for order in counts.orders)]
    return [summed(order.parents, order.counts, size) for order, size in zip(counts.orders, sizes, strict=False)]


def frequencies(counts: Counts) -> list[Values]:
    """The relative frequency of each n-gram after its history."""
    return [
        order.counts / np.maximum(total, 1)[order.parents]
        for order, total in zip(counts.orders, totals_of(counts), strict=True)
    ]


def uniform(counts: Counts) -> Values:
    """One and the same probability for every word that can be said."""
    even: Values = counts.said / counts.said.sum()
    return even


def summed(parents: Int64[np.ndarray, " ngrams"], values: np.ndarray, size: int) -> Values:
    """The sum of the values of each history's n-grams; an empty sum too is a number of 64 bits."""
    return np.bincount(parents, values, size).astype(np.float64)
