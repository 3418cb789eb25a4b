"""The report on a classifier: scores with and without seen texts, by class, calibration, confusions and errors.

    report = label_report(Path("runs/first"), model, rows, "test")
    print(as_plain_text(report))
    write_report(report, Path("report"))

The temperature, and the thresholds of several labels, are fitted on the dev set of the run, never on the scored texts
unless these are the dev set; they are kept in the run folder, where `mallang classify` finds them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool

from mallang.errors import UserError
from mallang.evaluation.calibration import COLDEST, HOTTEST
from mallang.evaluation.classification import Confusion, confusion_matrix
from mallang.evaluation.error_analysis import errors_by_confidence
from mallang.evaluation.label_predictions import (
    CALIBRATED,
    Calibration,
    LabelPredictions,
    fit_calibration,
    label_scores,
    probability_scores,
    scores_by_class,
)
from mallang.evaluation.score import Score
from mallang.inspection.comparison_tables import Table
from mallang.inspection.controls import control_notes
from mallang.inspection.outputs import open_rows
from mallang.inspection.report_figures import draw_confusion, draw_reliability
from mallang.inspection.reports import (
    ALL,
    COVERED,
    UNSEEN,
    Figures,
    class_table,
    classes_json,
    confusion_json,
    confusion_table,
    input_of,
    named,
    score_table,
    seen_in_training,
    seen_note,
    unseen_part,
)
from mallang.runs.calibration import KeptCalibration, read_calibration, write_calibration
from mallang.runs.files import is_read_only
from mallang.runs.folder import Run
from mallang.tasks.contract import Controlled, PredictsLabels, ReadsPairs
from mallang.tasks.entity_links import Covering

FEWEST = 20
"""Texts of a dev set that a temperature is fitted on."""
DEV = "valid"


@dataclass(frozen=True, kw_only=True)
class LabelReport:
    """All that is known of the labels that a run gives to some texts."""

    name: str
    texts: Sequence[str]
    found: LabelPredictions
    is_seen: Bool[np.ndarray, " texts"] | None = None
    """Whether each text is in the training data too."""
    is_covered: Bool[np.ndarray, " texts"] | None = None
    """Whether each has a mention whose entity is in the graph that the run reads."""
    fitted: KeptCalibration | None = None
    notes: Sequence[str] = ()
    error_columns: ClassVar[tuple[str, ...]] = (
        "row", "gold", "output", "confidence", "gold_probability", "seen", "text",
    )  # fmt: skip

    @cached_property
    def parts(self) -> dict[str, LabelPredictions]:
        """All texts, those that were not in training where these are fewer, and those with a known entity."""
        covered = None if self.is_covered is None or not self.is_covered.any() else self.is_covered
        some = {UNSEEN: unseen_part(self.is_seen), COVERED: covered}
        return {ALL: self.found} | {name: self.found.take(part) for name, part in some.items() if part is not None}

    @cached_property
    def measured(self) -> dict[str, list[Score]]:
        """The scores of every part, as the model gives its probabilities."""
        return {
            name: named([*label_scores(each), *probability_scores(each)], name) for name, each in self.parts.items()
        }

    @cached_property
    def calibrated(self) -> dict[str, list[Score]]:
        """The scores of every part that a temperature or thresholds change, with these; nothing without them."""
        if self.fitted is None:
            return {}
        temperature, thresholds = self.fitted.calibration.temperature, self.fitted.calibration.array()
        return {
            name: named(
                [
                    *(label_scores(each, thresholds) if thresholds is not None else ()),
                    *probability_scores(each, temperature),
                ],
                name,
            )
            for name, each in self.parts.items()
        }

    @property
    def scores(self) -> list[Score]:
        """The scores of all texts."""
        return self.measured[ALL]

    @property
    def outputs(self) -> list[str]:
        """The label of every text."""
        return self.found.labels(self.found.outputs())

    @cached_property
    def confusion(self) -> Confusion | None:
        """The confusion matrix of the classes that occur; none for several labels per text."""
        if self.found.kind == "multi":
            return None
        outputs, golds = self.found.outputs(), self.found.known
        places = sorted({*outputs.tolist(), *golds.tolist()})
        table = confusion_matrix(outputs, golds, places).table
        return Confusion(tuple(self.found.names[place] for place in places), table)

    def tables(self) -> list[Table]:
        """Scores with and without seen texts, scores by class, and the most frequent confusions."""
        heads = {name: f"{len(each):,} {'texts' if name == ALL else name}" for name, each in self.parts.items()}
        rows = {heads[name]: [*scores, *self.calibrated.get(name, ())] for name, scores in self.measured.items()}
        names = [score.name for score in self.scores]
        for score in self.calibrated.get(ALL, ()):
            names.append(
                f"{score.name}, calibrated" if score.name in CALIBRATED else f"{score.name}, fitted thresholds"
            )
        classes = class_table("classes", "class", scores_by_class(self.found))
        more = [] if self.confusion is None else confusion_table(self.confusion)
        return [score_table(f"labels of {self.name}", rows, names), classes, *more]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        fitted = self.fitted
        thresholds = None if fitted is None else fitted.calibration.thresholds
        temperature = 1.0 if fitted is None else fitted.calibration.temperature
        return {
            "split": self.name,
            "texts": len(self.found),
            "seen": None if self.is_seen is None else int(self.is_seen.sum()),
            "temperature": None if fitted is None else temperature,
            "thresholds": thresholds and dict(zip(self.found.names, thresholds, strict=True)),
            "fitted_on": None if fitted is None else {"split": fitted.split, "texts": fitted.texts},
            **{key: value for key, value in self.part_json(ALL).items() if key != "texts"},
            **{name: self.part_json(name) if name in self.parts else None for name in (UNSEEN, COVERED)},
            "confusion": None if self.confusion is None else confusion_json(self.confusion),
            "reliability": {
                "before": [asdict(each) for each in self.found.bins()],
                "after": None if fitted is None else [asdict(each) for each in self.found.bins(temperature)],
            },
            "notes": list(self.notes),
        }

    def part_json(self, name: str) -> dict[str, Any]:
        """The scores of one part of the texts as plain values."""
        return {
            "texts": len(self.parts[name]),
            "scores": [score.to_json() for score in self.measured[name]],
            "calibrated": [score.to_json() for score in self.calibrated.get(name, ())] or None,
            "classes": classes_json(scores_by_class(self.parts[name])),
        }

    def errors(self) -> Iterator[Sequence[Any]]:
        """Every text with a wrong label, the most confident first."""
        temperature = 1.0 if self.fitted is None else self.fitted.calibration.temperature
        for error in errors_by_confidence(self.found, temperature):
            seen = "" if self.is_seen is None else "yes" if self.is_seen[error.item] else "no"
            shares = error.confidence, error.gold_probability
            yield error.item + 1, error.gold, error.output, *shares, seen, self.texts[error.item]

    def figures(self) -> Figures:
        """The confusion matrix and the reliability diagram."""
        curves = {"as the model gives them": self.found.bins()}
        if self.fitted is not None:
            temperature = self.fitted.calibration.temperature
            curves[f"with temperature {temperature:.3g}"] = self.found.bins(temperature)
        found: dict[str, Callable[[Path], object]] = {}
        if self.confusion is not None:
            confusion = self.confusion
            found["confusion.svg"] = lambda path: draw_confusion(path, confusion, f"{self.name}: which class for which")
        found["reliability.svg"] = lambda path: draw_reliability(path, curves, f"{self.name}: confidence and accuracy")
        return found


def label_report(
    run: Path, model: PredictsLabels, rows: Sequence[tuple[str, ...]], name: str, *, is_kept: bool = True
) -> LabelReport:
    """The report on rows that end in a label; the calibration is read from the run folder, or fitted and kept there."""
    texts = [input_of(row) for row in rows]
    found = predictions_of(model, rows)
    is_seen, why = seen_in_training(run, texts)
    fitted, notes = calibration_of(Run.open(run), model, rows, found, is_kept=is_kept)
    what = "pairs" if isinstance(model, ReadsPairs) else "texts"
    notes = [*seen_note(is_seen, what), *filter(None, [why]), *notes]
    notes += control_notes(run, model, name) if isinstance(model, Controlled) else []
    covered = model.covered(rows) if isinstance(model, Covering) else None
    return LabelReport(
        name=name, texts=texts, found=found, is_seen=is_seen, is_covered=covered, fitted=fitted, notes=notes
    )


def predictions_of(model: PredictsLabels, rows: Sequence[tuple[str, ...]]) -> LabelPredictions:
    """The predictions for rows of a text, or of several, and a label."""
    return model.predictions([row[0] if len(row) == 2 else row[:-1] for row in rows], [row[-1] for row in rows])


def calibration_of(
    run: Run,
    model: PredictsLabels,
    scored: Sequence[tuple[str, ...]],
    found: LabelPredictions,
    *,
    is_kept: bool,
) -> tuple[KeptCalibration | None, list[str]]:
    """What was fitted on the dev set of a run, now or earlier, and notes on it."""
    try:
        opened, _ = open_rows(run.folder, DEV, None)
        dev = [row for row in opened if row[0].strip() and (row[-1].strip() or found.kind == "multi")]
    except UserError as error:
        return None, [f"probabilities are not calibrated: {error.what}"]
    if len(dev) < FEWEST:
        return None, [f"probabilities are not calibrated: the dev set has {len(dev)} texts, and {FEWEST} are needed"]
    is_same = dev == list(scored)
    here = ["the calibration was fitted on these very texts: its scores are too good"] if is_same else []
    rows = hashlib.sha256(json.dumps(dev, ensure_ascii=False).encode("utf-8", "surrogatepass")).hexdigest()
    if is_kept and (kept := read_calibration(run)) is not None and kept.rows == rows:
        return kept, [told(kept), *here]
    try:
        known = found if is_same else predictions_of(model, dev)
    except UserError as error:  # a label that training did not have: the file has changed since
        return None, [f"probabilities are not calibrated: in the dev set, {error.where}, {error.what}"]
    calibration = fit_calibration(known)
    if not COLDEST * 1.01 < calibration.temperature < HOTTEST / 1.01:
        return None, ["probabilities are not calibrated: on the dev set every label is right, or none is"]
    kept = KeptCalibration(calibration, DEV, len(dev), rows)
    return kept, [told(kept), *here, *(keep(run, kept) if is_kept else ())]


def keep(run: Run, kept: KeptCalibration) -> list[str]:
    """Write the calibration into the run folder; a note where that cannot be."""
    try:
        write_calibration(run, kept)
    except UserError as error:
        if not is_read_only(error):
            raise
        return [f"{run.folder} is read-only: the calibration was not kept"]
    return []


def told(kept: KeptCalibration) -> str:
    """What was fitted, in words."""
    what = f"the temperature {kept.calibration.temperature:.3g} was"
    if kept.calibration.thresholds is not None:
        low, high = min(kept.calibration.thresholds), max(kept.calibration.thresholds)
        what = f"the temperature {kept.calibration.temperature:.3g} and thresholds of {low:.2g} to {high:.2g} were"
    return f"{what} fitted on the {kept.texts:,} texts of {kept.split}"


__all__ = ["Calibration", "LabelReport", "label_report"]
