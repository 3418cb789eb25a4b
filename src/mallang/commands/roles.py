"""`mallang roles`: who does what to whom in a text."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mallang import console
from mallang.commands.inputs import read_texts
from mallang.commands.options import Device, Json, Plugin, RunFolder, Texts, add_plugins, load_for, note_none
from mallang.commands.outputs import json_line
from mallang.tasks.result_json import as_json

if TYPE_CHECKING:
    from mallang.tasks.role_labeler import RoleLabeling

EXAMPLES = (
    'mallang roles runs/deep-srl-miniworld "할머니는 어제 그들에게 저 꽃을 주셨다."',
    'mallang roles runs/dependency-srl-english-propbank "Mary gave him a book." --predicates gave',
    "mallang roles runs/dependency-srl-english-propbank --file tokens.txt --pretokenized --json",
)
CHUNK = 256
"""Texts that are read before their roles are printed."""
File = Annotated[Path | None, typer.Option("--file", "-f", help="Take each line of this file.", show_default=False)]
Predicates = Annotated[
    str | None,
    typer.Option(
        "--predicates", metavar="WORDS", show_default=False,
        help="The predicates, as words or by number from 1, with commas between; else the model finds them.",
    ),
]  # fmt: skip
Pretokenized = Annotated[
    bool, typer.Option("--pretokenized", help="Words are what stands between spaces.", show_default=False)
]


def command(
    run: RunFolder,
    texts: Texts = None,
    file: File = None,
    predicates: Predicates = None,
    pretokenized: Pretokenized = False,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
) -> None:
    """Print each text once for every predicate, with the words that have a role: [AGENT Minsu] [V ate] [PATIENT bread].

    On a terminal the roles are colors. The model finds the predicates itself, unless --predicates names them; a text
    without any is printed with a note. With --json also the probabilities and the places in the text. `mallang inspect`
    writes the same as a page.
    """
    add_plugins(plugin)
    model = load_for(run, None, "roles", device)
    given = note_none(read_texts(texts, file), "label")
    wanted = None if predicates is None else [each.strip() for each in predicates.split(",") if each.strip()]
    while chunk := list(itertools.islice(given, CHUNK)):  # so that a file of any size needs little memory
        show(model.roles(chunk, predicates=wanted, pretokenized=pretokenized), json=json)


def show(results: list[RoleLabeling], *, json: bool) -> None:
    """The roles of some texts: in colors, as plain lines, or a line of JSON for each text."""
    from mallang.inspection.role_figures import all_roles, in_plain_text, in_terminal

    screen, roles = console.drawing(), all_roles(results)
    for found in results:
        if json:
            print(json_line(as_json("roles", found)), flush=True)
        elif screen.is_terminal:
            screen.print(in_terminal(found, roles), end="")
        else:
            print(in_plain_text(found), flush=True)
