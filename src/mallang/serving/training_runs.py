"""Training runs that the page watches: their curves, read again whenever metrics.jsonl has grown.

A folder that is given holds a run, or runs in its subfolders, which need not be there yet.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mallang.errors import UserError
from mallang.inspection.shown_runs import curves
from mallang.training import record

MOST_RUNS = 100
"""Runs that are listed, the latest first."""
Key = tuple[int, int]
"""The time of the last change of a file, and its size."""


class TrainingRuns:
    """The training runs below some folders."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.given = folders
        self.read: dict[Path, tuple[Key, dict[str, Any]]] = {}

    def folders(self) -> dict[str, Path]:
        """The folders of all runs that have metrics by now, by name; the latest first."""
        files = {path for folder in self.given for path in (folder / record.FILE, *folder.glob(f"*/{record.FILE}"))}
        known = sorted(((change_of(path), path) for path in files if path.is_file()), reverse=True)
        found: dict[str, Path] = {}
        for _, path in known[:MOST_RUNS]:
            name = path.parent.resolve().name
            found[name if name not in found else f"{path.parent.resolve().parent.name}/{name}"] = path.parent
        return found

    def listed(self) -> list[dict[str, Any]]:
        """What is known of each run."""
        return [{"name": name, **self.about(folder)} for name, folder in self.folders().items()]

    def about(self, folder: Path) -> dict[str, Any]:
        """The status of a run, as its run.json has it."""
        try:
            info = json.loads((folder / "run.json").read_text("utf-8"))
        except (OSError, ValueError):
            info = {}
        status, model, task = (str(info.get(name, "")) for name in ("status", "model", "task"))
        return {"status": status, "model": model, "task": task, "changed": change_of(folder / record.FILE)[0] / 1e9}

    def curves(self, name: str) -> dict[str, Any] | None:
        """The curves of a run: for each kind and metric the steps and the values; None if there is no such run."""
        folder = self.folders().get(name)
        if folder is None:
            return None
        key = change_of(folder / record.FILE)
        if folder not in self.read or self.read[folder][0] != key:
            try:
                found = curves(folder)
            except UserError as error:  # a line that is damaged: the run is shown without curves, and why
                return {
                    "name": name,
                    **self.about(folder),
                    "curves": {},
                    "problem": error.what.replace(str(folder), name),
                }
            plain = {
                kind: {metric: table.tolist() for metric, table in metrics.items()} for kind, metrics in found.items()
            }
            self.read[folder] = key, plain
        return {"name": name, **self.about(folder), "curves": self.read[folder][1], "problem": None}


def change_of(path: Path) -> Key:
    """When a file was changed last, and its size: 0 if it is gone."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


def check_watched(folders: Sequence[Path]) -> None:
    """Refuse what is no folder."""
    for folder in folders:
        if not folder.is_dir():
            raise UserError("this is no folder", where=str(folder), todo="a run folder, or a folder of runs: runs")
