"""The examples that a recipe or a run is trained on, as a table: for tasks that make examples out of plain text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mallang import recipe as recipes
from mallang.errors import UserError
from mallang.loading import open_task
from mallang.runs.folder import Run
from mallang.tasks.contract import Showing
from mallang.training.defaults import fit_recipe
from mallang.training.materials import prepare_data


def training_examples(name: str, split: str, count: int, texts: Sequence[str]) -> list[dict[str, str]]:
    """The first examples of a split, or of given texts; a recipe learns its tokenizer first, a run has one."""
    folder = Path(name) if (Path(name) / "run.json").is_file() else None
    checked = recipes.read(name).build() if folder is None else Run.open(folder).recipe()
    if folder is not None and texts:
        task = open_task(Run.open(folder), checked)
    else:
        materials = prepare_data(checked if folder else fit_recipe(checked, print_nothing), folder)
        task = materials.task
    if not isinstance(task, Showing):
        raise UserError(
            f"{name} is trained on the rows of its corpus as they are",
            todo=f"mallang data show {checked.data.corpus}",
        )
    if texts:
        return task.shown(texts, count, checked.seed)
    if split not in ("train", "valid"):
        raise UserError(f"{name} is not trained on {split!r}", todo="--split train or --split valid")
    return task.shown(materials.train if split == "train" else materials.valid, count, checked.seed)


def print_nothing(text: str) -> None:
    """Where defaults that fit the data would be reported: an example is no training run."""
