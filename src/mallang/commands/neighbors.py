"""`mallang neighbors`: the words nearest to a word, also to one in its sentence, and analogies."""

from __future__ import annotations

import json as json_format
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mallang.commands.inputs import read_texts
from mallang.commands.options import (
    Device,
    Json,
    Plugin,
    Quiet,
    RunFolder,
    add_plugins,
    check_run,
    check_texts,
    load_for,
    note_none,
)
from mallang.commands.outputs import json_line
from mallang.errors import UserError
from mallang.tasks.result_json import as_json

if TYPE_CHECKING:
    from mallang.tasks.word_lookup import Neighbors

EXAMPLES = (
    "mallang neighbors runs/word2vec-wikitext-2 river film",
    "mallang neighbors runs/word2vec-wikitext-2 --analogy king man woman",
    "mallang neighbors runs/fasttext-nsmc-text 재밌었어용 --count 5",
    "mallang neighbors runs/glove-miniworld --file words.txt --json",
    'mallang neighbors runs/elmo-miniworld 배 --context "유나는 지난주에 배를 탔다." --file texts.txt --map map.png',
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
Context = Annotated[
    str | None,
    typer.Option("--context", "-c", help="The sentence of the word; --file has the others.", show_default=False),
]
Layer = Annotated[
    int | None,
    typer.Option("--layer", min=0, help="With --context: the layer, from 0; usual: last.", show_default=False),
]
AnyWord = Annotated[
    bool, typer.Option("--any-word", help="With --context: all words, not this one alone.", show_default=False)
]
MapFile = Annotated[
    list[Path] | None,
    typer.Option(
        "--map", metavar="FILE", help="With --context: draw the contexts of the word: .png, .svg, .json. Repeatable.",
        show_default=False,
    ),
]  # fmt: skip


def command(
    run: RunFolder,
    words: Words = None,
    file: File = None,
    analogy: Analogy = None,
    context: Context = None,
    layer: Layer = None,
    any_word: AnyWord = False,
    maps: MapFile = None,
    count: Count = 10,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Print the words nearest to each word by the cosine of their vectors: word, neighbor, cosine, with tabs between.

    With --analogy king man woman it is the words nearest to king − man + woman. A run of fasttext has vectors of words
    outside its vocabulary, too, from their character n-grams. Blank lines are left out.

    With --context SENTENCE the word is one of that sentence, and any run of an encoder will do: elmo, bert,
    transformer_encoder, rnn_lm. Its neighbors are occurrences of the word in the other sentences, those of --file or of
    standard input: word, cosine, sentence. A Korean word counts with any ending.
    """
    add_plugins(plugin)
    if analogy is not None:
        if words or file or context is not None:
            raise UserError("--analogy and other words were both given", todo="give one of them")
        show(load_for(run, None, "neighbors", device).analogy(*analogy, count), json=json)
        return
    if context is not None:
        if words is None or len(words) != 1:
            raise UserError("--context is about one word", todo='mallang neighbors RUN WORD --context "…" --file FILE')
        texts = [text for text in read_texts(None, file) if text.strip()]
        asked = Asked(words[0], context, texts, layer, any_word, count, tuple(maps or ()))
        show_contexts(run, asked, device, json=json, quiet=quiet)
        return
    for name, value in {"--layer": layer, "--any-word": any_word, "--map": maps}.items():
        if value is not None and value is not False:
            raise UserError(f"{name} has no effect without --context", todo='--context "a sentence with the word"')
    given = [word for word in read_texts(words, file) if word.strip()]
    model = load_for(run, None, "neighbors", device)
    for word in note_none(given, "look up", quiet=quiet):
        show(model.neighbors(word, count), json=json)


def show(found: Neighbors, *, json: bool) -> None:
    """A line per neighbor, or a line of JSON for all."""
    if json:
        print(json_line(as_json("neighbors", found)), flush=True)
        return
    for word, cosine in found.neighbors:
        print(f"{found.input}\t{word}\t{cosine:.4f}", flush=True)


@dataclass(frozen=True)
class Asked:
    """A word in a sentence, the sentences that it is compared with, and how."""

    word: str
    context: str
    texts: Sequence[str]
    layer: int | None
    any_word: bool
    count: int
    maps: Sequence[Path]


def show_contexts(run: Path, asked: Asked, device: str, *, json: bool, quiet: bool) -> None:
    """Print the contextual neighbors of a word, and draw its contexts where a file is given for that."""
    from mallang.inspection.contextual_neighbors import contextual_neighbors, occurrence_map
    from mallang.inspection.projections import check_map_format
    from mallang.loading import load

    for path in asked.maps:
        check_map_format(path)
        if not path.parent.is_dir():
            raise UserError(f"there is no folder {path.parent} for {path.name}", todo="make it first")
    check_run(run)
    model: Any = load(run, device)
    for found in contextual_neighbors(
        model, asked.context, asked.word, asked.texts, layer=asked.layer, any_word=asked.any_word
    ):
        if json:
            values = found.to_json() | {"neighbors": found.to_json()["neighbors"][: asked.count]}
            print(json_format.dumps(values, ensure_ascii=False), flush=True)
            continue
        for each, cosine in found.neighbors[: asked.count]:
            print(f"{found.input.word.text}\t{cosine:.4f}\t{each}", flush=True)
    if asked.maps:
        made = occurrence_map(model, asked.word, [asked.context, *asked.texts], layer=asked.layer)
        for path in asked.maps:
            made.write(path)
            if not quiet:
                typer.echo(f"the map is in {path}", err=True)
