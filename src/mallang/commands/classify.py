"""`mallang classify`: the label of every text."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated

import typer

from mallang.commands.inputs import read_texts
from mallang.commands.options import Device, Json, Plugin, RunFolder, Texts, add_plugins, load_for, note_none
from mallang.commands.outputs import json_line

EXAMPLES = (
    'mallang classify runs/cnn-miniworld "유나는 지난주에 배를 탔다."',
    "mallang classify runs/cnn-miniworld --file texts.txt --scores",
    "mallang classify runs/cnn-miniworld --file texts.txt --json",
)
CHUNK = 4096
"""Texts that are read before their labels are printed."""
File = Annotated[Path | None, typer.Option("--file", "-f", help="Take each line of this file.", show_default=False)]
Scores = Annotated[bool, typer.Option("--scores", help="Print the probability before each label.")]


def command(
    run: RunFolder,
    texts: Texts = None,
    file: File = None,
    scores: Scores = False,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
) -> None:
    """Print the label of each text, a line each; with --json also the probability of every label."""
    add_plugins(plugin)
    model = load_for(run, None, "classify", device)
    given = note_none(read_texts(texts, file), "classify")
    while chunk := list(itertools.islice(given, CHUNK)):  # so that a file of any size needs little memory
        for found in model.classify(chunk):
            if json:
                line = {"input": found.input, "output": found.label, "score": found.probability}
                print(json_line({**line, "probabilities": found.probabilities}))
            else:
                print(f"{found.probability:.4f}\t{found.label}" if scores else found.label)
