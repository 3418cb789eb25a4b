"""A BLEU score explained: matched n-grams, their precisions, the geometric mean and the brevity penalty.

    print(explain("I love you", "Oh I love you"))

BLEU (Papineni et al., 2002) is brevity penalty × geometric mean of the precisions of 1-, 2-, 3- and 4-grams. The count
of an n-gram is clipped to that of a reference. The brevity penalty, exp(1 − reference length / length) for outputs that
are too short, replaces recall. The numbers are sacreBLEU's, for a sentence as for a corpus.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from mallang.errors import UserError, nearest
from mallang.evaluation.bag_of_words import count_words, harmonic, precision_and_recall
from mallang.evaluation.positions import count_positions
from mallang.evaluation.translation import References, all_references, bleu_metric, bleu_statistics

ORDERS = 4
SMOOTHINGS = ("exp", "none")
"""exp: sacreBLEU's default, 1/2, 1/4, 1/8 … of a match where there is none; none: no smoothing, as in the paper."""
Words = tuple[str, ...]


@dataclass(frozen=True)
class NGram:
    """An n-gram of the output."""

    words: Words
    count: int
    """Its count in the output."""
    allowed: int
    """Its maximum count in a reference."""

    @property
    def matched(self) -> int:
        """Its clipped count: at most that of a reference."""
        return min(self.count, self.allowed)


@dataclass(frozen=True)
class Order:
    """The n-grams of one length."""

    n: int
    matched: int
    total: int
    precision: float | None
    """From 0 to 1; None where a sentence is too short for this order, which is then left out."""
    smoothed: bool = False
    """Whether nothing matched, so that the precision comes from smoothing."""
    ngrams: tuple[NGram, ...] = ()
    """The n-grams of one sentence; empty for a corpus."""


@dataclass(frozen=True)
class Explanation:
    """One BLEU score, step by step, with the precision, recall and F of words and the accuracy of positions."""

    orders: tuple[Order, ...]
    geometric_mean: float
    """The geometric mean of the precisions, from 0 to 1."""
    length: int
    reference_length: int
    """The length of the reference of closest length."""
    brevity_penalty: float
    bleu: float
    """From 0 to 100."""
    right: int
    """Right words, whatever their positions."""
    precision: float
    recall: float
    f: float
    """Bag-of-words F, from 0 to 100."""
    positions_right: int
    """Words that are right in their position."""
    positions: int
    """The length of the longer of output and reference."""
    position_accuracy: float
    """From 0 to 100."""
    signature: str
    sentences: int = 1
    hypothesis: Words = ()
    """The words of the output as they are counted; empty for a corpus."""
    references: tuple[Words, ...] = ()

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        return asdict(self)


def explain(
    hypothesis: str, references: str | Sequence[str], tokenize: str = "13a", *, smooth: str = "exp"
) -> Explanation:
    """Explain the BLEU of one sentence: sacreBLEU's sentence score.

    As in sacreBLEU, orders for which the sentence is too short are left out of the mean (`eff:yes` in the signature).
    """
    options = [references] if isinstance(references, str) else list(references)
    if not options:
        raise UserError("there is no reference to compare with")
    metric = bleu_metric(tokenize, smooth_method=_known(smooth), effective_order=True)
    metric.num_refs = len(options)
    words, *texts = (tuple(metric._preprocess_segment(text).split()) for text in (hypothesis, *options))
    ngrams = [_ngrams(words, texts, n) for n in range(1, ORDERS + 1)]
    counts = [(sum(each.matched for each in found), sum(each.count for each in found)) for found in ngrams]
    orders = [replace(order, ngrams=found) for order, found in zip(_orders(counts, smooth, None), ngrams, strict=True)]
    nearest_length = min((len(text) for text in texts), key=lambda length: (abs(length - len(words)), length))
    right = np.concatenate([count([hypothesis], [options], tokenize)[0] for count in (count_words, count_positions)])
    whole = _explanation(orders, (len(words), nearest_length), right, str(metric.get_signature()))
    return replace(whole, hypothesis=words, references=tuple(texts))


def explain_corpus(
    hypotheses: Sequence[str], references: References, tokenize: str = "13a", *, smooth: str = "exp"
) -> Explanation:
    """Explain the BLEU of a corpus: n-gram counts and lengths are summed over the sentences first."""
    length, reference_length, *counts = bleu_statistics(hypotheses, references, tokenize).table.sum(axis=0).tolist()
    orders = _orders(list(zip(counts[:ORDERS], counts[ORDERS:], strict=True)), smooth, 0.0)
    metric = bleu_metric(tokenize, smooth_method=_known(smooth))
    sizes = {len(options) for options in all_references(hypotheses, references)}
    metric.num_refs = sizes.pop() if len(sizes) == 1 else -1
    counted = [count(hypotheses, references, tokenize) for count in (count_words, count_positions)]
    right = np.concatenate([table.sum(axis=0) for table in counted])
    whole = _explanation(orders, (length, reference_length), right, str(metric.get_signature()))
    return replace(whole, sentences=len(hypotheses))


