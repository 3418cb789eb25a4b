"""calibration.json: what was fitted on the dev set of a run after training, the temperature and thresholds.

The file names the weights that it was fitted for. One for other weights, or a damaged one, is no calibration: it is
fitted again by `mallang evaluate`, and nothing else needs it.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mallang.data.columns import LabelSet
from mallang.errors import UserError
from mallang.evaluation.label_predictions import Calibration
from mallang.runs.files import replace_file, to_json
from mallang.runs.folder import Run

FILE = "calibration.json"
FORMAT = 1


@dataclass(frozen=True)
class KeptCalibration:
    """A calibration, and the texts that it was fitted on."""

    calibration: Calibration
    split: str
    texts: int
    """How many texts."""
    rows: str
    """The SHA-256 sum of the rows."""


def read_calibration(run: Run) -> KeptCalibration | None:
    """The calibration in a run folder, if there is one for its weights."""
    try:
        about = json.loads((run.folder / FILE).read_text("utf-8"))
        if about["format"] != FORMAT or about["weights"] is None or about["weights"] != run.info.get("weights"):
            return None
        found = Calibration(number(about["temperature"]), thresholds_of(about["thresholds"]))
        if found.temperature <= 0 or not fits_labels(found, LabelSet.load(run.folder, "label")):
            return None
        return KeptCalibration(found, str(about["split"]), int(about["texts"]), str(about["rows"]))
    except (UserError, OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def write_calibration(run: Run, kept: KeptCalibration) -> Path:
    """Write the file, atomically; its path."""
    about: dict[str, Any] = {"format": FORMAT, "weights": run.info.get("weights"), "split": kept.split}
    about |= {"texts": kept.texts, "rows": kept.rows, "temperature": kept.calibration.temperature}
    about["thresholds"] = kept.calibration.thresholds
    replace_file(run.folder / FILE, to_json(about))
    return run.folder / FILE


def fits_labels(found: Calibration, labels: LabelSet) -> bool:
    """Whether there is a threshold, which is a probability, for each of several labels, and none for a single one."""
    if labels.kind != "labels":
        return found.thresholds is None
    chosen = found.thresholds or ()
    return len(chosen) == len(labels) and all(0 <= each <= 1 for each in chosen)


def thresholds_of(values: Any) -> tuple[float, ...] | None:
    """Finite numbers, if there are any."""
    return None if values is None else tuple(number(value) for value in values)


def number(value: Any) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no number")
    return float(value)
