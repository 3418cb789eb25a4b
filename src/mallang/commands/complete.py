"""`mallang complete`: the missing end of a triple of a knowledge graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mallang.commands.options import Device, Json, Plugin, Quiet, RunFolder, add_plugins, load_for
from mallang.commands.outputs import json_line
from mallang.tasks.result_json import as_json

if TYPE_CHECKING:
    from mallang.tasks.completer import Completion

EXAMPLES = (
    "mallang complete runs/transe-miniworld eat takes",
    "mallang complete runs/transe-miniworld apple takes --heads",
    "mallang complete runs/transe-wn18rr 00260881 _hypernym",
    'mallang complete runs/transe-miniworld "listen to" takes --count 5 --json',
)
Entity = Annotated[str, typer.Argument(metavar="ENTITY", help="An entity of the graph.", show_default=False)]
Relation = Annotated[str, typer.Argument(metavar="RELATION", help="A relation of the graph.", show_default=False)]
Heads = Annotated[bool, typer.Option("--heads", help="ENTITY is the tail: ask for heads.")]
Count = Annotated[int, typer.Option("--count", "-k", min=1, help="Answers.")]


def command(
    run: RunFolder,
    entity: Entity,
    relation: Relation,
    heads: Heads = False,
    count: Count = 10,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Print the entities that complete a triple best: rank, score, entity, and whether the data has that triple.

    A score is minus a distance: the nearest entity comes first. With --heads the entity is the tail of the triple.
    """
    add_plugins(plugin)
    model = load_for(run, None, "complete", device)
    show(model.complete(entity, relation, heads=heads, count=count), json=json)


def show(found: Completion, *, json: bool) -> None:
    """A line per answer, or a line of JSON for all."""
    if json:
        print(json_line(as_json("complete", found)), flush=True)
        return
    known = found.known or (None,) * len(found.nbest)
    for rank, ((name, score), is_known) in enumerate(zip(found.nbest, known, strict=True), start=1):
        told = {True: "known", False: "new", None: ""}[is_known]
        print(f"{rank}\t{score:.4f}\t{name}\t{told}".rstrip(), flush=True)
