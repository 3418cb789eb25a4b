"""What to label next: the unlabeled texts that a trained classifier is least sure of (uncertainty sampling)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mallang.evaluation.uncertainty import ALIKE, By, certainty, choose_diverse
from mallang.inspection.reports import seen_in_training

CHUNK = 4096


@dataclass(frozen=True)
class ToLabel:
    """One text to label."""

    line: int
    """The number of the text, from 1."""
    value: float
    """The margin, or the entropy as a share of the highest possible one."""
    label: str
    """What it would say."""
    confidence: float
    text: str


@dataclass(frozen=True)
class TextsToLabel:
    """The texts most worth labeling, the least sure first."""

    texts: Sequence[ToLabel]
    by: By
    notes: Sequence[str]

    def to_json(self) -> list[dict[str, Any]]:
        """Plain values, one object per text."""
        return [
            {
                "line": each.line,
                "input": each.text,
                "output": each.label,
                "score": each.confidence,
                self.by: each.value,
            }
            for each in self.texts
        ]

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows; white space in a text becomes single spaces."""
        rows = [
            [str(each.line), f"{each.value:.4f}", f"{each.confidence:.4f}", each.label, " ".join(each.text.split())]
            for each in self.texts
        ]
        return ["line", self.by, "confidence", "label", "text"], rows


def texts_to_label(
    run: Path, model: Any, texts: Sequence[str], count: int, *, by: By = "margin", calibrated: bool = True
) -> TextsToLabel:
    """The texts that teach the model most: none that was in training, no two nearly alike."""
    is_seen, why = seen_in_training(run, texts, splits=("train", "valid"))
    temperature = model.calibration.temperature if calibrated and model.calibration is not None else 1.0
    sure, labels, shares = list[float](), list[str](), list[float]()
    for start in range(0, len(texts), CHUNK):
        found = model.predictions(texts[start : start + CHUNK])
        sure += certainty(found, by, temperature).tolist()
        labels += found.labels(found.outputs())
        shares += found.confidence(temperature).tolist()
    order = np.argsort(np.array(sure), kind="stable").tolist()
    chosen = choose_diverse(texts, [item for item in order if is_seen is None or not is_seen[item]], count)
    notes = [why] if why else []
    if is_seen is not None and is_seen.any():
        notes.append(f"{int(is_seen.sum()):,} texts are in the training or dev set already, and were left out")
    if chosen.alike:
        share = f"{ALIKE:.0%} of their character trigrams"
        notes.append(f"{chosen.alike:,} texts share {share} with one that the model is less sure of, and were left out")
    if len(chosen.items) < count:
        notes.append(f"only {len(chosen.items):,} of {len(texts):,} texts remain")
    values = sure if by == "margin" else [1 - each for each in sure]
    picked = [ToLabel(item + 1, values[item], labels[item], shares[item], texts[item]) for item in chosen.items]
    return TextsToLabel(picked, by, notes)
