"""The scores of predicted tags: F1 of spans where tags spell spans, else of single tags."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from mallang.evaluation.score import RESAMPLES, SEED, Score, Statistics
from mallang.evaluation.spans import span_scores, span_scores_by_type, span_statistics
from mallang.text.tag_scheme import Scheme

Sentences = Sequence[Sequence[str]]
"""The tags of every sentence."""


def quick_scores(found: Sentences, gold: Sentences, scheme: Scheme | None) -> list[Score]:
    """Accuracy and F1 for validation, without intervals; the micro F1 of tags without spans is their accuracy."""
    accuracy = tag_accuracy(found, gold)
    f1 = accuracy if scheme is None else span_statistics(found, gold)
    parts = (("accuracy", accuracy), ("f1", f1))
    return [Score(name, each.value, each.signature, count=len(gold)) for name, each in parts]


def all_scores(found: Sentences, gold: Sentences, scheme: Scheme | None) -> list[Score]:
    """The scores of all sentences with their intervals, then those of each type."""
    if scheme is None:
        return [tag_accuracy(found, gold).score(), *scores_by_tag(found, gold)]
    by_type = span_scores_by_type(found, gold).values()
    return [*span_scores(found, gold).values(), *(score for each in by_type for score in each[:3])]


def tag_accuracy(found: Sentences, gold: Sentences) -> Statistics:
    """The share of words with the right tag."""
    table = [(sum(map(str.__eq__, ours, theirs)), len(theirs)) for ours, theirs in zip(found, gold, strict=True)]
    return Statistics(
        "tag accuracy",
        np.array(table, dtype=np.int64).reshape(-1, 2),
        lambda sums: 100 * float(sums[0] / max(1.0, sums[1])),
        f"bs:{RESAMPLES}|seed:{SEED}|tags:equal",
    )


def scores_by_tag(found: Sentences, gold: Sentences) -> list[Score]:
    """The F1 of every tag by itself, those of the gold tags first."""
    pairs = [pair for sentence in zip(found, gold, strict=True) for pair in zip(*sentence, strict=True)]
    ours, theirs = Counter(tag for tag, _ in pairs), Counter(tag for _, tag in pairs)
    both = Counter(tag for tag, other in pairs if tag == other)
    return [
        Score("tag F1", 200 * both[tag] / (ours[tag] + theirs[tag]), f"tags:equal|type:{tag}", count=theirs[tag])
        for tag in sorted(theirs | ours)
    ]
