"""Scores as statistics of single rows, from outputs and rows alone: what a paired test draws again.

Only for scores that follow from them: accuracy of labels and choices, spans and single tags, correlation with numbers,
ranks. Others are compared by their intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mallang.data.choices import read_choices
from mallang.data.columns import split_cell
from mallang.evaluation.classification import accuracy_statistics, macro_f1_statistics
from mallang.evaluation.score import RESAMPLES, SEED, Statistics
from mallang.evaluation.spans import span_statistics
from mallang.tasks.contract import Evaluated
from mallang.tasks.tag_scores import tag_accuracy

Rows = Sequence[tuple[str, ...]]


def of_labels(outputs: Sequence[str], rows: Rows) -> Statistics:
    """The accuracy of labels."""
    return accuracy_statistics(outputs, golds_of(rows))


def of_classes(outputs: Sequence[str], rows: Rows) -> Statistics:
    """The mean F1 of the classes of the gold labels."""
    return macro_f1_statistics(outputs, golds_of(rows))


def golds_of(rows: Rows) -> list[str]:
    """The gold labels of rows."""
    return [row[-1].strip() for row in rows]


def of_choices(outputs: Sequence[str], rows: Rows) -> Statistics:
    """The accuracy of choices, by their names."""
    golds = []
    for _, cell, answer in rows:
        choices = read_choices(cell)
        golds.append(choices.names[choices.number(answer)])
    return accuracy_statistics(outputs, golds)


def of_spans(outputs: Sequence[str], rows: Rows) -> Statistics:
    """The F1 of spans."""
    return span_statistics([output.split() for output in outputs], [split_cell(row[1], "tags") for row in rows])


def of_tags(outputs: Sequence[str], rows: Rows) -> Statistics:
    """The accuracy of single tags."""
    return tag_accuracy([output.split() for output in outputs], [split_cell(row[1], "tags") for row in rows])


def of_numbers(outputs: Sequence[str], rows: Rows) -> Statistics:
    """Pearson's correlation: a function of the sums of both numbers, of their squares, and of one times the other."""
    x, y = np.array([float(output) for output in outputs]), np.array([float(row[2]) for row in rows])
    x, y = x - x.mean(), y - y.mean()  # else the sums of squares lose their last digits
    table = np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1)

    def measure(sums: Any) -> float:
        count, xs, ys, xxs, yys, xys = (float(each) for each in sums)
        spread = (xxs - xs * xs / count) * (yys - ys * ys / count)
        return 100 * (xys - xs * ys / count) / spread**0.5 if spread > 0 else 0.0

    return Statistics("Pearson", table, measure, f"bs:{RESAMPLES}|seed:{SEED}")


def of_ranks(outputs: Sequence[str], rows: Rows) -> Statistics:
    """The mean reciprocal rank of the tail and the head of every triple."""
    ranks = np.array([[float(rank) for rank in output.split("\t")] for output in outputs])
    table = np.stack([(1 / ranks).sum(axis=1), np.full(len(ranks), 2.0)], axis=1)
    return Statistics("MRR", table, lambda sums: 100 * float(sums[0] / sums[1]), f"bs:{RESAMPLES}|seed:{SEED}")


KNOWN: Mapping[tuple[Evaluated, str], Callable[[Sequence[str], Rows], Statistics]] = {
    ("labels", "accuracy"): of_labels,
    ("labels", "macro F1"): of_classes,
    ("choices", "accuracy"): of_choices,
    ("tags", "span F1"): of_spans,
    ("tags", "tag accuracy"): of_tags,
    ("numbers", "Pearson"): of_numbers,
    ("ranks", "MRR"): of_ranks,
}
"""By what `evaluate` gives for each row, and the name of the score."""


def statistics_of(kind: Evaluated, metric: str, outputs: Sequence[str], rows: Rows) -> Statistics | None:
    """The statistics of a score; none where it does not follow from outputs and rows."""
    measure = KNOWN.get((kind, metric))
    return None if measure is None else measure(outputs, rows)
