"""`mallang translate`: raw text in, raw text out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mallang.commands.inputs import read_texts
from mallang.commands.options import (
    Device,
    Domain,
    Int8,
    Json,
    Lexicon,
    Nbest,
    Plugin,
    Quiet,
    ReplaceUnknown,
    Reverse,
    RunFolder,
    Search,
    Texts,
    With,
    add_plugins,
    check_reverse,
    load_for,
    note_none,
    read_search,
)
from mallang.commands.outputs import several, show

if TYPE_CHECKING:
    pass

EXAMPLES = (
    'mallang translate runs/transformer-miniworld "민수는 사과를 먹었다."',
    "mallang translate runs/transformer-miniworld --file in.txt > out.txt",
    "cat in.txt | mallang translate runs/transformer-miniworld --json --search beam=8 --nbest 3",
    'mallang translate runs/transformer-miniworld "민수는 사과를 먹었다." --require Minsu --forbid pear',
    'mallang translate runs/unsupervised "Minsu ate an apple." --reverse',
    "mallang translate runs/a --with runs/b --with runs/c --file in.txt",
)
File = Annotated[
    Path | None,
    typer.Option("--file", "-f", help="Translate each line of this file; .jsonl: with demands.", show_default=False),
]
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
    reverse: Reverse = False,
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
    model = load_for(run, None, "translate", device, int8=int8, others=others)
    if reverse:
        check_reverse(model, run)
        model = model.reversed
    if nbest > 1:
        options = several(nbest, options, model.config)
    for result in model.stream(note_none(read_texts(texts, file), "translate", quiet=quiet), **options):
        show(result, json=json, nbest=nbest, scores=scores)
        if result.note and not quiet and not json:
            typer.echo(f"note: {result.input[:40]!r}: {result.note}", err=True)
