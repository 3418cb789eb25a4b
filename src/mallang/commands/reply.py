"""`mallang reply`: answers of a run that was trained on dialogue."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mallang.commands.inputs import read_texts
from mallang.commands.options import (
    Device,
    Int8,
    Json,
    Nbest,
    Plugin,
    Quiet,
    RunFolder,
    Search,
    add_plugins,
    check_texts,
    load_for,
    note_none,
    read_search,
)
from mallang.commands.outputs import several, show

if TYPE_CHECKING:
    from mallang.decoding.contract import Config

EXAMPLES = (
    "mallang reply runs/transformer-korean-small-chatbot",
    'mallang reply runs/transformer-korean-small-chatbot "오늘 너무 피곤해"',
    'mallang reply runs/transformer-korean-small-chatbot "오늘 너무 피곤해" --varied --nbest 3',
    "cat questions.txt | mallang reply runs/transformer-korean-small-chatbot --json",
)
Texts = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TEXT",
        help="What is said; without any, a talk or standard input.",
        callback=check_texts,
        show_default=False,
    ),
]
Varied = Annotated[
    bool, typer.Option("--varied", help="Draw answers at random; another --search seed=N, others.", show_default=False)
]  # fmt: skip


def command(
    run: RunFolder,
    texts: Texts = None,
    search: Search = None,
    varied: Varied = False,
    nbest: Nbest = 1,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
    int8: Int8 = False,
    quiet: Quiet = False,
) -> None:
    """Answer what is said: in arguments, on standard input a line each, in order, or in a talk at the keyboard.

    Each answer is to one line alone; the model does not know what was said before. --varied draws answers at random;
    --search changes how: --search temperature=1.0 --search seed=7.
    """
    add_plugins(plugin)
    options = read_search(search)
    model = load_for(run, "dialogue", "reply", device, int8=int8)
    if varied:
        from mallang.tasks.dialogue import VARIED

        options = {**VARIED, **options}
    if nbest > 1:
        options = several(nbest, options, model.config)
    if not texts and not json and sys.stdin.isatty():
        return talk(model, options, nbest, quiet)
    given = note_none(read_texts(texts, None), "answer", quiet=quiet)
    # Many together are faster; who types them waits for the answer to each.
    alone = not texts and sys.stdin.isatty()
    for result in one_by_one(model, given, options) if alone else model.stream(given, **options):
        show(result, json=json, nbest=nbest, scores=False)
        if result.note and not quiet and not json:
            typer.echo(f"note: {result.input[:40]!r}: {result.note}", err=True)
    return None


def one_by_one(model: Any, texts: Iterable[str], options: Mapping[str, Any]) -> Iterator[Any]:
    """The answer to each text before the next one is read."""
    for turn, text in enumerate(texts):
        yield model.reply(text, **at_turn(turn, options, model.config))


def talk(model: Any, options: Mapping[str, Any], nbest: int, quiet: bool) -> None:
    """Answer what is typed until a line is empty; what was said stays above."""
    with contextlib.suppress(ImportError):  # with it the arrow keys work, and Hangul is erased syllable by syllable
        import readline  # noqa: F401

    if not quiet:
        typer.echo("say something; an empty line or Ctrl-D ends", err=True)
    turn = 0
    while True:
        try:
            text = input("> ").strip()
        except EOFError:
            print()
            return
        if not text:
            return
        result = model.reply(text, **at_turn(turn, options, model.config))
        for output, *_ in result.nbest[:nbest] if nbest > 1 else ((result.output,),):
            print(f"  {output}", flush=True)
        turn += 1


def at_turn(turn: int, options: Mapping[str, Any], config: Config) -> dict[str, Any]:
    """The options of one turn of a talk: what is drawn at random is drawn again, and all of it again with one seed."""
    if options.get("method", config.method) != "sampling":
        return dict(options)
    return {**options, "seed": int(options.get("seed", config.seed)) + turn}
