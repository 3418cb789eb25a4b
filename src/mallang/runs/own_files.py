"""The files of a run folder that mallang writes: the only ones that it ever removes.

The name alone decides, except under outputs/ and scores/, where users choose the names: there a file is mallang's when
it has scores beside it. Symbolic links are neither followed nor removed, whatever their names.
"""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mallang.errors import UserError

INFO, RECIPE, WEIGHTS, LOCK = "run.json", "recipe.toml", "model.safetensors", ".lock"
GRAPH = "graph.tsv"
"""The knowledge graph of a run that reads one."""
ADAPTER = "adapter.safetensors"
"""The updates of LoRA and the head, apart from the weights, which hold them too."""
CHECKPOINT = re.compile(r"step-\d{9,}")
TENSORS = ("model", "optimizer", "average", "carry")
"""The tensor files of a checkpoint."""
TRIAL = ".draft-trial"
"""The folder of a checkpoint that is written to be timed, and removed again."""
CHECKPOINTS = r"(\.draft-trial/)?checkpoints"
STEP_FOLDER = rf"{CHECKPOINTS}/(\.draft-)?step-\d{{9,}}|checkpoints/damaged-step-\d{{9,}}(\.\d+)?"
TRAINING = re.compile(
    r"(\.draft-)?(recipe\.toml|run\.json|(model|adapter)\.safetensors|metrics\.jsonl|card\.md)"
    r"|tokenizer(\.\w+)?\.json(\.partial)?|(tokenizer\.\w+\.)?text\.json(\.partial)?"
    r"|labels\.\w+\.json(\.partial)?|graph\.tsv(\.partial)?"
    rf"|({STEP_FOLDER})/(manifest\.json|state\.json|({'|'.join(TENSORS)})\.safetensors)"
    r"|tensorboard/events\.out\.tfevents\.[^/]+"
)
"""The files that a training run writes, by their path in the folder."""
VERBS = re.compile(r"(\.draft-)?(cost|calibration)\.json|outputs/(\.draft-)?[^/]+\.txt|scores/(\.draft-)?[^/]+\.json")
"""The files that other verbs write."""
FOLDERS = re.compile(rf"{CHECKPOINTS}|\.draft-trial|{STEP_FOLDER}|outputs|scores|tensorboard")
TEMPORARY = re.compile(r"(.*/)?\.draft-.*|.*\.partial")
"""Temporary files, which are renamed when complete."""
HOUR = 60 * 60


def remove(folder: Path) -> list[str]:
    """Remove a run, except the lock and run.json, which is rewritten; returns the foreign files, which stay."""
    refuse_strange(folder)
    found = list(walk(folder))  # before anything is removed: scores identify outputs
    ours = {name: path for path, name in found if is_own(path, name)}
    for name, path in ours.items():
        if name != INFO:
            remove_one(path)
    return sorted(name for _, name in found if name not in ours and name != LOCK)


def sweep(folder: Path) -> None:
    """Remove the temporary files of a killed training run; the caller holds the folder's lock.

    Other verbs write without the lock: their temporary files are removed once they are an hour old.
    """
    for path, name in list(walk(folder)):
        if not TEMPORARY.fullmatch(name) or not is_own(path, name):
            continue
        with suppress(OSError):
            if TRAINING.fullmatch(name) or FOLDERS.fullmatch(name) or time.time() - path.lstat().st_mtime > HOUR:
                remove_one(path)


def remove_checkpoint(path: Path) -> bool:
    """Remove a checkpoint; False where it is a link or holds foreign files, which stay."""
    if not os.path.lexists(path):
        return True
    if path.is_symlink():
        return False
    for name in ("manifest.json", "state.json", *(f"{tensors}.safetensors" for tensors in TENSORS)):
        if stat.S_ISREG(mode_of(path / name)):
            (path / name).unlink()
    with suppress(OSError):
        path.rmdir()
    return not path.exists()


def has_checkpoint(folder: Path) -> bool:
    """Whether a training run has left a checkpoint, whole or damaged."""
    checkpoints = folder / "checkpoints"
    return checkpoints.is_dir() and any(not path.name.startswith(".draft-") for path in checkpoints.iterdir())


def free_name(path: Path) -> Path:
    """The path, with a number appended where it exists."""
    tried, number = path, 1
    while os.path.lexists(tried):
        number += 1
        tried = path.with_name(f"{path.name}.{number}")
    return tried


def is_run(folder: Path, *, fresh: bool) -> bool:
    """Whether mallang wrote run.json: file names alone do not identify a run folder.

    Where run.json is damaged, or is missing with --fresh, the recipe beside it decides.
    """
    try:
        info = json.loads((folder / INFO).read_text("utf-8"))
        if isinstance(info, dict) and {"status", "task"} <= info.keys():
            return True
    except (OSError, ValueError, RecursionError):
        pass
    if not fresh and not (folder / INFO).exists():
        return False  # the recipe may be someone's own, or the last of a run whose weights are still there
    try:
        recipe = (folder / RECIPE).read_text("utf-8")
    except (OSError, ValueError):
        return False
    return all(f"\n[{section}]\n" in recipe for section in ("task", "model", "data", "schedule"))


def refuse_strange(folder: Path) -> None:
    """Refuse a folder that has a link, or a folder in place of a file, where a training run would write its files."""
    for path, name in walk(folder):
        mode = mode_of(path)
        if stat.S_ISLNK(mode):
            kind = "a symbolic link"
        elif TRAINING.fullmatch(name) and not stat.S_ISREG(mode):
            kind = "no file"
        elif FOLDERS.fullmatch(name) and "/" not in name and not stat.S_ISDIR(mode):
            kind = "no folder"
        else:
            continue
        if TRAINING.fullmatch(name) or FOLDERS.fullmatch(name):
            raise UserError(
                f"{path} is {kind}: mallang did not make it, and does not remove it",
                todo="move it away, or choose another --name",
            )


def walk(folder: Path) -> Iterator[tuple[Path, str]]:
    """Every path in the folder and its relative name, children first; only mallang's own folders are entered."""
    pending = [(folder, "")]
    found: list[tuple[Path, str]] = []
    while pending:
        parent, before = pending.pop()
        with os.scandir(parent) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                name = before + entry.name
                found.append((parent / entry.name, name))
                if entry.is_dir(follow_symlinks=False) and FOLDERS.fullmatch(name):
                    pending.append((parent / entry.name, f"{name}/"))
    yield from reversed(found)


def is_own(path: Path, name: str) -> bool:
    """Whether mallang wrote this file or folder."""
    mode = mode_of(path)
    if stat.S_ISDIR(mode):
        return FOLDERS.fullmatch(name) is not None
    if not stat.S_ISREG(mode):
        return False
    if TRAINING.fullmatch(name):
        return True
    return VERBS.fullmatch(name) is not None and ("/" not in name or is_kept_output(path))


def is_kept_output(path: Path) -> bool:
    """Whether a file of outputs/ or scores/ has scores that mallang wrote."""
    if path.name.startswith(".draft-"):
        return True
    try:
        about = json.loads((path.parent.parent / "scores" / f"{path.stem}.json").read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(about, dict) and {"split", "scores"} <= about.keys()


def remove_one(path: Path) -> None:
    """Remove a file, or a folder if it is empty."""
    if path.is_dir():
        with suppress(OSError):
            path.rmdir()
    else:
        path.unlink(missing_ok=True)


def mode_of(path: Path) -> int:
    """The file mode of a path, without following links; 0 where there is nothing."""
    try:
        return path.lstat().st_mode
    except OSError:
        return 0
