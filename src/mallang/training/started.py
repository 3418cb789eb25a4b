"""Recipes of a model by its bare name: values beneath the given ones, such as those of the run that it starts from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mallang.find import find, plain
from mallang.recipe import Resolved
from mallang.recipe_layers import Layer, Values
from mallang.runs.folder import Run
from mallang.runs.weights import AdaptsWeights


def like_start(resolved: Resolved, start: Path) -> Resolved:
    """The recipe with the text and the model of the run that it starts from beneath the given values.

    Another kind of model gets the shape that it can start with, if it says so; otherwise its own defaults.
    """
    recipe = Run.open(start).recipe()
    theirs, name = recipe.resolved.values, resolved.values["model"]["name"]
    found: Values = {key: theirs[key] for key in ("model", "text") if key in theirs}
    if plain(theirs["model"]["name"]) != plain(name):
        kind = find("models", name).Model
        shape = kind.adapted_shape(vars(recipe.model)) if issubclass(kind, AdaptsWeights) else {}
        found["model"] = {"name": name, **shape}
    return beneath(resolved, found, f"as in {start}")


def beneath(resolved: Resolved, values: Values, origin: str = "fitted") -> Resolved:
    """The recipe with these values beneath the given ones."""
    named = {**values, "model": {"name": resolved.values["model"]["name"], **values.get("model", {})}}
    return replace(resolved, layers=(Layer(origin, named), *resolved.layers))


def is_bare(resolved: Resolved) -> bool:
    """Whether the user named a model and no recipe: all values come from the command line."""
    return all(layer.origin == "command line" for layer in resolved.layers)
