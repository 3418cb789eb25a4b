"""`mallang fill`: words for the gaps of a text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mallang.commands.inputs import read_texts
from mallang.commands.options import Device, Json, Plugin, Quiet, RunFolder, Texts, add_plugins, load_for, note_none
from mallang.commands.outputs import json_line
from mallang.tasks.result_json import as_json

EXAMPLES = (
    'mallang fill runs/bert-masked-lm-miniworld "민수는 [MASK] 먹었다."',
    'mallang fill runs/bert-masked-lm-wikitext-2 "the man went to [MASK] store"',
    'mallang fill runs/bert-masked-lm-miniworld "유나는 [MASK] [MASK] 탔다." --top 3',
    "mallang fill runs/bert-masked-lm-miniworld --file texts.txt --json",
)
File = Annotated[Path | None, typer.Option("--file", "-f", help="Take each line of this file.", show_default=False)]
Top = Annotated[int, typer.Option("--top", "-k", min=1, help="How many fillings to show.")]


def command(
    run: RunFolder,
    texts: Texts = None,
    file: File = None,
    top: Top = 5,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Print the most probable fillings of a text with gaps: the probability, the words, and the whole text.

    A gap is written [MASK] or <mask>; it is filled with one token. Several gaps are filled together, and the
    probability is that of all words. --json also has the most probable tokens of each gap by itself.
    """
    add_plugins(plugin)
    model = load_for(run, None, "fill", device)
    for text in note_none(read_texts(texts, file), "fill", quiet=quiet):
        found = model.fill(text, count=top)
        if json:
            print(json_line(as_json("fill", found)), flush=True)
            continue
        for each in found.nbest:
            print(f"{each.probability:.4f}\t{' '.join(each.tokens)}\t{each.text}", flush=True)
