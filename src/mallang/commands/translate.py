"""`mallang translate`: raw text in, raw text out."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mallang.commands.options import (
    Device,
    Domain,
    Int8,
    Json,
    Lexicon,
    Plugin,
    Quiet,
    ReplaceUnknown,
    RunFolder,
    Search,
    Texts,
    With,
    add_plugins,
    load_for,
    note_none,
    read_search,
)
from mallang.errors import UserError

if TYPE_CHECKING:
    from mallang.decoding.contract import Config
    from mallang.tasks.translator import Translation

EXAMPLES = (
    'mallang translate runs/transformer-miniworld "민수는 사과를 먹었다."',
    "mallang translate runs/transformer-miniworld --file in.txt > out.txt",
    "cat in.txt | mallang translate runs/transformer-miniworld --json --search beam=8 --nbest 3",
    'mallang translate runs/transformer-miniworld "민수는 사과를 먹었다." --require Minsu --forbid pear',
    "mallang translate runs/a --with runs/b --with runs/c --file in.txt",
)
File = Annotated[
    Path | None,
    typer.Option("--file", "-f", help="Translate each line of this file; .jsonl: with demands.", show_default=False),
]
Nbest = Annotated[int, typer.Option("--nbest", min=1, help="Outputs for each text.")]
Prefix = Annotated[
    str, typer.Option("--prefix", metavar="WORDS", help="Words that outputs begin with.", show_default=False)
]
Require = Annotated[
    list[str] | None,
    typer.Option("--require", metavar="PHRASE", help="What outputs must hold. Repeatable.", show_default=False),
]
Forbid = Annotated[
    list[str] | None,
    typer.Option("--forbid", metavar="PHRASE", help="What outputs must not hold. Repeatable.", show_default=False),
]
Scores = Annotated[bool, typer.Option("--scores", help="Print the score before each output.", show_default=False)]


def command(
    run: RunFolder,
    texts: Texts = None,
    file: File = None,
    nbest: Nbest = 1,
    scores: Scores = False,
    search: Search = None,
    prefix: Prefix = "",
    require: Require = None,
    forbid: Forbid = None,
    replace_unknown: ReplaceUnknown = False,
    lexicon: Lexicon = None,
    others: With = None,
    domain: Domain = None,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
    int8: Int8 = False,
    quiet: Quiet = False,
) -> None:
    """Translate texts from arguments, a file or standard input, a line each, in order.

    --search changes how outputs are looked for: --search beam=8 --search method=greedy. A .jsonl file holds a text and
    what is asked of its translation on each line: {"text": "…", "prefix": "…", "require": ["…"], "forbid": ["…"]}.
    """
    add_plugins(plugin)
    options = read_search(search)
    if nbest == 1 and isinstance(options.get("nbest"), int):
        nbest = options["nbest"]
    options |= {"prefix": prefix, "require": require or (), "forbid": forbid or ()}
    options |= {"replace_unknown": replace_unknown, "lexicon": lexicon, "domain": domain}
    model = load_for(run, "translation", "translate", device, int8=int8, others=others)
    if nbest > 1:
        options = several(nbest, options, model.config)
    for result in model.stream(note_none(read_texts(texts, file), "translate", quiet=quiet), **options):
        show(result, json=json, nbest=nbest, scores=scores)
        if result.note and not quiet and not json:
            typer.echo(f"note: {result.input[:40]!r}: {result.note}", err=True)


def several(nbest: int, options: Mapping[str, Any], config: Config) -> dict[str, Any]:
    """The search options for so many outputs: a beam that is too narrow is widened, unless its width was given."""
    is_beam = options.get("method", config.method) == "beam"
    width = {"beam": nbest} if is_beam and config.beam < nbest else {}
    return {**width, **options, "nbest": nbest}


def read_texts(texts: Iterable[str] | None, file: Path | None) -> Iterator[Any]:
    """The texts to work on, a line at a time; blank lines stay, so that line i of the output belongs to line i."""
    from mallang.data.readers import lines

    if texts and file is not None:
        raise UserError("texts and --file were both given", todo="give one of them")
    if texts:
        return iter(texts)
    if file is None and sys.stdin.isatty():
        typer.echo("reading from the keyboard, a text a line; Ctrl-D ends", err=True)
    if file is not None and ".jsonl" in file.suffixes:
        return read_requests(file)
    return lines(file or Path("/dev/stdin"))


def read_requests(file: Path) -> Iterator[Any]:
    """Texts with what is asked of their translations, a JSON object a line."""
    from mallang.data.readers import lines
    from mallang.tasks.demands import Request

    for number, line in enumerate(lines(file), start=1):
        try:
            yield Request.of(json_format.loads(line))
        except ValueError as error:
            raise UserError(f"this is no JSON: {error}", where=f"{file}, line {number}") from error
        except UserError as error:
            raise UserError(error.what, where=f"{file}, line {number}", todo=error.todo) from error


def show(result: Translation, *, json: bool, nbest: int, scores: bool) -> None:
    """Print one result, at once: someone may be waiting at the other end of a pipe."""
    if json:
        print(json_line(as_json(result, nbest, scores=scores)), flush=True)
    elif nbest > 1:
        for output, value, _ in result.nbest[:nbest] or ((result.output, result.score, result.score),):
            print(f"{value:.4f}\t{output}" if scores else output, flush=True)
    else:
        print(f"{result.score:.4f}\t{result.output}" if scores else result.output, flush=True)


def json_line(line: dict[str, Any]) -> str:
    """A line of JSON, which has no infinite numbers: the score of what is impossible is null."""
    from mallang.inspection.comparison_tables import finite

    return json_format.dumps(finite(line), ensure_ascii=False, allow_nan=False)


def as_json(result: Translation, nbest: int, *, scores: bool = False) -> dict[str, Any]:
    """What `--json` prints of a result; with `--scores` also the log-probability of each token."""
    line: dict[str, Any] = {
        "input": result.input,
        "output": result.output,
        "score": result.score,
        "tokens": list(result.tokens),
        "nbest": [
            {"output": output, "score": value, "normalized": rank} for output, value, rank in result.nbest[:nbest]
        ],
    }
    if scores:
        line["token_scores"] = list(result.token_scores)
    if result.note:
        line["note"] = result.note
    return line
