"""Word alignment metrics: alignment error rate (AER), precision, recall and F against gold alignments.

Och and Ney 2003, A Systematic Comparison of Various Statistical Alignment Models: gold links are sure (S) or possible
(P, the sure ones among them); of the links A that were found

    precision = |A ∩ P| / |A|      recall = |A ∩ S| / |S|      AER = 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|)

F is the harmonic mean of precision and recall; where every gold link is sure, AER is 1 − F. Links are pairs (source
word, target word), counted over the whole corpus.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from pathlib import Path
from typing import TypeAlias

import numpy as np
from jaxtyping import Float, Int

from mallang.data.readers import lines
from mallang.errors import UserError
from mallang.evaluation.score import Score, interval

Link: TypeAlias = tuple[int, int]
"""The indices of a source word and of the target word that translates it."""
Links: TypeAlias = Set[Link]
LINK = re.compile(r"(\d+)([-?p])(\d+)")


def alignment_scores(
    found: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links] | None = None, how: str = ""
) -> list[Score]:
    """AER, precision, recall and F of the links of many sentences, in percent; `how` goes into the signature.

    Without `possible` every gold link is sure.
    """
    table = link_counts(found, sure, possible)
    signature = "|".join(filter(None, [f"links:{'sure' if possible is None else 'sure and possible'}", how]))
    scores = []
    for place, name in enumerate(("AER", "alignment precision", "alignment recall", "alignment F")):

        def measure(sums: Float[np.ndarray, " statistics"], place: int = place) -> float:
            return rates(sums)[place]

        low, high = interval(table, measure)
        scores.append(Score(name, measure(table.sum(axis=0).astype(np.float64)), signature, low, high, len(table)))
    return scores


def error_rate(found: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links] | None = None) -> float:
    """The alignment error rate alone, in percent, without an interval: for model selection."""
    return rates(link_counts(found, sure, possible).sum(axis=0).astype(np.float64))[0]


def link_counts(
    found: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links] | None = None
) -> Int[np.ndarray, "sentences 4"]:
    """For each sentence |A|, |S|, |A ∩ S| and |A ∩ P|."""
    if not len(found) == len(sure) == len(sure if possible is None else possible):
        raise ValueError("every sentence needs links that were found and gold links")
    rows = []
    for links, certain, allowed in zip(found, sure, sure if possible is None else possible, strict=True):
        wanted = links & (certain | allowed)  # sure links are possible links too
        rows.append((len(links), len(certain), len(links & certain), len(wanted)))
    return np.array(rows, dtype=np.int64).reshape(len(rows), 4)


def rates(sums: Float[np.ndarray, " statistics"]) -> tuple[float, float, float, float]:
    """AER, precision, recall and F in percent; without gold links and found links all is right."""
    links, certain, certain_found, possible_found = (float(number) for number in sums)
    error = 1 - (certain_found + possible_found) / (links + certain) if links + certain else 0.0
    precision = possible_found / links if links else float(not certain)
    recall = certain_found / certain if certain else 1.0
    both = precision + recall
    return 100 * error, 100 * precision, 100 * recall, 200 * precision * recall / both if both else 0.0


def read_links(path: Path) -> tuple[list[set[Link]], list[set[Link]]]:
    """The sure and the possible links of a file, one line per pair: `0-0 2-1 1?2`, source and target index from 0.

    A possible link has `?` or `p` instead of `-`.
    """
    sure: list[set[Link]] = []
    possible: list[set[Link]] = []
    for number, line in enumerate(lines(path), 1):
        found = [LINK.fullmatch(word) for word in line.split()]
        if None in found:
            wrong = line.split()[found.index(None)]
            raise UserError(f"{wrong!r} is no link", where=f"{path}, line {number}", todo="write 0-0 1-2 2?1")
        marked = [(int(link[1]), int(link[3]), link[2] == "-") for link in found if link is not None]
        sure.append({(source, target) for source, target, is_sure in marked if is_sure})
        possible.append({(source, target) for source, target, _ in marked})
    return sure, possible
