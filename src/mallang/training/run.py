"""The run folder: all that is needed to use a model again, in open file formats.

recipe.toml            every value, resolved          model.safetensors     the weights, as model.* and head.*
run.json               status, seed, versions, sums    tokenizer.json        how text becomes ids (and text.json)
metrics.jsonl          the log of training             labels.COLUMN.json    the names of the labels of a column
card.md                the model card
checkpoints/           where an unfinished run resumes
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import safetensors.torch
import torch
from torch import Tensor

import mallang
from mallang import recipe as recipes
from mallang.data import corpus as corpora
from mallang.data.columns import NAMED, LabelSet
from mallang.errors import UserError, nearest
from mallang.find import find, names, no_run
from mallang.layers.convolution import fold_weights
from mallang.layers.quantization import quantize
from mallang.recipe import Recipe
from mallang.tasks.contract import Joining, column_kinds, text_columns
from mallang.text.tokenizer import Tokenizer
from mallang.training import own_files
from mallang.training.checkpoint import PATIENCE, load_tensors, replace_file, sha256, to_json, unwritable
from mallang.training.data_places import here_of, located, places_of
from mallang.training.precision import choose_device
from mallang.training.weights import from_file, set_weights, to_file

FORMAT = 1
Weights = Literal["float32", "int8"]
KINDS: dict[str, Any] = {
    **dict.fromkeys(("status", "task", "model", "recipe", "mallang"), str),
    **dict.fromkeys(("format", "seed", "steps", "parameters", "tokens"), int),
    **dict.fromkeys(("seconds", "flops"), int | float),
    **dict.fromkeys(("versions", "data", "tokenizers", "labels", "best", "fitted", "budget", "imported"), dict),
    **dict.fromkeys(("from", "weights"), str | None),
}
"""The types of the values of run.json; it may hold others."""
BEGINNING = "beginning"
"""The status until the recipe is written and the files of an earlier run are removed."""
INFO, RECIPE, WEIGHTS, LOCK = own_files.INFO, own_files.RECIPE, "model.safetensors", own_files.LOCK


@dataclass(frozen=True)
class Run:
    """The folder of a training run, finished or not."""

    folder: Path
    info: dict[str, Any]

    @classmethod
    def open(cls, folder: Path | str) -> Run:
        """The run in a folder; raises a UserError that says what is wrong where there is none."""
        folder = Path(folder)
        if not folder.is_dir():
            raise no_run(folder)
        try:
            info = json.loads((folder / INFO).read_text("utf-8"))
        except FileNotFoundError as error:
            raise UserError(f"{folder} is no run folder: it has no {INFO}") from error
        except (ValueError, RecursionError) as error:
            raise UserError(f"{folder / INFO} is damaged: {error}", todo="restore the file, or train again") from error
        if isinstance(info, dict) and isinstance(info.get("format"), int) and info["format"] > FORMAT:
            raise UserError(f"{folder} was written by a newer mallang ({info.get('mallang')})", todo="upgrade mallang")
        wrong = wrong_kind(info)
        if wrong is not None:
            raise UserError(f"{folder / INFO} is damaged: {wrong}", todo="restore the file, or train again")
        return cls(folder, info)

    @property
    def task(self) -> str:
        """The task it was trained for."""
        return str(self.info["task"])

    @property
    def is_finished(self) -> bool:
        """Whether training has finished."""
        return bool(self.info["status"] == "finished")

    def recipe(self) -> Recipe:
        """The recipe it was trained with."""
        model = str(self.info.get("model", ""))
        if model and model not in names("models"):
            raise UserError(
                f"there is no model {model!r}, which {self.folder} was trained with",
                todo="--plugin FILE.py, if it is a model of your own",
            )
        with naming_recipe(self.folder):
            return written_recipe(self.folder).build()

    def data(self) -> corpora.Config:
        """The data config of the run, with the current paths of its files; an imported run has none."""
        if self.info.get("imported"):
            raise UserError(
                f"{self.folder} was imported: what it was trained on is not known here",
                todo="give a text: --data FILE, or --corpus FILE where that is what to look in",
            )
        return located(self.recipe().data, places_of(self.folder, self.info))

    def update(self, **changes: Any) -> Run:
        """Write changed values to run.json."""
        info = {**self.info, **changes}
        replace_file(self.folder / INFO, to_json(info))
        return Run(self.folder, info)

    def write_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Write the final weights."""
        named = {name: value.detach().cpu().contiguous() for name, value in to_file(weights).items()}
        replace_file(self.folder / WEIGHTS, safetensors.torch.save(named, metadata={"format": "pt"}))

    def read_weights(self) -> dict[str, Tensor]:
        """The final weights, after checking their sha256 sum."""
        path = self.folder / WEIGHTS
        if not path.exists():
            if self.is_finished:
                raise UserError(f"{path} is missing", todo="restore the file, or train again")
            raise UserError(
                f"{self.folder} is not finished: it has no weights yet", todo="run its train command again: it resumes"
            )
        expected = self.info.get("weights")
        if expected is not None and sha256(path) != expected:
            raise UserError(f"{path} is damaged: its sha256 sum is not the one in {INFO}", todo="restore the file")
        return from_file(load_tensors(path))

    def tokenizers(self, columns: tuple[str, ...]) -> dict[str, Tokenizer]:
        """The tokenizer of each column; one for all where they share it."""
        main = Tokenizer.load(self.folder)
        own = {column: self.folder / f"tokenizer.{column}.json" for column in columns}
        found = {
            column: Tokenizer.load(self.folder, f"tokenizer.{column}") if path.exists() else main
            for column, path in own.items()
        }
        known = self.info.get("tokenizers", {})
        for column, tokenizer in found.items():
            if known.get(column, tokenizer.fingerprint) != tokenizer.fingerprint:
                raise UserError(
                    f"the tokenizer of the {column} is damaged: it is not the one that the run was trained with",
                    where=f"{self.folder}, tokenizer.json or text.json",
                    todo="restore the files, or train again",
                )
        return found


