"""The predictions of a classifier for some texts, and all that follows from them.

    found = LabelPredictions("single", ("bad", "good"), logits, golds)
    calibration = fit_calibration(dev)              # the temperature, and of several labels their thresholds
    label_scores(found, calibration.temperature)    # accuracy, F1, NLL, Brier, ECE …

A temperature changes probabilities and never a decision: the most probable class stays the same, so does the number of
thresholds that an ordered class lies above, and several labels are decided on by their probabilities without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from mallang.evaluation import calibration, classification
from mallang.evaluation.calibration import Bin, calibration_scores, logistic
from mallang.evaluation.classification import ClassScores
from mallang.evaluation.ordinal import ordinal_scores
from mallang.evaluation.score import Score

Kind = Literal["single", "multi", "ordinal"]
"""Exactly one class, any number of classes, or ordered classes."""
Thresholds = Float[np.ndarray, " classes"]
CALIBRATED = ("NLL", "Brier", "ECE")
"""The scores that a temperature changes."""


@dataclass(frozen=True)
class LabelPredictions:
    """The logits of some texts, and their gold labels if these are known."""

    kind: Kind
    names: tuple[str, ...]
    logits: Float[np.ndarray, "items outputs"]
    """One per class; of ordered classes, one per threshold between two of them: that of lying above it."""
    golds: Int[np.ndarray, " items"] | Int[np.ndarray, "items classes"] | None = None
    """The class of each text; of several labels, 1 for each label that it has and else 0."""

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def known(self) -> Shaped[np.ndarray, ...]:
        """The gold labels, which must be there."""
        assert self.golds is not None
        return self.golds

    def take(self, chosen: Bool[np.ndarray, " items"]) -> LabelPredictions:
        """The predictions of some of the texts."""
        return replace(self, logits=self.logits[chosen], golds=None if self.golds is None else self.golds[chosen])

    def log_probs(self, temperature: float = 1.0) -> Float[np.ndarray, "items classes"]:
        """The log-probability of every class; of several labels, of having each of them."""
        logits = self.logits.astype(np.float64) / temperature
        if self.kind == "single":
            return calibration.log_softmax(logits)
        if self.kind == "ordinal":
            return calibration.ordinal_log_probs(logits)
        return np.asarray(np.log(np.maximum(logistic(logits), calibration.TINY)))

    def probabilities(self, temperature: float = 1.0) -> Float[np.ndarray, "items classes"]:
        """The probability of every class; of several labels, of each of them."""
        return np.asarray(np.exp(self.log_probs(temperature)))

    def outputs(self, thresholds: Thresholds | None = None) -> Shaped[np.ndarray, ...]:
        """The class of each text, or for each label whether the text has it: those above their thresholds, or 0.5."""
        if self.kind == "multi":
            return np.asarray(self.logits > 0 if thresholds is None else self.probabilities() >= thresholds)
        return np.asarray((self.logits > 0).sum(axis=1) if self.kind == "ordinal" else self.logits.argmax(axis=1))

    def confidence(self, temperature: float = 1.0, thresholds: Thresholds | None = None) -> Float[np.ndarray, " items"]:
        """The probability of what was decided: of the class; of several labels, that each decision is right."""
        shares, outputs = self.probabilities(temperature), self.outputs(thresholds)
        if self.kind == "multi":
            return np.asarray(np.where(outputs, shares, 1 - shares).prod(axis=1))
        return np.asarray(shares[np.arange(len(shares)), outputs])

    def labels(self, outputs: Shaped[np.ndarray, ...]) -> list[str]:
        """The names of decided, or of gold labels; several have `|` between them."""
        if self.kind != "multi":
            return [self.names[number] for number in outputs.tolist()]
        return ["|".join(name for name, has in zip(self.names, row, strict=True) if has) for row in outputs.tolist()]

    def decisions(self) -> LabelPredictions:
        """Several labels as that many decisions between two classes, not to have a label and to have it."""
        if self.kind != "multi":
            return self
        flat = self.logits.reshape(-1, 1).astype(np.float64)
        golds = None if self.golds is None else self.golds.reshape(-1)
        return LabelPredictions("single", ("no", "yes"), np.concatenate((np.zeros_like(flat), flat), axis=1), golds)

    def bins(self, temperature: float = 1.0) -> list[Bin]:
        """The bins of the reliability diagram."""
        flat = self.decisions()
        return calibration.reliability(flat.log_probs(temperature), flat.known, outputs=flat.outputs())


@dataclass(frozen=True)
class Calibration:
    """What is fitted on a dev set after training."""

    temperature: float
    thresholds: tuple[float, ...] | None = None
    """The probability from which each of several labels is given, for the highest F1."""

    def array(self) -> Thresholds | None:
        """The thresholds as an array."""
        return None if self.thresholds is None else np.array(self.thresholds)


def fit_calibration(dev: LabelPredictions) -> Calibration:
    """The temperature with the lowest NLL on a dev set; of several labels also the thresholds with the highest F1."""
    flat = dev.decisions()
    fit = calibration.fit_ordinal_temperature if dev.kind == "ordinal" else calibration.fit_temperature
    temperature = fit(flat.logits, flat.known)
    if dev.kind != "multi":
        return Calibration(temperature)
    found = classification.fit_thresholds(dev.probabilities(), dev.known > 0)
    return Calibration(temperature, tuple(found.tolist()))


def label_scores(found: LabelPredictions, thresholds: Thresholds | None = None) -> list[Score]:
    """The scores of the decisions, with intervals."""
    outputs = found.outputs(thresholds)
    if found.kind == "multi":
        scores = classification.multilabel_scores(outputs, found.known > 0)
        how = "thresholds:0.5" if thresholds is None else "thresholds:dev"
        return [replace(score, signature=f"{score.signature}|{how}") for score in scores.values()]
    scores = classification.classification_scores(outputs, found.known)
    chosen = [score for name, score in scores.items() if name != "micro F1"]  # which is accuracy here
    if found.kind == "ordinal":
        chosen += ordinal_scores(outputs, found.known, found.names).values()
    return chosen


def probability_scores(found: LabelPredictions, temperature: float = 1.0) -> list[Score]:
    """NLL, Brier score and ECE of the probabilities; of several labels those of single decisions.

    Decisions about one text depend on each other, so that these have no intervals.
    """
    flat = found.decisions()
    scores = calibration_scores(flat.log_probs(temperature), flat.known, outputs=flat.outputs())
    told = f"temperature:{temperature:.4g}" + ("|per:decision" if found.kind == "multi" else "")
    chosen = [replace(scores[name], signature=f"{scores[name].signature}|{told}") for name in CALIBRATED]
    if found.kind != "multi":
        return chosen
    return [replace(score, low=None, high=None, count=len(found)) for score in chosen]


def scores_by_class(found: LabelPredictions, thresholds: Thresholds | None = None) -> dict[str, ClassScores]:
    """Precision, recall, F1 and support of every class that occurs, in the order of the classes."""
    outputs = found.outputs(thresholds)
    if found.kind == "multi":
        rows: Sequence[ClassScores] = classification.multilabel_class_scores(outputs, found.known > 0)
        return dict(zip(found.names, rows, strict=True))
    scores = classification.class_scores(outputs, found.known)
    return {found.names[number]: row for number, row in sorted(scores.items())}
