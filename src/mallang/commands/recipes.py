"""`mallang recipes`: the systems that come with mallang, and what each of them says."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from mallang import console, recipe
from mallang.commands.options import Json, Quiet, complete_recipe, print_json
from mallang.recipe import Resolved

EXAMPLES = (
    "mallang recipes",
    "mallang recipes transformer-miniworld > my.toml",
    "mallang recipes transformer-miniworld --json",
)
Chosen = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="Print this one.", autocompletion=complete_recipe, show_default=False),
]


def command(name: Chosen = None, json: Json = False, quiet: Quiet = False) -> None:
    """List the recipes, or print one. With -q the list holds the names only.

    A recipe is a system on a corpus. The printed one can be edited and trained: mallang train my.toml
    """
    if name is not None:
        print_one(recipe.read(name), as_json=json)
    elif json:
        print_json([summary(recipe.read(each)) for each in recipe.names()])
    elif quiet:
        print("\n".join(recipe.names()))
    else:
        print_table([summary(recipe.read(each)) for each in recipe.names()])


def summary(read: Resolved) -> dict[str, str]:
    """What the list shows of a recipe."""
    whole = read.resolved()
    data = whole["data"]
    corpus = data.get("train") or ", ".join(data.get("corpora") or {}) or data["corpus"]
    system = whole["model"]["name"].replace("_", "-")
    return {
        "name": read.name,
        "system": system,
        "corpus": str(corpus),
        "paper": whole["paper"],
        "reach": whole["reach"],
    }


def print_one(read: Resolved, *, as_json: bool) -> None:
    """A recipe as its author wrote it, or as JSON with every value and its origin."""
    if as_json:
        print_json({"name": read.name, "values": read.resolved(), "origins": read.origins})
        return
    path = read.layers[-1].path
    print(path.read_text(encoding="utf-8") if path else read.to_toml(), end="")


def print_table(rows: list[dict[str, str]]) -> None:
    """A table for people; when piped, a line a recipe with tabs between the columns."""
    if not sys.stdout.isatty():
        for row in rows:
            print("\t".join(row.values()))
        return
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("name", "corpus", "reach"):  # what tells recipes apart; the recipe itself and --json say the rest
        table.add_column(column, no_wrap=column == "name")
    for row in rows:
        table.add_row(row["name"], row["corpus"], row["reach"])
    console.drawing().print(table)
