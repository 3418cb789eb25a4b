"""`mallang coref`: which names, pronouns and nouns of a text mean the same."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mallang import console
from mallang.commands.inputs import STDIN
from mallang.commands.options import Device, Json, Plugin, Quiet, RunFolder, Texts, add_plugins, load_for
from mallang.commands.outputs import json_line
from mallang.errors import UserError
from mallang.tasks.result_json import as_json

if TYPE_CHECKING:
    from mallang.tasks.resolver import Resolution

EXAMPLES = (
    'mallang coref runs/e2e-coref-miniworld "민수는 지영을 만났다. 그는 그녀에게 책을 주었다."',
    "mallang coref runs/e2e-coref-litbank --file chapter.txt --out chapter.html",
    "mallang coref runs/e2e-coref-litbank --file chapter.txt --json",
)
File = Annotated[Path | None, typer.Option("--file", "-f", help="A file that is one text.", show_default=False)]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="FILE.html", help="Write a page in colors.", show_default=False)
]


def command(
    run: RunFolder,
    texts: Texts = None,
    file: File = None,
    out: Out = None,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Print each text with its mentions, one color for each cluster; without a terminal in brackets: [Minsu]1.

    Each TEXT is a document of its own; a file, or standard input, is one as a whole. --json prints a line for each: its
    words, and clusters of mentions with their places in the text. --out writes a page on which the mentions of a
    cluster light up together.
    """
    add_plugins(plugin)
    if out is not None and out.suffix != ".html":
        raise UserError(f"--out {out} is no .html file", todo="give a name that ends in .html")
    model = load_for(run, "coreference", "coref", device)
    found = model.coref(read_documents(texts, file))
    if out is not None:
        from mallang.inspection.coreference_page import write_page

        try:
            write_page(out, found)
        except OSError as error:
            raise UserError(f"cannot write {out}: {error.strerror or error}", todo="choose another name") from error
        if not quiet:
            typer.echo(f"the page is {out}", err=True)
    for each in found if json or out is None else ():
        print(json_line(as_json("coref", each))) if json else show(each)


def read_documents(texts: list[str] | None, file: Path | None) -> list[str]:
    """The texts: arguments, or one whole file."""
    from mallang.data.readers import lines

    if texts and file is not None:
        raise UserError("texts and --file were both given", todo="give one of them")
    if texts:
        return texts
    if file is None and sys.stdin.isatty():
        typer.echo("reading a text from the keyboard; Ctrl-D ends it", err=True)
    return ["\n".join(lines(file or STDIN))]


def show(found: Resolution) -> None:
    """A text in colors on a terminal, in brackets elsewhere."""
    from mallang.inspection.coreference_page import in_terminal

    screen = console.drawing()
    if screen.is_terminal:
        screen.print(in_terminal(found), soft_wrap=True, highlight=False)
    else:
        print(str(found))
