"""Position accuracy: the share of positions at which output and reference have the same word.

The simplest comparison, and the strictest: one extra word at the start shifts all others, so that "I love you" has
nothing in common with "Oh I love you". F (bag_of_words.py) ignores positions, BLEU (explanation.py) counts n-grams.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mallang.evaluation.score import RESAMPLES, SEED, Statistics
from mallang.evaluation.translation import References, all_references, bleu_metric, nrefs


def position_statistics(
    hypotheses: Sequence[str], references: References, tokenize: str = "13a", lowercase: bool = False
) -> Statistics:
    """Right positions and all positions of every sentence; their sums give the accuracy."""

    def share(sums: np.ndarray) -> float:
        return float(100 * sums[0] / sums[1]) if sums[1] else 0.0

    lists = [[one] if isinstance(one, str) else one for one in references]
    case = "lc" if lowercase else "mixed"
    signature = f"nrefs:{nrefs(lists)}|bs:{RESAMPLES}|seed:{SEED}|case:{case}|tok:{tokenize}|positions:longer"
    return Statistics(
        "position accuracy", count_positions(hypotheses, references, tokenize, lowercase), share, signature
    )


def count_positions(
    hypotheses: Sequence[str], references: References, tokenize: str = "13a", lowercase: bool = False
) -> np.ndarray:
    """For every sentence: positions whose words are the same, and the length of the longer of both texts.

    Of several references the one with the highest share counts.
    """
    metric = bleu_metric(tokenize, lowercase)
    rows = []
    for hypothesis, options in zip(hypotheses, all_references(hypotheses, references), strict=True):
        words = metric._preprocess_segment(hypothesis).split()
        counted = [positions(words, metric._preprocess_segment(option).split()) for option in options]
        rows.append(max(counted, key=lambda counts: counts[0] / max(1, counts[1])))
    return np.array(rows)


def positions(words: Sequence[str], reference: Sequence[str]) -> tuple[int, int]:
    """The number of positions that agree, and the number of positions."""
    return sum(map(str.__eq__, words, reference)), max(len(words), len(reference))
