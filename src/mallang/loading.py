"""A trained model with the verbs of its task: what `mallang.load` gives.

The file is not called load.py: importing a module `mallang.load` would hide the function of that name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from mallang.data.columns import NAMED, LabelSet
from mallang.errors import UserError, nearest
from mallang.find import find
from mallang.layers.convolution import fold_weights
from mallang.layers.lora import are_adapted, merge_adapters
from mallang.layers.quantization import quantize
from mallang.recipe import Recipe
from mallang.runs.calibration import read_calibration
from mallang.runs.device import choose_device
from mallang.runs.facts import facts_of
from mallang.runs.folder import Run
from mallang.runs.given import open_given
from mallang.runs.own_files import WEIGHTS
from mallang.runs.weights import set_weights
from mallang.tasks.contract import (
    Calibrated,
    Distilling,
    Joining,
    ReadsFacts,
    column_kinds,
    kept_weights,
    make_task,
    text_columns,
)
from mallang.tasks.graphs import kept_graph

Weights = Literal["float32", "int8"]


def load(path: Path | str | Sequence[Path | str], device: str = "auto", weights: Weights = "float32") -> Any:
    """A trained model with the verbs of its task: `mallang.load("runs/x").translate("...")`.

    Several runs, `mallang.load(["runs/a", "runs/b"])`, are an ensemble, which averages their probabilities.
    `weights="int8"` quantizes its matrices to int8: faster and smaller on a CPU, and nearly as good. A calibration in
    the run folder was fitted for the float32 weights, so that probabilities by int8 weights are not calibrated.
    """
    if not isinstance(path, Path | str):
        return load_ensemble(path, device, weights)
    place = choose_device(device)
    check_weights(weights, place)
    run = Run.open(path)
    verbs = assemble(run, run.read_weights(), place, weights)
    if weights == "float32" and isinstance(verbs, Calibrated) and (kept := read_calibration(run)) is not None:
        verbs.calibration = kept.calibration
    if isinstance(verbs, ReadsFacts) and not run.info.get("imported"):
        verbs.facts = lambda: facts_of(run, verbs.task.columns)
    return verbs


def assemble(run: Run, trained: Mapping[str, Tensor], place: torch.device, weights: Weights = "float32") -> Any:
    """The model of a run with given weights, such as those of a checkpoint, and the verbs of its task."""
    recipe = run.recipe()
    module = find("tasks", run.task)
    task = open_task(run, recipe)
    model = task.build(find("models", recipe.model_name), recipe.model)
    if not are_adapted(trained):  # a finished run has merged weights, a checkpoint has not
        merge_adapters(model)
    set_weights(model, kept_weights(module.Task, trained), run.folder / WEIGHTS)
    merge_adapters(model)
    fold_weights(model)
    model = model.to(place).eval()
    if weights == "int8":
        model = quantize(model)
    return module.Verbs(task, model, recipe.decoding, recipe.data.max_length)


def open_task(run: Run, recipe: Recipe) -> Any:
    """The task of a run, with its tokenizers, its sets of labels and the models that it is given."""
    kind = find("tasks", run.task).Task
    tokenizers = run.tokenizers(text_columns(kind, recipe.task))
    kinds = column_kinds(kind, recipe.task)
    labels = {column: LabelSet.load(run.folder, column) for column, each in kinds.items() if each in NAMED}
    for column, known in run.info.get("labels", {}).items():
        if column in labels and labels[column].fingerprint != known:
            raise UserError(
                f"the labels of the {column} are damaged: they are not those that the run was trained with",
                where=str(run.folder / f"labels.{column}.json"),
                todo="restore the file, or train again",
            )
    given = {} if issubclass(kind, Distilling) else open_given(recipe.given, run)
    return make_task(kind, recipe.task, tokenizers, labels, given, kept_graph(kind, run))


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
