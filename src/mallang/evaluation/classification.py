"""Classification: accuracy, F1, Matthews correlation, confusion matrix; several labels per text and their thresholds.

    classification_scores(["pos", "neg"], ["pos", "pos"])["accuracy"]

All measures of single labels follow from the confusion matrix. So do their intervals: drawing texts again with
replacement draws the cells of the matrix from a multinomial distribution, without the texts. Classes are those of the
outputs and the gold labels. A share whose denominator is 0 is 0. Values are from 0 to 100, or −100 to 100.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from mallang.errors import UserError, some_of
from mallang.evaluation.score import RESAMPLES, SEED, Score, Statistics

Labels = Sequence[str] | Sequence[int] | Shaped[np.ndarray, " items"]
"""One label per text: names or numbers."""
Tables = Float[np.ndarray, "draws classes classes"]
"""Confusion matrices."""
Measure = Callable[[Tables], Float[np.ndarray, " draws"]]


@dataclass(frozen=True)
class Confusion:
    """How often each class was taken for each."""

    classes: tuple[Any, ...]
    table: Int[np.ndarray, "classes classes"]
    """A row per gold class, a column per class of the outputs."""


class ClassScores(NamedTuple):
    """The scores of one class."""

    precision: float
    recall: float
    f1: float
    support: int
    """How many texts have the class."""


def classification_scores(outputs: Labels, golds: Labels) -> dict[str, Score]:
    """The scores "accuracy", "macro F1", "micro F1", "weighted F1" and "MCC", with intervals.

    Every text has one label, so micro F1 is accuracy. MCC is Matthews correlation, for more than two classes that of
    Gorodkin (2004).
    """
    confusion = confusion_matrix(outputs, golds)
    draws, signature = resample(confusion.table), f"bs:{RESAMPLES}|seed:{SEED}|classes:{len(confusion.classes)}"
    return {name: table_score(name, measure, confusion.table, draws, signature) for name, measure in MEASURES.items()}


def table_score(
    name: str, measure: Measure, table: Int[np.ndarray, "classes classes"], draws: Tables, signature: str
) -> Score:
    """A measure of a confusion matrix, with its interval from those of the same texts drawn again."""
    ordered = np.sort(measure(draws))
    low, high = (float(ordered[place]) for place in (RESAMPLES // 40, RESAMPLES - RESAMPLES // 40 - 1))
    value = float(measure(table[None].astype(np.float64))[0])
    return Score(name, value, signature, low, high, int(table.sum()))


def class_scores(outputs: Labels, golds: Labels) -> dict[Any, ClassScores]:
    """Precision, recall, F1 and support of every class, sorted by its name."""
    confusion = confusion_matrix(outputs, golds)
    columns = zip(*(each[0].tolist() for each in shares(confusion.table[None].astype(np.float64))), strict=True)
    return {
        name: ClassScores(100 * precision, 100 * recall, 100 * f1, int(support))
        for name, (precision, recall, f1, support) in zip(confusion.classes, columns, strict=True)
    }


def confusion_matrix(outputs: Labels, golds: Labels, classes: Sequence[Any] | None = None) -> Confusion:
    """The confusion matrix of these classes, or of all that occur, sorted."""
    ours, gold = as_list(outputs), as_list(golds)
    if len(ours) != len(gold) or not gold:
        raise UserError(f"there are {len(ours)} labels, but {len(gold)} gold labels; one text at least is needed")
    known = tuple(sorted({*ours, *gold}) if classes is None else classes)
    places = {name: place for place, name in enumerate(known)}
    if missing := {*ours, *gold} - set(known):
        raise UserError(f"there are labels that are no class: {some_of(map(str, missing))}")
    cells = [places[right] * len(known) + places[one] for one, right in zip(ours, gold, strict=True)]
    return Confusion(known, np.bincount(cells, minlength=len(known) ** 2).reshape(len(known), len(known)))


def accuracy_statistics(outputs: Labels, golds: Labels) -> Statistics:
    """The statistics of accuracy, for significance tests: whether a label is right, and 1."""
    right = [one == gold for one, gold in zip(as_list(outputs), as_list(golds), strict=True)]
    table = np.stack((np.array(right, dtype=np.int64), np.ones(len(right), dtype=np.int64)), axis=1)
    return Statistics("accuracy", table, lambda sums: 100 * float(sums[0] / sums[1]), f"bs:{RESAMPLES}|seed:{SEED}")


def macro_f1_statistics(outputs: Labels, golds: Labels) -> Statistics:
    """The statistics of macro F1, for significance tests: for every class whether it is right, the output, the gold.

    The classes are those of the gold labels, so that they are the same for two systems.
    """
    ours, gold = (np.array(as_list(each)) for each in (outputs, golds))
    classes = np.unique(gold)
    both = [each[:, None] == classes for each in (ours, gold)]
    table = np.stack((both[0] & both[1], *both), axis=2).astype(np.int64).reshape(len(gold), -1)
    signature = f"bs:{RESAMPLES}|seed:{SEED}|average:macro|classes:gold"
    return Statistics("macro F1", table, lambda sums: 100 * float(mean_f1(sums.reshape(-1, 3))), signature)


def as_list(labels: Labels) -> list[Any]:
    """Plain labels, whatever holds them."""
    return labels.tolist() if isinstance(labels, np.ndarray) else list(labels)


# ---- measures of confusion matrices, any number of them ----


def resample(table: Int[np.ndarray, "classes classes"]) -> Float[np.ndarray, "draws classes classes"]:
    """The confusion matrices of texts drawn again, with replacement, 1,000 times."""
    texts, cells = int(table.sum()), np.flatnonzero(table)
    draws = np.zeros((RESAMPLES, table.size))
    draws[:, cells] = np.random.default_rng(SEED).multinomial(texts, table.flat[cells] / texts, size=RESAMPLES)
    return draws.reshape(RESAMPLES, *table.shape)


def shares(
    tables: Tables,
) -> tuple[
    Float[np.ndarray, "draws classes"],
    Float[np.ndarray, "draws classes"],
    Float[np.ndarray, "draws classes"],
    Float[np.ndarray, "draws classes"],
]:
    """Precision, recall, F1 (0 to 1) and support of every class."""
    right, ours, gold = np.diagonal(tables, axis1=-2, axis2=-1), tables.sum(axis=-2), tables.sum(axis=-1)
    return ratio(right, ours), ratio(right, gold), ratio(2 * right, ours + gold), gold


def accuracy(tables: Tables) -> Float[np.ndarray, " draws"]:
    """The share of right labels."""
    return ratio(100 * np.trace(tables, axis1=-2, axis2=-1), tables.sum(axis=(-2, -1)))


def macro_f1(tables: Tables) -> Float[np.ndarray, " draws"]:
    """The mean F1 of the classes that occur."""
    f1, occurs = shares(tables)[2], tables.sum(axis=-2) + tables.sum(axis=-1) > 0
    return ratio(100 * f1.sum(axis=-1), occurs.sum(axis=-1))


def micro_f1(tables: Tables) -> Float[np.ndarray, " draws"]:
    """The F1 of all decisions together: with one label per text, accuracy."""
    return accuracy(tables)


def weighted_f1(tables: Tables) -> Float[np.ndarray, " draws"]:
    """The mean F1 of the classes, weighted by their support."""
    _, _, f1, support = shares(tables)
    return ratio(100 * (f1 * support).sum(axis=-1), support.sum(axis=-1))


def matthews(tables: Tables) -> Float[np.ndarray, " draws"]:
    """Matthews correlation: that of the two indicator matrices of classes; 0 if either has one class only."""
    texts, ours, gold = tables.sum(axis=(-2, -1)), tables.sum(axis=-2), tables.sum(axis=-1)
    together = np.trace(tables, axis1=-2, axis2=-1) * texts - (ours * gold).sum(axis=-1)
    spreads = [texts**2 - (each**2).sum(axis=-1) for each in (ours, gold)]
    return 100 * ratio(together, np.sqrt(spreads[0] * spreads[1]))


MEASURES: dict[str, Measure] = {
    "accuracy": accuracy, "macro F1": macro_f1, "micro F1": micro_f1, "weighted F1": weighted_f1, "MCC": matthews,
}  # fmt: skip


def ratio(part: Any, whole: Any) -> Float[np.ndarray, "*shape"]:
    """part / whole, and 0 where the whole is 0."""
    found: np.ndarray = np.divide(part, whole, out=np.zeros(np.shape(whole)), where=np.asarray(whole) != 0)
    return found


# ---- several labels per text ----


def multilabel_scores(
    outputs: Bool[np.ndarray, "items labels"], golds: Bool[np.ndarray, "items labels"]
) -> dict[str, Score]:
    """The scores "micro F1", "macro F1", "samples F1" and "exact match" of label sets, with intervals.

    Macro is the mean over labels, those that never occur with 0; samples the mean of the F1 of every text.
    """
    counts = count_labels(outputs, golds)
    whole = f"bs:{RESAMPLES}|seed:{SEED}|labels:{outputs.shape[1]}"
    own = ratio(2 * counts[:, :, 0].sum(axis=1), counts[:, :, 1:].sum(axis=(1, 2)))
    equal, one = (outputs == golds).all(axis=1), np.ones(len(outputs))
    means = {"samples F1": np.stack((own, one), axis=1), "exact match": np.stack((equal, one), axis=1)}

    def mean(sums: np.ndarray) -> float:
        return 100 * float(sums[0] / sums[1])

    flat = counts.reshape(len(counts), -1)
    statistics = [
        Statistics("micro F1", counts.sum(axis=1), lambda sums: 100 * float(mean_f1(sums[None])), whole),
        Statistics("macro F1", flat, lambda sums: 100 * float(mean_f1(sums.reshape(-1, 3))), whole),
        *(Statistics(name, table, mean, whole) for name, table in means.items()),
    ]
    return {each.name: each.score() for each in statistics}


def multilabel_class_scores(
    outputs: Bool[np.ndarray, "items labels"], golds: Bool[np.ndarray, "items labels"]
) -> list[ClassScores]:
    """Precision, recall, F1 and support of every label."""
    right, ours, gold = count_labels(outputs, golds).sum(axis=0).T
    columns = ratio(right, ours), ratio(right, gold), ratio(2 * right, ours + gold)
    rows = zip(*((100 * each).tolist() for each in columns), gold.tolist(), strict=True)
    return [ClassScores(*row) for row in rows]


def fit_thresholds(
    probabilities: Float[np.ndarray, "items labels"], golds: Bool[np.ndarray, "items labels"]
) -> Float[np.ndarray, " labels"]:
    """The threshold of every label with the highest F1 on these texts, which should be those of a dev set.

    A label is given if its probability is at least the threshold. Thresholds are half-way between two probabilities; of
    equally good ones that nearest to 0.5 is taken, so a label that is never right keeps 0.5 or a value close to it.
    """
    return np.array([_best_threshold(*each) for each in zip(probabilities.T, golds.T, strict=True)])


def _best_threshold(probabilities: Float[np.ndarray, " items"], golds: Bool[np.ndarray, " items"]) -> float:
    order = np.argsort(-probabilities, kind="stable")
    values, right = probabilities[order].astype(np.float64), np.cumsum(golds[order])
    given = np.arange(1, len(order) + 1)
    f1 = ratio(2 * right, given + golds.sum())
    # After the last of equal probabilities only: no threshold separates them.
    ends = np.flatnonzero(np.append(values[1:] != values[:-1], True))
    candidates = (values[ends] + np.append(values[1:], 0.0)[ends]) / 2
    f1, candidates = np.append(f1[ends], 0.0), np.append(candidates, (values[0] + 1) / 2)  # or none has the label
    if f1.max() == 0:
        return 0.5
    best = candidates[f1 >= f1.max() - 1e-12]
    return float(best[np.argmin(np.abs(best - 0.5))])


def count_labels(
    outputs: Bool[np.ndarray, "items labels"], golds: Bool[np.ndarray, "items labels"]
) -> Int[np.ndarray, "items labels 3"]:
    """For every text and label: whether it is right, in the output, in the gold labels."""
    if len(outputs) == 0:
        raise UserError("there are no texts, so that their labels have no score")
    return np.stack((outputs & golds, outputs, golds), axis=2).astype(np.int64)


def mean_f1(counts: Shaped[np.ndarray, "labels 3"]) -> float:
    """The mean F1, from 0 to 1, of rows with right labels, labels of the output, gold labels."""
    return float(ratio(2 * counts[:, 0], counts[:, 1] + counts[:, 2]).mean())
