"""`mallang reconstruct`: what an autoencoder makes of a text again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mallang.commands.inputs import read_texts
from mallang.commands.options import (
    Device,
    Json,
    Plugin,
    RunFolder,
    Search,
    Texts,
    add_plugins,
    load_for,
    note_none,
    read_search,
)
from mallang.commands.outputs import json_line
from mallang.tasks.result_json import output_json

EXAMPLES = (
    'mallang reconstruct runs/autoencoder-miniworld "유나는 지난주에 배를 탔다."',
    "mallang reconstruct runs/autoencoder-miniworld --file texts.txt --json",
)
File = Annotated[Path | None, typer.Option("--file", "-f", help="Take each line of this file.", show_default=False)]


def command(
    run: RunFolder,
    texts: Texts = None,
    file: File = None,
    search: Search = None,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
) -> None:
    """Put texts through an autoencoder, a line each: the text again, or of a vector autoencoder the words it kept."""
    add_plugins(plugin)
    model = load_for(run, None, "reconstruct", device)
    given = list(note_none(read_texts(texts, file), "reconstruct"))
    for result in model.reconstruct(given, **read_search(search)):
        print(json_line(output_json(result, 1, scores=False)) if json else result.output, flush=True)
