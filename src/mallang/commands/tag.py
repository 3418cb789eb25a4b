"""`mallang tag`: the tag of every word, and the spans that the tags spell."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mallang.commands.inputs import note_empty, read_texts
from mallang.commands.options import Device, Json, Nbest, Plugin, RunFolder, Texts, add_plugins, load_for, note_none
from mallang.commands.outputs import json_line
from mallang.tasks.result_json import as_json

if TYPE_CHECKING:
    from mallang.tasks.tagger import Tagging

EXAMPLES = (
    'mallang tag runs/lstm-crf-miniworld "유나는 지난주에 부산에서 배를 탔다."',
    "mallang tag runs/lstm-crf-conll2003 --file texts.txt --scores",
    "mallang tag runs/lstm-crf-conll2003 --file tokens.txt --pretokenized --json",
    'mallang tag runs/lstm-crf-miniworld "민수는 서울에 갔다." --nbest 3',
)
CHUNK = 1024
"""Texts that are read before their tags are printed."""
File = Annotated[Path | None, typer.Option("--file", "-f", help="Take each line of this file.", show_default=False)]
Scores = Annotated[bool, typer.Option("--scores", help="Print the probability of each tag after it.")]
Pretokenized = Annotated[
    bool, typer.Option("--pretokenized", help="Words are what stands between spaces.", show_default=False)
]


def command(
    run: RunFolder,
    texts: Texts = None,
    file: File = None,
    scores: Scores = False,
    nbest: Nbest = 1,
    pretokenized: Pretokenized = False,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
) -> None:
    """Print each text with its tags, a line each: word/TAG word/TAG.

    With --json also the probability of every tag and the spans, with their places in the text and their confidence. A
    text is split into words as the run was trained; --pretokenized splits it at spaces alone. --nbest prints the most
    probable taggings, with their probabilities first; it needs a run with a CRF.
    """
    add_plugins(plugin)
    model = load_for(run, None, "tag", device)
    given = note_empty(note_none(read_texts(texts, file), "tag"), "tagging", quiet=json)
    while chunk := list(itertools.islice(given, CHUNK)):  # so that a file of any size needs little memory
        for found in model.tag(chunk, nbest=nbest, pretokenized=pretokenized):
            if json:
                print(json_line(as_json("tag", found)))
            else:
                for line in lines(found, scores=scores, nbest=nbest):
                    print(line)


def lines(found: Tagging, *, scores: bool, nbest: int) -> Iterator[str]:
    """A text with its tags, in one line or, with several taggings, in one line each."""
    if nbest > 1:
        for tags, share in found.nbest or ((found.tags, float("nan")),):
            yield f"{share:.4f}\t" + " ".join(map("/".join, zip(found.words, tags, strict=True)))
        return
    shares = [f"/{share:.4f}" for share in found.probabilities] if scores else [""] * len(found.words)
    yield " ".join(f"{word}/{tag}{share}" for word, tag, share in zip(found.words, found.tags, shares, strict=True))
