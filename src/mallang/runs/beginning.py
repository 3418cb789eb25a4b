"""How a run folder is begun, resumed, refused and locked."""

from __future__ import annotations

import fcntl
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import mallang
from mallang import recipe as recipes
from mallang.errors import UserError
from mallang.recipe import Recipe
from mallang.runs import own_files
from mallang.runs.data_places import here_of
from mallang.runs.files import PATIENCE, replace_file, unwritable
from mallang.runs.folder import FORMAT, Run, written_recipe
from mallang.runs.own_files import INFO, LOCK, RECIPE

BEGINNING = "beginning"
"""The status until the recipe is written and the files of an earlier run are removed."""
MOST = 20
"""How many differences between two recipes a message lists."""


def begin(
    folder: Path,
    recipe: Recipe,
    *,
    fresh: bool,
    start: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Run:
    """The run to train: a new one, or an unfinished one of the same recipe. The caller holds the folder's lock."""
    check_place(folder, recipe, fresh=fresh)
    if (folder / INFO).exists():
        run = None if fresh else begun(folder, recipe, start, say)
        if run is not None:
            own_files.sweep(folder)
            return run
    info = {
        "format": FORMAT,
        "status": BEGINNING,
        "task": recipe.task_name,
        "model": recipe.model_name,
        "recipe": recipe.name,
        "from": None if start is None else str(start),
        "seed": recipe.seed,
        "trained_in": here_of(folder),
        "mallang": mallang.__version__,
        "versions": {"python": platform.python_version(), "torch": str(torch.__version__)},
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        own_files.refuse_strange(folder)
        run = Run(folder, info).update()  # before files are removed: after a kill the old run is not resumed
        foreign = own_files.remove(folder)
    except OSError as error:
        raise unwritable(folder, error) from error
    if foreign:
        say(f"these in {folder} are not of mallang, and stay: {', '.join(foreign)}")
    replace_file(folder / RECIPE, recipe.resolved.to_toml().encode())
    return run.update(status="training")


def check_place(folder: Path, recipe: Recipe, *, fresh: bool) -> None:
    """Refuse a folder that is not empty and not a run, before anything is written to it."""
    if not folder.is_dir() or own_files.is_run(folder, fresh=fresh):
        return
    foreign = sorted(path.name for path in folder.iterdir() if not is_left_over(path, recipe))
    if foreign:
        raise UserError(
            f"{folder} is not empty and is no run folder: it holds {foreign[0]}", todo="choose another --name"
        )


def begun(folder: Path, recipe: Recipe, start: Path | None, say: Callable[[str], None]) -> Run | None:
    """The unfinished run in a folder; None where nothing has been trained yet, so that any recipe and data will do."""
    run = Run.open(folder)
    if run.info["status"] == BEGINNING:  # killed before it had its recipe
        return None
    changes = differences(run, recipe, start)
    listed = "".join(f"\n  {line}" for line in shortened(changes))
    todo = "--name NAME for another run, --fresh to train it from the start"
    if run.is_finished:
        raise UserError(
            f"{folder} is finished" + (f"; the recipe has changed since:{listed}" if changes else ""), todo=todo
        )
    if not own_files.has_checkpoint(folder):
        say(f"{folder}: the last try ended before its first checkpoint; training starts over")
        return None
    if changes:
        raise UserError(f"{folder} was started with another recipe:{listed}", todo=todo)
    return run


def shortened(changes: list[str]) -> list[str]:
    """The differences, and of many those of keys that both recipes have: another model or task brings its own."""
    if len(changes) <= MOST:
        return changes
    shown = sorted(changes, key=lambda line: "not set" in line)[:MOST]
    return [*shown, f"and {len(changes) - MOST} more"]


def differences(run: Run, recipe: Recipe, start: Path | None) -> list[str]:
    """The differences between the recipe of a run and a given one, one line each."""
    changes = recipes.difference(written_recipe(run.folder), recipe.resolved)
    before, now = run.info.get("from"), None if start is None else str(start)
    if before != now:
        changes.append(f"--from: {before or 'not given'} → {now or 'not given'}")
    return changes


def is_left_over(path: Path, recipe: Recipe) -> bool:
    """Whether a training run of this recipe that was killed just after its start may have left this file."""
    if path.name == RECIPE and path.is_file():
        # A kill during writing leaves half of this recipe; any other recipe is the user's own.
        return recipe.resolved.to_toml().encode().startswith(path.read_bytes())
    return path.name in (LOCK, f".draft-{INFO}", f".draft-{RECIPE}")


def await_run(folder: Path, info: dict[str, Any]) -> Run:
    """The run that the first process has prepared; a shared file system may show it with a delay."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            run = Run.open(folder)
        except UserError:
            run = None
        if run is not None and run.info == info:
            return run
        if time.monotonic() > end:
            raise UserError(
                f"this process does not see {folder} as the first one wrote it",
                todo="put the runs on a file system that all machines share: --runs FOLDER",
            )
        time.sleep(0.2)


@contextmanager
def locked(folder: Path, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock of a run folder while the block runs; wait up to `patience` seconds for its holder to exit."""
    end = time.monotonic() + patience
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Links are not followed and the file is not truncated: it might be someone else's.
        stream = os.fdopen(os.open(folder / LOCK, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666), "w")
    except OSError as error:
        raise unwritable(folder, error) from error
    with stream:
        while True:
            try:
                # Not flock: loader workers would inherit it, and hold it for seconds after a killed trainer.
                fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except (BlockingIOError, PermissionError) as error:
                if time.monotonic() >= end:
                    raise UserError(
                        f"another process is training {folder}", todo="wait for it, or use --name"
                    ) from error
                time.sleep(0.2)
        yield
