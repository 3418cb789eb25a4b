"""`mallang translate`: raw text in, raw text out."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mallang.commands.options import (
    Device,
    Domain,
    Int8,
    Json,
    Plugin,
    Quiet,
    RunFolder,
    Search,
    add_plugins,
    load_for,
    read_search,
)

if TYPE_CHECKING:
    from mallang.tasks.translation import Translation

EXAMPLES = (
    'mallang translate runs/transformer-miniworld "민수는 사과를 먹었다."',
    "mallang translate runs/transformer-miniworld --file in.txt > out.txt",
    "cat in.txt | mallang translate runs/transformer-miniworld --json --search beam=8 --nbest 3",
)
Texts = Annotated[
    list[str] | None, typer.Argument(metavar="TEXT", help="Texts; without any, standard input.", show_default=False)
]
File = Annotated[
    Path | None, typer.Option("--file", "-f", help="Translate each line of this file.", show_default=False)
]
Nbest = Annotated[int, typer.Option("--nbest", min=1, help="Outputs for each text.")]
Scores = Annotated[bool, typer.Option("--scores", help="Print the score before each output.", show_default=False)]


def command(
    run: RunFolder,
    texts: Texts = None,
    file: File = None,
    nbest: Nbest = 1,
    scores: Scores = False,
    search: Search = None,
    domain: Domain = None,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
    int8: Int8 = False,
    quiet: Quiet = False,
) -> None:
    """Translate texts from arguments, a file or standard input, a line each, in order.

    --search changes how outputs are looked for: --search beam=8 --search method=greedy.
    """
    add_plugins(plugin)
    options = read_search(search)
    if nbest > 1:
        options["nbest"] = nbest
        if options.get("method", "beam") == "beam":
            options.setdefault("beam", max(5, nbest))
    elif isinstance(options.get("nbest"), int):
        nbest = options["nbest"]
    model = load_for(run, "translation", "translate", device, int8=int8)
    for result in model.stream(read_texts(texts, file), domain=domain, **options):
        show(result, json=json, nbest=nbest, scores=scores)
        if result.note and not quiet and not json:
            typer.echo(f"note: {result.input[:40]!r} was {result.note}", err=True)


def read_texts(texts: Iterable[str] | None, file: Path | None) -> Iterator[str]:
    """The texts to work on, a line at a time; blank lines stay, so that line i of the output belongs to line i."""
    from mallang.data.readers import lines
    from mallang.errors import UserError

    if texts and file is not None:
        raise UserError("texts and --file were both given", todo="give one of them")
    if texts:
        return iter(texts)
    if file is None and sys.stdin.isatty():
        typer.echo("reading from the keyboard, a text a line; Ctrl-D ends", err=True)
    return lines(file or Path("/dev/stdin"))


def show(result: Translation, *, json: bool, nbest: int, scores: bool) -> None:
    """Print one result, at once: someone may be waiting at the other end of a pipe."""
    if json:
        print(json_format.dumps(as_json(result, nbest), ensure_ascii=False), flush=True)
    elif nbest > 1:
        for output, value, _ in result.nbest[:nbest] or ((result.output, result.score, result.score),):
            print(f"{value:.4f}\t{output}" if scores else output, flush=True)
    else:
        print(f"{result.score:.4f}\t{result.output}" if scores else result.output, flush=True)


def as_json(result: Translation, nbest: int) -> dict[str, Any]:
    """What `--json` prints of a result."""
    line: dict[str, Any] = {
        "input": result.input,
        "output": result.output,
        "score": result.score,
        "tokens": list(result.tokens),
        "nbest": [
            {"output": output, "score": value, "normalized": rank} for output, value, rank in result.nbest[:nbest]
        ],
    }
    if result.note:
        line["note"] = result.note
    return line
