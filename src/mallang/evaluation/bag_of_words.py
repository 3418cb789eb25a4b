"""Bag-of-words precision, recall and F: right words, whatever their positions.

precision = right words / words of the output, recall = right words / words of the reference. A word is right as often
as the reference has it: a second "you" counts only if the reference has two. Of several references the one with the
highest F counts. The words of all sentences are summed; they are those of sacreBLEU's tokenization, so that precision
is the unigram precision of BLEU.

F is the harmonic mean because it is the strictest: arithmetic ≥ geometric ≥ harmonic, equal only for equal numbers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from mallang.evaluation.score import RESAMPLES, SEED, Score, Statistics
from mallang.evaluation.translation import References, all_references, bleu_metric, nrefs

MEASURES = ("precision", "recall", "F")


def bag_of_words(
    hypotheses: Sequence[str], references: References, tokenize: str = "13a", lowercase: bool = False
) -> dict[str, Score]:
    """The scores "precision", "recall" and "F" of the words of a corpus, from 0 to 100."""
    table = count_words(hypotheses, references, tokenize, lowercase)
    return {name: _statistics(name, table, references, tokenize, lowercase).score() for name in MEASURES}


def word_f_statistics(
    hypotheses: Sequence[str], references: References, tokenize: str = "13a", lowercase: bool = False
) -> Statistics:
    """Right words, words of the output and words of the reference of every sentence; their sums make F."""
    table = count_words(hypotheses, references, tokenize, lowercase)
    return _statistics("F", table, references, tokenize, lowercase)


def count_words(
    hypotheses: Sequence[str], references: References, tokenize: str = "13a", lowercase: bool = False
) -> np.ndarray:
    """For every sentence: right words, words of the output, words of the reference."""
    metric = bleu_metric(tokenize, lowercase)
    rows = []
    for hypothesis, options in zip(hypotheses, all_references(hypotheses, references), strict=True):
        words = metric._preprocess_segment(hypothesis).split()
        counted = [overlap(words, metric._preprocess_segment(option).split()) for option in options]
        rows.append(max(counted, key=lambda counts: harmonic(*precision_and_recall(*counts))))
    return np.array(rows)


def overlap(words: Sequence[str], reference: Sequence[str]) -> tuple[int, int, int]:
    """Right words, words, words of the reference."""
    right = Counter(words) & Counter(reference)
    return right.total(), len(words), len(reference)


def precision_and_recall(right: int | float, words: int | float, reference: int | float) -> tuple[float, float]:
    """Precision and recall from 0 to 1; 0 where there are no words."""
    return (right / words if words else 0.0), (right / reference if reference else 0.0)


def arithmetic(precision: float, recall: float) -> float:
    """The arithmetic mean: high as soon as one of the two is."""
    return (precision + recall) / 2


def geometric(precision: float, recall: float) -> float:
    """The geometric mean: what BLEU takes of its precisions."""
    return math.sqrt(precision * recall)


def harmonic(precision: float, recall: float) -> float:
    """The harmonic mean, F: near the smaller of the two, so that both must be high."""
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _statistics(name: str, table: np.ndarray, references: References, tokenize: str, lowercase: bool) -> Statistics:
    def measure(sums: np.ndarray) -> float:
        precision, recall = precision_and_recall(*sums.tolist())
        return 100 * {"precision": precision, "recall": recall, "F": harmonic(precision, recall)}[name]

    lists = [[one] if isinstance(one, str) else one for one in references]
    case = "lc" if lowercase else "mixed"
    signature = f"nrefs:{nrefs(lists)}|bs:{RESAMPLES}|seed:{SEED}|case:{case}|tok:{tokenize}|count:clipped"
    return Statistics(f"word {name}", table, measure, signature)
