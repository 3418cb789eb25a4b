"""Checkpoints: folders that are written atomically, with checksums.

A checkpoint is written to a temporary folder, synced to disk and renamed; a manifest of sha256 sums detects damage, and
then the previous checkpoint is used. Tensors are safetensors, all else is JSON: nothing is ever unpickled.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from mallang.errors import UserError
from mallang.renamed import fit_names
from mallang.runs.files import PATIENCE, load_tensors, sha256, sync_folder, to_json, unwritable, write_file
from mallang.runs.own_files import CHECKPOINT, TENSORS, free_name, remove_checkpoint

MANIFEST = "manifest.json"
REQUIRED = ("model.safetensors", "optimizer.safetensors", "state.json")
"""Files that every checkpoint has."""


@dataclass(frozen=True)
class Checkpoint:
    """The whole state of the training loop after a step."""

    step: int
    state: Mapping[str, Any]
    tensors: Mapping[str, Mapping[str, Tensor]]
    """Tensors by file: `model`, `optimizer`, and `average` or `carry` where there is one."""


def write(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint atomically: if the machine dies at any moment, either all of it is there or nothing."""
    final = folder / name_of(checkpoint.step)
    draft = folder / f".draft-{final.name}"
    try:
        remove_checkpoint(draft)
        draft.mkdir(parents=True)
        for file, tensors in checkpoint.tensors.items():
            plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
            write_file(draft / f"{file}.safetensors", safetensors.torch.save(plain))
        write_file(draft / "state.json", to_json({"step": checkpoint.step, **checkpoint.state}))
        sums = {path.name: sha256(path) for path in sorted(draft.iterdir())}
        write_file(draft / MANIFEST, to_json(sums))
        sync_folder(draft)
        # One step may be saved twice, by a signal just after a validation: the newer checkpoint is kept.
        if not remove_checkpoint(final):
            final.rename(free_name(final.with_name(f"other-{final.name}")))
        draft.rename(final)
        sync_folder(folder)
    except OSError as error:
        with suppress(OSError):
            remove_checkpoint(draft)
        raise unwritable(folder, error) from error
    return final


def read(path: Path) -> Checkpoint:
    """Read a checkpoint after checking its sums; the error says what is damaged."""
    problem = damage(path)
    if problem:
        raise UserError(f"the checkpoint {path} is damaged: {problem}", todo="use an earlier one")
    state = json.loads((path / "state.json").read_text("utf-8"))
    files = [path / f"{name}.safetensors" for name in sorted(TENSORS)]
    tensors = {file.stem: load_tensors(file) for file in files if file.exists()}
    return Checkpoint(step=int(state.pop("step")), state=state, tensors=tensors)


def damage(path: Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        sums = json.loads((path / MANIFEST).read_text("utf-8"))
        there = (file for name in TENSORS if (path / (file := f"{name}.safetensors")).exists())
        expected_sums = dict(sums.items())
        if missing := [name for name in (*REQUIRED, *there) if name not in expected_sums]:
            return f"{MANIFEST} does not name {missing[0]}"
        for name, expected in expected_sums.items():
            if sha256(path / name) != expected:
                return f"{name} does not have the checksum of the manifest"
        step = json.loads((path / "state.json").read_text("utf-8"))["step"]
        if name_of(step) != path.name:
            return f"state.json is of step {step}"
    except FileNotFoundError as error:
        return f"{Path(str(error.filename)).name} is missing"
    except (OSError, ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        return f"{MANIFEST} cannot be read ({error})"
    return None


def found(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first, whole or damaged; copies under other names do not count."""
    named = [path for path in folder.glob("step-*") if CHECKPOINT.fullmatch(path.name)]
    return sorted((path for path in named if holds_checkpoint(path)), key=step_of)


def holds_checkpoint(path: Path) -> bool:
    """Whether any file of a checkpoint is there: foreign files stay when a checkpoint is removed."""
    return any((path / name).exists() for name in (MANIFEST, *REQUIRED))


def newest(folder: Path, say: Callable[[str], None]) -> Checkpoint | None:
    """The newest undamaged checkpoint; damaged ones are reported and skipped."""
    for path in reversed(found(folder)):
        problem = damage(path)
        if problem is None:
            return read(path)
        say(f"the checkpoint {path.name} is damaged ({problem}): going back to the one before it")
    return None


def resume(folder: Path, say: Callable[[str], None]) -> Checkpoint | None:
    """The checkpoint to resume from; newer ones, which are damaged, are renamed, or they would count as the newest."""
    saved = newest(folder, say)
    after = [path for path in found(folder) if saved is None or step_of(path) > saved.step]
    for path in after:
        aside = path.with_name(f"damaged-{path.name}")
        remove_checkpoint(aside)
        aside = free_name(aside)
        path.rename(aside)
        say(f"{path.name} is renamed to {aside.name}")
    if after and saved is None:
        say("no checkpoint is whole: the training starts over")
    return saved


def await_step(folder: Path, step: int) -> Checkpoint:
    """The checkpoint that another process found; a shared file system may show it with a delay."""
    path, end = folder / name_of(step), time.monotonic() + PATIENCE
    while (problem := damage(path)) is not None:
        if time.monotonic() > end:
            raise UserError(
                f"the first process continues from {path}, but this one cannot read it: {problem}",
                todo="put the runs on a file system that all machines share: --runs FOLDER",
            )
        time.sleep(0.2)
    return read(path)


def clear(folder: Path, *, keep: int, best: int) -> None:
    """Remove old checkpoints: the two newest, the `keep` newest that were validated and the best one stay."""
    paths = found(folder)
    needed = {*paths[-2:], *validated(folder)[-keep:], folder / name_of(best)}
    for path in paths:
        if path not in needed:
            remove_checkpoint(path)


def validated(folder: Path) -> list[Path]:
    """The checkpoints that a validation wrote, oldest first."""
    chosen = []
    for path in found(folder):
        try:
            state = json.loads((path / "state.json").read_text("utf-8"))
        except (OSError, ValueError):
            continue  # a damaged checkpoint is reported when it is needed
        if state.get("validated"):
            chosen.append(path)
    return chosen


def step_of(path: Path) -> int:
    """The step of a checkpoint, from its name."""
    return int(path.name.removeprefix("step-"))


def name_of(step: int) -> str:
    """The folder name of a step; names sort as steps do."""
    return f"step-{step:09d}"


def mean_weights(paths: Sequence[Path]) -> dict[str, Tensor]:
    """The average of the weights of several checkpoints, with one in memory at a time."""
    total: dict[str, Tensor] = {}
    # The names of the newest: an earlier version may have written the others.
    names = list(read(paths[-1]).tensors["model"])
    for path in paths:
        for name, value in fit_names(read(path).tensors["model"], names).items():
            is_summed = name in total and value.is_floating_point()
            addend = value.double() if value.is_floating_point() else value
            total[name] = total[name] + addend if is_summed else addend
    return {name: (value / len(paths)).float() if value.is_floating_point() else value for name, value in total.items()}
