"""`mallang neighbors`: the words nearest to a word, and analogies."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mallang.commands.inputs import read_texts
from mallang.commands.options import (
    Device,
    Json,
    Plugin,
    Quiet,
    RunFolder,
    add_plugins,
    check_texts,
    load_for,
    note_none,
)
from mallang.errors import UserError

if TYPE_CHECKING:
    from mallang.tasks.word_lookup import Neighbors

EXAMPLES = (
    "mallang neighbors runs/word2vec-wikitext-2 river film",
    "mallang neighbors runs/word2vec-wikitext-2 --analogy king man woman",
    "mallang neighbors runs/fasttext-nsmc-text 재밌었어용 --count 5",
    "mallang neighbors runs/glove-miniworld --file words.txt --json",
)
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="WORD", help="Words; without any, standard input.", callback=check_texts, show_default=False
    ),
]
File = Annotated[Path | None, typer.Option("--file", "-f", help="Take each line of this file.", show_default=False)]
Analogy = Annotated[
    tuple[str, str, str] | None,
    typer.Option("--analogy", metavar="A B C", help="What is nearest to A − B + C.", show_default=False),
]
Count = Annotated[int, typer.Option("--count", "-k", min=1, help="Neighbors of each word.")]


def command(
    run: RunFolder,
    words: Words = None,
    file: File = None,
    analogy: Analogy = None,
    count: Count = 10,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Print the words nearest to each word by the cosine of their vectors: word, neighbor, cosine, with tabs between.

    With --analogy king man woman it is the words nearest to king − man + woman. A run of fasttext has vectors of words
    outside its vocabulary, too, from their character n-grams. Blank lines are left out.
    """
    add_plugins(plugin)
    if analogy is not None:
        if words or file:
            raise UserError("--analogy and other words were both given", todo="give one of them")
        show(load_for(run, None, "neighbors", device).analogy(*analogy, count), json=json)
        return
    given = [word for word in read_texts(words, file) if word.strip()]
    model = load_for(run, None, "neighbors", device)
    for word in note_none(given, "look up", quiet=quiet):
        show(model.neighbors(word, count), json=json)


def show(found: Neighbors, *, json: bool) -> None:
    """A line per neighbor, or a line of JSON for all."""
    if json:
        neighbors = [{"word": word, "cosine": cosine} for word, cosine in found.neighbors]
        print(json_format.dumps({"input": found.input, "neighbors": neighbors}, ensure_ascii=False), flush=True)
        return
    for word, cosine in found.neighbors:
        print(f"{found.input}\t{word}\t{cosine:.4f}", flush=True)
