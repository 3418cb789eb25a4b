"""`mallang caption`: a sentence about each image."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mallang.commands.inputs import read_texts
from mallang.commands.options import (
    Device,
    Json,
    Nbest,
    Plugin,
    Quiet,
    RunFolder,
    Search,
    add_plugins,
    load_for,
    read_search,
)
from mallang.commands.outputs import several, show
from mallang.errors import UserError

EXAMPLES = (
    "mallang caption runs/show-attend-tell-miniworld picture.png",
    "mallang caption runs/show-attend-tell-miniworld *.png --json --nbest 3",
    "mallang caption runs/show-attend-tell-miniworld --file pictures.txt --search method=greedy",
)
Images = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="IMAGE", help="Image files; without any, a path per line of standard input.", show_default=False
    ),
]
File = Annotated[
    Path | None, typer.Option("--file", "-f", help="A file with the path of an image per line.", show_default=False)
]
Scores = Annotated[bool, typer.Option("--scores", help="Print the score before each caption.", show_default=False)]


def command(
    run: RunFolder,
    images: Images = None,
    file: File = None,
    nbest: Nbest = 1,
    scores: Scores = False,
    search: Search = None,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Write a caption for each image, a line each, in order: PNG, JPEG, and whatever else Pillow reads.

    An image in a NumPy file is FILE.npy#NUMBER. A run that was trained on region features reads those files.
    """
    add_plugins(plugin)
    options = read_search(search)
    if nbest == 1 and isinstance(options.get("nbest"), int):
        nbest = options["nbest"]
    model = load_for(run, "captioning", "caption", device)
    if nbest > 1:
        options = several(nbest, options, model.config)
    for cell in read_texts(images, file):
        if not isinstance(cell, str):
            raise UserError(f"{file} is no list of images", todo="give a text file with the path of an image per line")
        result = model.caption(cell, **options)
        show(result, json=json, nbest=nbest, scores=scores)
        if result.note and not quiet and not json:
            typer.echo(f"note: {result.input}: {result.note}", err=True)
