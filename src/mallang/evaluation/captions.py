"""Metrics of captions against one or several references: BLEU-1 to BLEU-4, CIDEr and CIDEr-D.

CIDEr: Consensus-based Image Description Evaluation. Vedantam, Zitnick, Parikh 2015, arXiv:1411.5726.

    g_n(s)_k   = count of the n-gram k in s · log(images / images with k in a reference)           TF-IDF
    CIDEr_n    = mean over references r of  g_n(s)·g_n(r) / (‖g_n(s)‖ ‖g_n(r)‖)
    CIDEr-D_n  = mean over references r of  e^{−(|s| − |r|)² / 2σ²} · min(g_n(s), g_n(r))·g_n(r) / (‖g_n(s)‖ ‖g_n(r)‖)
    CIDEr(-D)  = 10 · mean over n = 1 … 4,  σ = 6

CIDEr-D is what is published as CIDEr: repeating a word or writing too much does not raise it. The document frequencies
are those of the references that are scored, so that values on different test sets cannot be compared. Captions are
compared in lower case and without punctuation, by all metrics of this file.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from mallang.evaluation.score import RESAMPLES, SEED, Score, Statistics
from mallang.evaluation.translation import (
    References,
    all_references,
    bleu_metric,
    exact_statistics,
    metric_statistics,
    nrefs,
)

ORDER = 4
"""The longest n-grams."""
SIGMA = 6.0
"""The width of the penalty on the difference of lengths, in words."""
SCALE = 10.0
WORD = re.compile(r"\w+(?:['’]\w+)*")
NGram = tuple[str, ...]
Vector = dict[NGram, float]


def words_of(text: str) -> list[str]:
    """The words of a caption in lower case, without punctuation."""
    return WORD.findall(text.lower())


def plain(text: str) -> str:
    """A caption as its words with spaces between."""
    return " ".join(words_of(text))


def bleu_n_statistics(outputs: Sequence[str], references: References, order: int) -> Statistics:
    """Corpus BLEU with n-grams up to `order`, from 0 to 100; without smoothing."""
    metric = bleu_metric("none", max_ngram_order=order, smooth_method="none")
    lists = [[plain(each) for each in options] for options in all_references(outputs, references)]
    found = metric_statistics(f"BLEU-{order}", metric, list(map(plain, outputs)), lists)
    return Statistics(found.name, found.table, found.measure, f"words:lower|order:{order}|{found.signature}")


def cider_statistics(outputs: Sequence[str], references: References, penalized: bool = True) -> Statistics:
    """CIDEr-D of every caption, or CIDEr where it is not `penalized`, and 1."""
    lists = all_references(outputs, references)
    values = cider_values(outputs, lists, penalized)
    table = np.array([[value, 1.0] for value in values])
    signature = f"words:lower|order:{ORDER}|df:{len(lists)} scored images|nrefs:{nrefs(lists)}"
    signature += f"|sigma:{SIGMA:g}" if penalized else ""
    signature += f"|bs:{RESAMPLES}|seed:{SEED}"
    name = "CIDEr-D" if penalized else "CIDEr"
    return Statistics(name, table, lambda sums: float(sums[0] / sums[1]), signature)


def cider_values(outputs: Sequence[str], references: Sequence[Sequence[str]], penalized: bool = True) -> list[float]:
    """CIDEr-D or CIDEr of every caption, from 0 to 10."""
    counted = [[ngrams_of(text) for text in options] for options in references]
    seen = Counter(ngram for options in counted for ngram in {key for counts in options for key in counts})
    rarity = {ngram: math.log(len(counted) / images) for ngram, images in seen.items()}
    unseen = math.log(len(counted))  # as if one image had it
    similar = clipped if penalized else cosine
    found = []
    for output, options in zip(outputs, counted, strict=True):
        ours = weighted(ngrams_of(output), rarity, unseen)
        length, total = len(words_of(output)), 0.0
        for counts in options:
            penalty = math.exp(-((length - length_of(counts)) ** 2) / (2 * SIGMA**2)) if penalized else 1.0
            theirs = weighted(counts, rarity, unseen)
            total += penalty * sum(similar(one, other) for one, other in zip(ours, theirs, strict=True))
        found.append(SCALE * total / ORDER / len(options))
    return found


def ngrams_of(text: str) -> Counter[NGram]:
    """The n-grams of all orders in a caption."""
    words = words_of(text)
    return Counter(
        tuple(words[start : start + order]) for order in range(1, ORDER + 1) for start in range(len(words) - order + 1)
    )


def length_of(counts: Counter[NGram]) -> int:
    """The number of words."""
    return sum(count for ngram, count in counts.items() if len(ngram) == 1)


def weighted(counts: Counter[NGram], rarity: Mapping[NGram, float], unseen: float) -> list[Vector]:
    """The TF-IDF vector of each order."""
    found: list[Vector] = [{} for _ in range(ORDER)]
    for ngram, count in counts.items():
        found[len(ngram) - 1][ngram] = count * rarity.get(ngram, unseen)
    return found


def cosine(ours: Vector, theirs: Vector) -> float:
    """The cosine of two vectors; 0 where one has no weight."""
    return divided(sum((value * theirs.get(ngram, 0.0) for ngram, value in ours.items()), 0.0), ours, theirs)


def clipped(ours: Vector, theirs: Vector) -> float:
    """The cosine, with our values clipped to theirs."""
    shared = (min(value, theirs[ngram]) * theirs[ngram] for ngram, value in ours.items() if ngram in theirs)
    return divided(sum(shared, 0.0), ours, theirs)


def divided(dot: float, ours: Vector, theirs: Vector) -> float:
    """What two vectors share, over both norms."""
    norms = math.sqrt(sum(value**2 for value in ours.values()) * sum(value**2 for value in theirs.values()))
    return dot / norms if norms else 0.0


MEASURES: Mapping[str, Callable[[Sequence[str], References], Statistics]] = {
    **{f"bleu{order}": partial(bleu_n_statistics, order=order) for order in range(1, ORDER + 1)},
    "cider": cider_statistics,
    "exact": exact_statistics,
}
"""Measures of captions by the name that recipes give them."""


def caption_scores(outputs: Sequence[str], references: References) -> list[Score]:
    """BLEU-1 to BLEU-4, CIDEr-D, CIDEr and exact match."""
    scores = [measure(outputs, references).score() for measure in MEASURES.values()]
    return [*scores[:-1], cider_statistics(outputs, references, penalized=False).score(), scores[-1]]
