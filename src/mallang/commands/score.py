"""`mallang score`: how probable a model finds a given output."""

from __future__ import annotations

import json as json_format
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from mallang.commands.options import Device, Domain, Json, Plugin, RunFolder, With, add_plugins, load_for
from mallang.errors import UserError

EXAMPLES = (
    'mallang score runs/transformer-miniworld "민수는 사과를 먹었다." "Minsu ate an apple."',
    "mallang score runs/transformer-miniworld --file pairs.tsv --json",
)
Pair = Annotated[
    list[str] | None, typer.Argument(metavar="SOURCE TARGET", help="A source and its output.", show_default=False)
]
File = Annotated[
    Path | None, typer.Option("--file", "-f", help="Pairs, a line each, with a tab between.", show_default=False)
]


def command(
    run: RunFolder,
    pair: Pair = None,
    file: File = None,
    others: With = None,
    domain: Domain = None,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
) -> None:
    """Print the log-probability of given outputs: natural logarithm, the end of the sentence included.

    Without a pair or a file, pairs are read from standard input.
    """
    add_plugins(plugin)
    pairs = read_pairs(pair, file)
    model = load_for(run, None, "score", device, others=others)
    for chunk in model.score_chunks(pairs, domain):
        for scored in chunk:
            print(json_format.dumps(asdict(scored), ensure_ascii=False) if json else f"{scored.score:.4f}", flush=True)


def read_pairs(pair: list[str] | None, file: Path | None) -> Iterator[tuple[str, str]]:
    """The pairs to score."""
    if pair:
        if file is not None:
            raise UserError("a pair and --file were both given", todo="give one of them")
        if len(pair) != 2:
            raise UserError(f"a pair is two texts, but {len(pair)} were given", todo="quote each text, or use --file")
        return iter([(pair[0], pair[1])])
    return split_lines(file or Path("/dev/stdin"))


def split_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Pairs out of lines with one tab each."""
    from mallang.data.readers import lines

    for number, line in enumerate(lines(path), 1):
        source, tab, target = line.partition("\t")
        if not tab or "\t" in target:
            raise UserError("a line must hold a source, a tab and a target", where=f"{path}, line {number}")
        yield source, target