def _ngrams(words: Words, references: Sequence[Words], n: int) -> tuple[NGram, ...]:
    """The n-grams of a text in the order of their first occurrence, each with its maximum count in a reference."""

    def count(text: Words) -> Counter[Words]:
        return Counter(text[start : start + n] for start in range(len(text) - n + 1))

    known = [count(text) for text in references]
    return tuple(NGram(ngram, times, max(each[ngram] for each in known)) for ngram, times in count(words).items())


def _orders(counts: Sequence[tuple[int, int]], smooth: str, absent: float | None) -> list[Order]:
    """The precision of each order: matched / total, smoothed where nothing matched; `absent` without n-grams."""
    found, small = [], 1.0
    is_hopeless = not any(matched for matched, _ in counts)
    for n, (matched, total) in enumerate(counts, start=1):
        smoothed = matched == 0 and total > 0 and smooth == "exp" and not is_hopeless
        small = small / 2 if smoothed else small
        precision = absent if total == 0 else (small if smoothed else matched) / total
        found.append(Order(n, matched, total, precision, smoothed))
    return found


def _explanation(orders: Sequence[Order], lengths: tuple[int, int], right: np.ndarray, signature: str) -> Explanation:
    """The explanation from the precisions, lengths, right words and positions."""
    length, reference_length = lengths
    precisions = [order.precision for order in orders if order.precision is not None]
    mean = math.prod(precisions) ** (1 / len(precisions)) if precisions else 0.0
    penalty = 1.0 if length >= reference_length else math.exp(1 - reference_length / length) if length else 0.0
    *words, in_place, places = right.tolist()
    precision, recall = precision_and_recall(*words)
    return Explanation(
        orders=tuple(orders),
        geometric_mean=mean,
        length=length,
        reference_length=reference_length,
        brevity_penalty=penalty,
        bleu=100 * penalty * mean,
        right=int(right[0]),
        precision=100 * precision,
        recall=100 * recall,
        f=100 * harmonic(precision, recall),
        positions_right=in_place,
        positions=places,
        position_accuracy=100 * in_place / places if places else 0.0,
        signature=signature,
    )


def _lines(one: Explanation) -> Iterator[str]:
    """The explanation as text: the texts, each order, the mean, the penalty, BLEU, and words for comparison."""
    if one.references:
        yield f"output     {' '.join(one.hypothesis)}"
        yield from (f"reference  {' '.join(words)}" for words in one.references)
        yield ""
    for order in one.orders:
        yield f"{order.n}-grams   {order.matched} of {order.total} match: {_precision(order)}"
        yield from _listed(order)
    used = [order.precision for order in one.orders if order.precision is not None]
    factors = " × ".join(f"{precision:.3f}" for precision in used)
    yield f"geometric mean    ({factors}) ^ 1/{len(used)} = {one.geometric_mean:.4f}" if used else "geometric mean    0"
    yield f"brevity penalty   {_penalty(one)}"
    made = f"100 × {one.brevity_penalty:.4f} × {one.geometric_mean:.4f} = {one.bleu:.2f}"
    yield f"BLEU              {made} ({one.signature})"
    if any(order.smoothed for order in one.orders):
        yield "                  0 without smoothing: an n-gram order without any match makes the mean 0"
    yield f"words             {one.right} right: precision {one.precision:.2f}, recall {one.recall:.2f}, F {one.f:.2f}"
    yield f"positions         {one.positions_right} of {one.positions} right: accuracy {one.position_accuracy:.2f}"


def _precision(order: Order) -> str:
    if order.precision is None:
        return "the output is too short to have any"
    return f"{order.precision:.3f}" + (", by smoothing" if order.smoothed else "")


def _listed(order: Order) -> Iterator[str]:
    """The n-grams of a sentence that match, those that the output has too often, and those that are wrong."""
    kinds = {
        "right": [each for each in order.ngrams if each.count <= each.allowed],
        "too often": [each for each in order.ngrams if 0 < each.allowed < each.count],
        "wrong": [each for each in order.ngrams if not each.allowed],
    }
    for kind, found in kinds.items():
        if found:
            yield f"  {kind + ':':<10} {', '.join(_shown(each) for each in found)}"


def _shown(ngram: NGram) -> str:
    text = f"“{' '.join(ngram.words)}”"
    if 0 < ngram.allowed < ngram.count:
        return f"{text} {ngram.count} times, {ngram.allowed} {'counts' if ngram.allowed == 1 else 'count'}"
    return text if ngram.count == 1 else f"{text} {ngram.count} times"


def _penalty(one: Explanation) -> str:
    if one.length >= one.reference_length:
        return f"1, for {one.length} words are not fewer than the reference's {one.reference_length}"
    if not one.length:
        return "0, for there are no words"
    return f"exp(1 − {one.reference_length}/{one.length}) = {one.brevity_penalty:.4f}"


def _known(smooth: str) -> str:
    if smooth not in SMOOTHINGS:
        raise UserError(f"BLEU is not smoothed by {smooth!r} here", todo=nearest(smooth, SMOOTHINGS))
    return smooth
