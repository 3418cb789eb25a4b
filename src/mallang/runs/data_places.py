"""Finds the files that a run was trained on: their paths are relative to the folder of the training command.

A run may be used from another folder, or be moved, alone or with its data. So relative paths are searched in the folder
that has the same position relative to the run as at training time, in the current folder, in the original folder of the
training command, and in $MALLANG_DATA.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mallang.data import corpus as corpora
from mallang.data import registry
from mallang.data.storage import data_folder


def here_of(folder: Path) -> dict[str, str]:
    """The training folder for run.json: its absolute path, and its path relative to the run."""
    try:
        current = Path.cwd()
        return {"folder": str(current), "from_run": os.path.relpath(current, folder.resolve())}
    except OSError:  # a folder that was removed meanwhile
        return {}


def places_of(folder: Path, info: Mapping[str, Any]) -> list[Path]:
    """The folders to search, the likeliest first."""
    trained_in = info.get("trained_in")
    known = trained_in if isinstance(trained_in, dict) else {}
    beside = known.get("from_run", "../..")  # runs/NAME, the default place of runs
    places = [Path.cwd()] if not known else []
    places += [Path(os.path.normpath(folder.resolve() / str(beside))), Path.cwd()]
    places += [Path(str(known["folder"]))] if "folder" in known else []
    own = data_folder()
    return list(dict.fromkeys([*places, *([own] if own is not None else [])]))


def located(data: corpora.Config, places: list[Path]) -> corpora.Config:
    """The data config with the paths at which its files were found; paths that are not found are unchanged."""
    changes: dict[str, Any] = {}
    for split in corpora.SPLITS:
        spec = getattr(data, split)
        if spec is not None and (found := first_found(spec, places)) is not None:
            changes[split] = found
    if data.corpora is not None:
        moved = {name: found_member(name, places) for name in data.corpora}
        changes["corpora"] = {moved[name]: weight for name, weight in data.corpora.items()}
        if data.domains is not None:
            changes["domains"] = {moved[name]: domain for name, domain in data.domains.items()}
    return replace(data, **changes) if changes else data


def found_member(name: str, places: list[Path]) -> str:
    """One of several corpora: its registered name, or the path at which a user's file was found."""
    if name == "miniworld" or name in registry.names():
        return name
    found = first_found(name, places)
    return found if isinstance(found, str) else name


def first_found(spec: str | list[str], places: list[Path]) -> str | list[str] | None:
    """A file, a stem or several files, in the first folder that has them; None where nothing has to change."""
    names = [spec] if isinstance(spec, str) else spec
    if spec == "-" or any(Path(name).expanduser().is_absolute() for name in names):
        return None
    for is_there in (Path.is_file, is_file_or_stem):  # a copy, train.tsv.bak, is not preferred to train.tsv elsewhere
        for place in places:
            paths = [f"{place}/{name}" for name in names]  # spelled as given: keys of corpora stay distinct
            if all(is_there(Path(path)) for path in paths):
                if place == Path.cwd():
                    return None
                return paths[0] if isinstance(spec, str) else paths
    return None


def is_file_or_stem(path: Path) -> bool:
    """Whether the path is a file, or the stem of several."""
    return path.is_file() or any(path.parent.glob(f"{glob.escape(path.name)}.*"))
