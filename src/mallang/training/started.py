"""Recipes of a model by its bare name: values beneath the given ones, such as those of the run that it starts from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mallang.recipe import Resolved
from mallang.recipe_layers import Layer, Values
from mallang.runs.folder import Run


def like_start(resolved: Resolved, start: Path) -> Resolved:
    """The recipe with the model and the text of a run of the same model beneath the given values."""
    theirs = Run.open(start).recipe().resolved.values
    if theirs["model"]["name"] != resolved.values["model"]["name"]:
        return resolved
    return beneath(resolved, {key: theirs[key] for key in ("model", "text") if key in theirs}, f"as in {start}")


def beneath(resolved: Resolved, values: Values, origin: str = "fitted") -> Resolved:
    """The recipe with these values beneath the given ones."""
    named = {**values, "model": {"name": resolved.values["model"]["name"], **values.get("model", {})}}
    return replace(resolved, layers=(Layer(origin, named), *resolved.layers))


def is_bare(resolved: Resolved) -> bool:
    """Whether the user named a model and no recipe: all values come from the command line."""
    return all(layer.origin == "command line" for layer in resolved.layers)
