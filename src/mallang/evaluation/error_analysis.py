"""Looking into errors: texts that were seen in training, the surest errors, likely wrong labels, what to label next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from mallang.evaluation.score import Score, Statistics

Probabilities = Float[np.ndarray, "items classes"]
Golds = Int[np.ndarray, " items"]


@dataclass(frozen=True)
class Error:
    """A text with a wrong label."""

    item: int
    """The number of the text, from 0."""
    gold: int
    output: int
    confidence: float
    """The probability of the output."""
    gold_probability: float


@dataclass(frozen=True)
class LabelError:
    """A text whose gold label is probably wrong."""

    item: int
    """The number of the text, from 0."""
    gold: int
    """The label that it has."""
    suggested: int
    """The label that it should probably have."""
    gold_probability: float
    suggested_probability: float


# ---- seen texts ----


def fold_text(text: str) -> str:
    """A text as it is compared with others: lower-cased, white space folded."""
    return " ".join(text.lower().split())


def seen_texts(texts: Iterable[str], train: Iterable[str]) -> Bool[np.ndarray, " items"]:
    """Whether each text also occurs in the training set."""
    known = {fold_text(text) for text in train}
    return np.array([fold_text(text) in known for text in texts], dtype=bool)


def scores_by_seen(
    outputs: Sequence[Any],
    golds: Sequence[Any],
    seen: Bool[np.ndarray, " items"],
    measure: Callable[[Any, Any], Statistics],
) -> dict[str, Score]:
    """The scores of "all" texts, of "seen" and of "unseen" ones; a part without texts is left out.

    `measure` is such as `accuracy_statistics` or `span_statistics`.
    """
    found = {}
    for name, chosen in (("all", np.ones_like(seen)), ("seen", seen), ("unseen", ~seen)):
        places = np.flatnonzero(chosen).tolist()
        if places:
            score = measure([outputs[place] for place in places], [golds[place] for place in places]).score()
            found[name] = replace(score, signature=f"{score.signature}|texts:{name}")
    return found


# ---- errors ----


def errors_by_confidence(probabilities: Probabilities, golds: Golds) -> list[Error]:
    """All texts with a wrong label, the surest first."""
    outputs, rows = probabilities.argmax(axis=1), np.arange(len(golds))
    confidence, own = probabilities[rows, outputs], probabilities[rows, golds]
    order = np.argsort(-confidence, kind="stable")
    return [
        Error(item, int(golds[item]), int(outputs[item]), float(confidence[item]), float(own[item]))
        for item in order[outputs[order] != golds[order]].tolist()
    ]


def likely_label_errors(probabilities: Probabilities, golds: Golds) -> list[LabelError]:
    """The texts whose label is probably wrong, the likeliest first, by confident learning.

    Northcutt et al. (2021, arXiv:1911.00068): a text belongs to a class confidently if its probability reaches the
    mean probability of that class among the texts that have it as label. A text is reported if the most probable of
    these classes is not its label. Probabilities must be out of fold: from models that were not trained on the text.
    """
    rows = np.arange(len(golds))
    own = probabilities[rows, golds]
    sums, counts = (np.bincount(golds, weights, probabilities.shape[1]) for weights in (own, None))
    # No text can belong to a class without texts.
    thresholds = np.divide(sums, counts, out=np.full(len(sums), np.inf), where=counts > 0)
    confident = np.where(probabilities >= thresholds, probabilities, -1.0)
    suggested = confident.argmax(axis=1)
    other = probabilities[rows, suggested]
    wrong = np.flatnonzero((confident.max(axis=1) >= 0) & (suggested != golds))
    order = wrong[np.argsort((own - other)[wrong], kind="stable")]
    return [
        LabelError(item, int(golds[item]), int(suggested[item]), float(own[item]), float(other[item]))
        for item in order.tolist()
    ]


def most_uncertain(probabilities: Probabilities, count: int) -> list[int]:
    """The numbers of the texts most worth labeling next: the smallest margins between the best two classes first."""
    best = np.sort(probabilities, axis=1)[:, -2:]
    return [int(item) for item in np.argsort(best[:, 1] - best[:, 0], kind="stable")[:count]]
