"""Controls: what a score is worth beside that of the same training run with less to read.

The control of a run is a run beside it, in the same folder, whose recipe differs by one value: `task.read=second` for
pairs of texts, `task.read=choices` for questions with choices. Its score is read from its folder, where `mallang
evaluate` keeps it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mallang import find, toml
from mallang.errors import UserError
from mallang.runs.folder import Run
from mallang.tasks.contract import Controlled

SHOWN = ("accuracy", "Spearman")
"""The score of a control that is shown: the first of these that a run has."""


def control_notes(run: Path, model: Controlled, name: str) -> list[str]:
    """The score of the control on the same split, or how to get it; nothing for a run that is a control itself."""
    if not model.control:
        return []
    changes = " ".join(model.control)
    found = control_run(run, model.control)
    if found is None:
        started = Run.open(run).info.get("from")
        command = f"mallang train {run} {changes} --name {run.name}-control" + (f" --from {started}" if started else "")
        return [f"a part of the input may tell enough by itself; the control ({changes}) is not trained: {command}"]
    score = kept_score(found, name)
    if score is None:
        return [f"the control ({changes}) is {found}, which is not scored on {name} yet: mallang evaluate {found}"]
    return [f"the control ({changes}), {found}, has {score[0]} {score[1]:.2f} on {name}"]


def control_run(run: Path, changes: Sequence[str]) -> Path | None:
    """The finished run beside this one whose recipe and start differ by these values, and by no other."""
    wanted = values_of(run, changes)
    for other in find.runs(run.parent):
        try:
            if other != run and Run.open(other).is_finished and values_of(other) == wanted:
                return other
        except UserError:
            continue  # a damaged run, or one that needs a plugin
    return None


def values_of(run: Path, changes: Sequence[str] = ()) -> dict[str, Any]:
    """The resolved recipe of a run and where it started, with some values changed."""
    opened = Run.open(run)
    values = {**opened.recipe().resolved.resolved(), "from": opened.info.get("from")}
    for change in changes:
        place, _, value = change.partition("=")
        section, _, key = place.partition(".")
        values[section] = {**values[section], key: toml.read_value(value)}
    return values


def kept_score(run: Path, name: str) -> tuple[str, float] | None:
    """The name and the value of the score of a run on a split, as its folder keeps it."""
    try:
        about = json.loads((run / "scores" / f"{name}.json").read_text("utf-8"))
        return next((score["name"], float(score["value"])) for score in about["scores"] if score["name"] in SHOWN)
    except (OSError, ValueError, KeyError, TypeError, StopIteration):
        return None
