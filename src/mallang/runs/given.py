"""Pretrained models that a run uses: `[given]` of its recipe names their run folders.

    [given]
    features = "runs/elmo"

A given model is frozen, in eval mode, and never in the weights or checkpoints of the run that uses it. run.json holds a
sum over each, so that it is recognized wherever it is found again: the path is searched as those of data files are, and
beside the run. One that is missing or has changed is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor, nn

from mallang.errors import UserError
from mallang.find import no_run
from mallang.runs.data_places import places_of
from mallang.runs.files import sha256
from mallang.runs.folder import Run
from mallang.runs.model import open_model
from mallang.runs.own_files import INFO, RECIPE
from mallang.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Given:
    """A frozen model of another run, and the tokenizer of the text that it reads."""

    name: str
    """Its name in [given]."""
    folder: Path
    model: nn.Module
    tokenizer: Tokenizer
    task: str
    """The task that it was trained for."""
    fingerprint: str
    """A sum over its weights, its recipe and its tokenizers."""
    head: Mapping[str, Tensor] = field(default_factory=dict)
    """The weights of the head that its task put on the model, by their names in it; empty where there is none."""

    def unfit(self, why: str, todo: str) -> UserError:
        """The error for a model that does not obey the contract that a task needs."""
        return UserError(f"given.{self.name} = {self.folder}: {why}", todo=todo)


def open_given(wanted: Mapping[str, str], run: Run | None = None) -> dict[str, Given]:
    """The given models of a run by name; `run` is not known where a recipe is only looked at."""
    return {name: open_one(name, folder, run) for name, folder in wanted.items()}


def open_one(name: str, folder: str, run: Run | None) -> Given:
    """One given model."""
    other = locate(name, folder, run)
    with naming(name, other.folder):
        trained = open_model(other)
    model = trained.model.requires_grad_(False).eval()
    return Given(name, other.folder, model, trained.tokenizer, other.task, fingerprint_of(other), trained.head)


def locate(name: str, folder: str, run: Run | None = None) -> Run:
    """The run that a recipe gives, where it is now; if it was given before, the one that it was then."""
    known = None if run is None else run.info.get("given", {}).get(name)
    found = [path for path in candidates(folder, run) if (path / INFO).exists()]
    if not found:
        error = no_run(Path(folder))
        todo = error.todo if known is None else f"put it back where it was, or beside {run.folder if run else folder}"
        raise UserError(f"given.{name}: {error.what}", where=None if run is None else str(run.folder), todo=todo)
    for path in found:
        with naming(name, path):
            other = Run.open(path)
            if known in (None, fingerprint_of(other)):
                return other
    raise UserError(
        f"given.{name}: {found[0]} is not the run that {run.folder if run else 'this one'} was trained with",
        todo="restore it, or train again with --fresh",
    )


def candidates(folder: str, run: Run | None) -> list[Path]:
    """The folders that a path may mean, the likeliest first; an absolute one means itself, or one beside the run."""
    path = Path(folder).expanduser()
    places = [Path.cwd()] if run is None else places_of(run.folder, run.info)
    here, found = Path.cwd(), [place / path for place in places]
    if run is not None and "given" in run.info:  # its sum is known, so that no other run is mistaken for it
        found.append(run.folder.parent / path.name)
    return list(dict.fromkeys(each.relative_to(here) if each.is_relative_to(here) else each for each in found))


def fingerprint_of(run: Run) -> str:
    """A sum over all that decides what a finished model computes."""
    if not run.is_finished:
        raise UserError(f"{run.folder} is not finished", todo="train it to its end first")
    try:
        recipe = sha256(run.folder / RECIPE)
    except OSError as error:
        raise UserError(f"{run.folder / RECIPE} cannot be read: {error.strerror}", todo="restore the file") from error
    facts = [run.info.get("model"), run.info.get("weights"), run.info.get("tokenizers"), recipe]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


@contextmanager
def naming(name: str, folder: Path) -> Iterator[None]:
    """Add the name of the given run to errors that the block raises."""
    try:
        yield
    except UserError as error:
        raise UserError(f"given.{name} = {folder}: {error.what}", where=error.where, todo=error.todo) from error
