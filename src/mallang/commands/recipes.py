"""`mallang recipes`: the systems that come with mallang, and what each of them says."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from mallang import console, recipe
from mallang.commands.options import Json, Quiet, complete_recipe, print_json
from mallang.inspection.recipe_list import in_words, summary
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
    """List the recipes, what each should reach and what was measured, or print one. With -q only the names.

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


def print_one(read: Resolved, *, as_json: bool) -> None:
    """A recipe as its author wrote it, or as JSON with every value and its origin."""
    if as_json:
        print_json({"name": read.name, "values": read.resolved(), "origins": read.origins})
        return
    path = read.layers[-1].path
    print(path.read_text(encoding="utf-8") if path else read.to_toml(), end="")


def print_table(rows: list[dict[str, Any]]) -> None:
    """A table for people; when piped, a line per recipe with tabs between the columns."""
    rows = [row | {"measured": in_words(row["measured"])} for row in rows]
    if not sys.stdout.isatty():
        for row in rows:
            print("\t".join(row.values()))
        return
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    columns = ("name", "corpus", "reach", "measured")  # what tells recipes apart; the recipe and --json say the rest
    for column in columns:
        table.add_column(column, no_wrap=column == "name")
    for row in rows:
        table.add_row(*(row[column] for column in columns))
    console.drawing().print(table)