def open_task(run: Run, recipe: Recipe) -> Any:
    """The task of a run, with its tokenizers and sets of labels."""
    kind = find("tasks", run.task).Task
    tokenizers = run.tokenizers(text_columns(kind, recipe.task))
    kinds = column_kinds(kind, recipe.task)
    if not kinds:
        return kind(recipe.task, tokenizers)
    labels = {column: LabelSet.load(run.folder, column) for column, each in kinds.items() if each in NAMED}
    for column, known in run.info.get("labels", {}).items():
        if column in labels and labels[column].fingerprint != known:
            raise UserError(
                f"the labels of the {column} are damaged: they are not those that the run was trained with",
                where=str(run.folder / f"labels.{column}.json"),
                todo="restore the file, or train again",
            )
    return kind(recipe.task, tokenizers, labels)


def wrong_kind(info: Any) -> str | None:
    """A sentence that says which value of a run.json is wrong; None if all are right."""
    if not isinstance(info, dict):
        return "it is not a JSON object"
    for key in ("status", "task"):
        if key not in info:
            return f"it has no {key}"
    for key, kind in KINDS.items():
        value = info.get(key)
        if key in info and (not isinstance(value, kind) or isinstance(value, bool)):
            return f"its {key} is {json.dumps(value)[:80]}"
    return None


def load(path: Path | str | Sequence[Path | str], device: str = "auto", weights: Weights = "float32") -> Any:
    """A trained model with the verbs of its task: `mallang.load("runs/x").translate("...")`.

    Several runs, `mallang.load(["runs/a", "runs/b"])`, are an ensemble, which averages their probabilities.
    `weights="int8"` quantizes its matrices to int8: faster and smaller on a CPU, and nearly as good.
    """
    if not isinstance(path, Path | str):
        return load_ensemble(path, device, weights)
    place = choose_device(device)
    check_weights(weights, place)
    run = Run.open(path)
    return assemble(run, run.read_weights(), place, weights)


def assemble(run: Run, trained: Mapping[str, Tensor], place: torch.device, weights: Weights = "float32") -> Any:
    """The model of a run with given weights, such as those of a checkpoint, and the verbs of its task."""
    recipe = run.recipe()
    module = find("tasks", run.task)
    task = open_task(run, recipe)
    model = task.build(find("models", recipe.model_name), recipe.model)
    set_weights(model, trained, run.folder / WEIGHTS)
    fold_weights(model)
    model = model.to(place).eval()
    if weights == "int8":
        model = quantize(model)
    return module.Verbs(task, model, recipe.decoding, recipe.data.max_length)


def load_ensemble(paths: Sequence[Path | str], device: str, weights: Weights) -> Any:
    """Several runs as one model, an ensemble."""
    if not paths:
        raise UserError("no run was given to load", todo='mallang.load(["runs/a", "runs/b"])')
    tasks = {Run.open(path).task for path in paths}
    if len(tasks) > 1:
        raise UserError(f"runs for {' and '.join(sorted(tasks))} cannot be one model", todo="give runs of one task")
    first, *others = (load(path, device, weights) for path in paths)
    if not isinstance(first, Joining):
        raise UserError(f"runs for {first.task_name} cannot be joined", todo="load them one by one")
    return first.ensemble(others)


def check_weights(weights: str, place: torch.device) -> None:
    """Refuse unknown kinds of weights, and int8 on a GPU."""
    if weights not in get_args(Weights):
        raise UserError(f"weights cannot be {weights!r}", todo=nearest(weights, get_args(Weights)))
    if weights == "int8" and place.type != "cpu":
        raise UserError(
            "int8 weights are for the CPU, and the model would run on a GPU", todo='--device cpu, or device="cpu"'
        )


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
        run = None if fresh else begun(folder, recipe, start)
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


def begun(folder: Path, recipe: Recipe, start: Path | None) -> Run | None:
    """The unfinished run in a folder; None where it was started differently and nothing has been trained yet."""
    run = Run.open(folder)
    if run.info["status"] == BEGINNING:  # killed before it had its recipe
        return None
    changes = differences(run, recipe, start)
    listed = "".join(f"\n  {line}" for line in changes)
    todo = "--name NAME for another run, --fresh to train it from the start"
    if run.is_finished:
        raise UserError(
            f"{folder} is finished" + (f"; the recipe has changed since:{listed}" if changes else ""), todo=todo
        )
    if changes and (folder / "checkpoints").exists():
        raise UserError(f"{folder} was started with another recipe:{listed}", todo=todo)
    return None if changes else run


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


def written_recipe(folder: Path) -> recipes.Resolved:
    """The recipe in a run folder; read by its absolute path, since a folder may have the name of a recipe."""
    with naming_recipe(folder):
        found = recipes.read(str(folder.resolve()))
        if f"[{found.sections[-1]}]" not in (folder / RECIPE).read_text("utf-8"):
            raise UserError(
                f"{folder / RECIPE} is damaged: its end is missing", todo="restore the file, or train again"
            )
        return found


@contextmanager
def naming_recipe(folder: Path) -> Iterator[None]:
    """Add the path of the recipe to errors that the block raises."""
    try:
        yield
    except UserError as error:
        if str(folder / RECIPE) in str(error):
            raise
        todo = error.todo or "restore the file, or train again"
        raise UserError(error.what, where=str(folder / RECIPE), todo=todo) from error


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
