"""The threshold of no answer: fitted on the dev set of a run, kept in its folder, read by `mallang answer`."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from mallang.errors import UserError
from mallang.inspection.label_report import DEV, keep
from mallang.inspection.outputs import open_rows
from mallang.runs.calibration import KeptCalibration, read_calibration
from mallang.runs.folder import Run
from mallang.tasks.contract import Calibrating


def calibrate(path: Path, model: Calibrating, *, is_kept: bool = True) -> list[str]:
    """Fit the calibration of a model on the dev set of its run, or take the one in its folder; notes on it."""
    run = Run.open(path)
    try:
        dev = list(open_rows(run.folder, DEV, None)[0])
    except UserError as error:
        return [f"the threshold of no answer is 0, not fitted: {error.what}"]
    rows = hashlib.sha256(json.dumps(dev, ensure_ascii=False).encode("utf-8", "surrogatepass")).hexdigest()
    kept = read_calibration(run) if is_kept else None
    if kept is not None and kept.rows == rows:
        model.calibration = kept.calibration
        return [told(kept)]
    found = model.fit_calibration(dev)
    if found is None:
        return []
    model.calibration = found
    kept = KeptCalibration(found, DEV, len(dev), rows)
    return [told(kept), *(keep(run, kept) if is_kept else ())]


def told(kept: KeptCalibration) -> str:
    """What was fitted, in words."""
    threshold = (kept.calibration.thresholds or (0.0,))[0]
    return f"the threshold of no answer, {threshold:.3g}, was fitted on the {kept.texts:,} questions of {kept.split}"
