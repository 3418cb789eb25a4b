"""`mallang choose`: the right one of several choices."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mallang.commands.options import Device, Json, Plugin, Quiet, RunFolder, add_plugins, load_for, note_none
from mallang.commands.outputs import json_line
from mallang.errors import UserError

if TYPE_CHECKING:
    from mallang.data.choices import Choices
    from mallang.tasks.chooser import Chosen

EXAMPLES = (
    'mallang choose runs/bert-miniworld-choices "What did Minsu eat at school?" letter bread bicycle',
    'mallang choose runs/bert-commonsenseqa "Where do people sleep?" --scores road bed lake',
    "mallang choose runs/bert-commonsenseqa --file questions.jsonl --json",
)
CHUNK = 256
"""Questions that are read before their answers are printed."""
Question = Annotated[str | None, typer.Argument(metavar="QUESTION", help="A question.", show_default=False)]
Given = Annotated[list[str] | None, typer.Argument(metavar="CHOICE", help="Its choices.", show_default=False)]
File = Annotated[
    Path | None,
    typer.Option("--file", "-f", help="Questions and choices: .tsv .csv .jsonl .parquet.", show_default=False),
]
Scores = Annotated[bool, typer.Option("--scores", help="Print every choice, after its probability.")]


def command(
    run: RunFolder,
    question: Question = None,
    choices: Given = None,
    file: File = None,
    scores: Scores = False,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Print the right choice of each question, a line each; with --scores every choice, the most probable first.

    A file has a column `question` and a column `choices`: a list in JSON, with or without labels.
    """
    add_plugins(plugin)
    given = read_questions(question, choices, file)
    model = load_for(run, None, "choose", device)
    pairs = note_none(given, "choose from", quiet=quiet)
    while chunk := list(itertools.islice(pairs, CHUNK)):  # so that a file of any size needs little memory
        questions, several = zip(*chunk, strict=True)
        for found in model.choose_all(questions, several):
            if json:
                print(json_line(as_json(found)))
            elif scores:
                for text, probability in found.nbest:
                    print(f"{probability:.4f}\t{text}")
            else:
                print(found.choice)


def read_questions(question: str | None, choices: list[str] | None, file: Path | None) -> Iterator[tuple[str, Choices]]:
    """Questions with their choices, from the command line or a file."""
    from mallang.data.choices import Choices, check, read_choices

    if file is None:
        if question is None:
            raise UserError("there is no question", todo='mallang choose RUN "Which?" this that, or --file FILE')
        alone = Choices(tuple(choices or ()))
        check(alone)
        yield question, alone
        return
    if question is not None:
        raise UserError("a question and --file were both given", todo="give one of them")
    from mallang.data.corpus import Config, open_files

    rows = open_files({"test": str(file)}, Config(), ("question", "choices")).split("test")
    for number, (text, cell) in enumerate(rows, start=1):
        try:
            yield text, read_choices(cell)
        except UserError as error:
            raise UserError(error.what, where=f"{file}, row {number}", todo=error.todo) from error


def as_json(found: Chosen) -> dict[str, Any]:
    """What `--json` prints of a question."""
    line: dict[str, Any] = {"input": found.question, "output": found.choice, "score": found.probability}
    line |= {"name": found.name, "number": found.number}
    return {**line, "nbest": [{"output": text, "probability": share} for text, share in found.nbest]}
