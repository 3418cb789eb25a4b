"""Looking into errors: the most confident ones of a classifier, and labels that are probably wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from mallang.evaluation.label_predictions import LabelPredictions, Thresholds

Probabilities = Float[np.ndarray, "items classes"]
Golds = Int[np.ndarray, " items"]


@dataclass(frozen=True)
class Error:
    """A text with a wrong label, or of several labels with at least one wrong decision."""

    item: int
    """The number of the text, from 0."""
    gold: str
    output: str
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


def errors_by_confidence(
    found: LabelPredictions, temperature: float = 1.0, thresholds: Thresholds | None = None
) -> list[Error]:
    """All texts with a wrong label, the most confident first."""
    outputs, golds = found.outputs(thresholds), found.known
    wrong = (outputs != golds).reshape(len(found), -1).any(axis=1)
    confidence, shares = found.confidence(temperature, thresholds), found.probabilities(temperature)
    if found.kind == "multi":
        own = np.where(golds > 0, shares, 1 - shares).prod(axis=1)
    else:
        own = shares[np.arange(len(golds)), golds]
    order = np.argsort(-confidence, kind="stable")
    items = order[wrong[order]]
    names = found.labels(golds[items]), found.labels(outputs[items])
    return [
        Error(item, gold, output, float(confidence[item]), float(own[item]))
        for item, gold, output in zip(items.tolist(), *names, strict=True)
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
