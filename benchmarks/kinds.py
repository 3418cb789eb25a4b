"""Kinds of results, from kinds.toml: their files, the command that measures them, and the code they depend on."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from mallang import recipe as recipes
from mallang.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Results that one command measures."""

    name: str
    table: str
    """Which of the files in results/tables/ lists them."""
    command: str
    """Measures them again; {name} is the experiment of a list."""
    files: tuple[str, ...]
    """Patterns of file names, without .json."""
    sources: tuple[str, ...]
    """Paths below src/mallang."""
    seed_option: str = ""
    """The option for another seed, if the command trains one."""
    speed: bool = False
    """Whether a change of the sources makes a value stale; else it is information."""


@cache
def kinds() -> tuple[Kind, ...]:
    """All kinds, in the order in which their patterns are tried."""
    whole = tomllib.loads(Path(__file__).with_name("kinds.toml").read_text("utf-8"))
    return tuple(
        Kind(**each | {"files": tuple(each["files"]), "sources": tuple(each["sources"])}) for each in whole["kinds"]
    )


@cache
def kind_of(file: str) -> Kind:
    """The kind of a result, by its file name without .json."""
    for kind in kinds():
        if any(fnmatchcase(file, pattern) for pattern in kind.files):
            return kind
    raise UserError(f"results/{file}.json is of no known kind", todo="add a pattern to benchmarks/kinds.toml")


def sources_of(value: Mapping[str, Any]) -> tuple[str, ...]:
    """The paths a result depends on: those of its kind, its recipe with its base, and its model."""
    below = (*kind_of(value["file"]).sources, *recipe_sources(value["recipe"]))
    return tuple(dict.fromkeys(f"src/mallang/{path}" for path in below))


@cache
def recipe_sources(name: str | None) -> tuple[str, ...]:
    """The files of a recipe and of its model; none where there is no such recipe."""
    if name is None or name not in recipes.names():
        return ()
    read = recipes.read(name)
    files = [f"recipes/{layer.path.name}" for layer in read.layers if layer.path]
    return (*files, f"models/{read.resolved()['model']['name'].replace('-', '_')}.py")


def command_of(value: Mapping[str, Any]) -> str:
    """What measures a result again."""
    return kind_of(value["file"]).command.format(name=experiment_of(value))


def experiment_of(value: Mapping[str, Any]) -> str:
    """The name of a result's experiment in its list: the file name up to the split, and to the corpus if it has one."""
    base = str(value["file"]).partition(f"-{value['split']}-")[0]
    corpus = str(value["corpus"] or "").replace("/", "-")
    return base if base in recipes.names() else base.removesuffix(f"-{corpus}")
