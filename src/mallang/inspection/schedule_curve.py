"""The learning rate schedule of a recipe by step: warm-up and decay, as training would set it.

    curve = schedule_curve(recipe.read("transformer-miniworld").build())
    curve.rates[199]        # of step 200

Effects of validation are left out: with `plateau` the curve is the learning rate before the first decay.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mallang.errors import UserError, require
from mallang.find import find
from mallang.inspection.figures import check_format, families, save
from mallang.models.contract import dim_of, is_fitted
from mallang.recipe import Recipe
from mallang.training.budget import is_alone
from mallang.training.defaults import fit_recipe
from mallang.training.materials import prepare_data
from mallang.training.schedule import multiplier
from mallang.training.train import source_of


@dataclass(frozen=True)
class ScheduleCurve:
    """The learning rate of every update."""

    rates: tuple[float, ...]
    """One learning rate per step, from step 1."""

    @property
    def peak(self) -> int:
        """The first step with the highest learning rate."""
        return self.rates.index(max(self.rates)) + 1

    def points(self, count: int) -> list[tuple[int, float]]:
        """About `count` evenly spaced steps, including the first, the peak and the last."""
        last = len(self.rates)
        even = {1 + round(place * (last - 1) / max(1, count - 1)) for place in range(count)}
        return [(step, self.rates[step - 1]) for step in sorted(even | {1, self.peak, last})]


def schedule_curve(recipe: Recipe) -> ScheduleCurve:
    """The curve of a recipe; if it counts epochs, its data is prepared to compute the number of updates."""
    if is_fitted(find("models", recipe.model_name)):
        raise UserError(f"{recipe.model_name} is fitted without gradients: it has no learning rate")
    recipe = fit_recipe(recipe, lambda text: None)  # as training would, where nothing but data was given
    if is_alone(recipe.train):
        raise UserError(
            "train.seconds alone: how many updates there will be is measured when training begins",
            todo="give train.steps to see a schedule of that length",
        )
    dim = dim_of(recipe.model)
    if dim is None and recipe.schedule.name == "noam":
        raise UserError("the noam schedule needs to know a size, but the model's config has no `dim`")
    total = recipe.train.steps or updates_of(recipe)
    each = (multiplier(recipe.schedule, step, total=total, dim=dim or 1) for step in range(1, total + 1))
    return ScheduleCurve(tuple(recipe.optimizer.learning_rate * factor for factor in each))


def updates_of(recipe: Recipe) -> int:
    """The number of updates of the recipe's epochs, by one process on a CPU."""
    config = recipe.train
    batches = len(source_of(recipe, prepare_data(recipe, None), torch.device("cpu")).plan(0))
    return math.ceil(batches * (config.epochs or 10) / (config.micro_batches or config.gradient_accumulation))


def draw_schedules(path: Path, curves: Mapping[str, ScheduleCurve]) -> Path:
    """One line per recipe."""
    check_format(path)
    figure: Any = require("matplotlib.figure", "plots").Figure(figsize=(6.4, 4.2), layout="constrained")
    field = figure.subplots()
    for name, curve in curves.items():
        field.plot(range(1, len(curve.rates) + 1), curve.rates, label=name)
    field.set_xlabel("step")
    field.set_ylabel("learning rate")
    field.grid(alpha=0.3)
    field.legend(prop={"family": families(), "size": 9})
    for text in field.get_legend().get_texts():
        text.set(fontfamily=families(), parse_math=False)
    save(figure, path)
    return path
