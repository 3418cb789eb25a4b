"""`mallang choose`: the right one of several choices."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mallang.commands.options import Device, Json, Plugin, Quiet, RunFolder, add_plugins, load_for, note_none
from mallang.commands.outputs import json_line
from mallang.console import visible
from mallang.errors import UserError
from mallang.tasks.result_json import as_json

if TYPE_CHECKING:
    from mallang.data.choices import Choices
    from mallang.tasks.graph_chooser import Reasons

EXAMPLES = (
    'mallang choose runs/bert-miniworld-choices "What did Minsu eat at school?" letter bread bicycle',
    'mallang choose runs/bert-commonsenseqa "Where do people sleep?" --scores road bed lake',
    "mallang choose runs/bert-commonsenseqa --file questions.jsonl --json",
    'mallang choose runs/kagnet-commonsenseqa "Where do people sleep?" --paths --draw why.html road bed lake',
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
Paths = Annotated[
    bool, typer.Option("--paths", help="Print every choice with the paths of the knowledge graph that lead to it.")
]
Draw = Annotated[
    Path | None,
    typer.Option("--draw", help="Draw the paths of one question: .svg the answer's, .html all.", show_default=False),
]


def command(
    run: RunFolder,
    question: Question = None,
    choices: Given = None,
    file: File = None,
    scores: Scores = False,
    paths: Paths = False,
    draw: Draw = None,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Print the right choice of each question, a line each; with --scores every choice, the most probable first.

    A file has a column `question` and a column `choices`: a list in JSON, with or without labels. A run with a
    knowledge graph also shows by --paths what each choice rests on, with the share of attention that each path has.
    """
    add_plugins(plugin)
    check_draw(draw, file)
    given = read_questions(question, choices, file)
    model = load_for(run, None, "choose", device)
    pairs = note_none(given, "choose from", quiet=quiet)
    if paths or draw is not None:
        show_paths(reasoning(model, run), pairs, draw, json=json)
        return
    while chunk := list(itertools.islice(pairs, CHUNK)):  # so that a file of any size needs little memory
        questions, several = zip(*chunk, strict=True)
        for found in model.choose_all(questions, several):
            if json:
                print(json_line(as_json("choose", found)))
            elif scores:
                for text, probability in found.nbest:
                    print(f"{probability:.4f}\t{text}")
            else:
                print(found.choice)


def check_draw(draw: Path | None, file: Path | None) -> None:
    """Refuse a picture of several questions, or of an unknown kind, before anything is computed."""
    if draw is None:
        return
    if file is not None:
        raise UserError("--draw shows one question, but --file may have several", todo="give the question itself")
    if draw.suffix.lower() not in (".svg", ".html", ".htm"):
        raise UserError(f"paths cannot be drawn as {draw.name}", todo="end the name in .svg or .html")


def reasoning(model: Any, run: Any) -> Any:
    """The model, if it reads a knowledge graph."""
    from mallang.tasks.graph_chooser import ShowsPaths

    if not isinstance(model, ShowsPaths):
        raise UserError(
            f"{run} reads no knowledge graph, so there are no paths",
            todo="train kagnet, or leave --paths and --draw out",
        )
    return model


def show_paths(model: Any, pairs: Iterator[tuple[str, Choices]], draw: Path | None, *, json: bool) -> None:
    """Print the choices of each question with their paths, and draw them."""
    from mallang.inspection.path_figure import draw_paths

    for question, choices in pairs:
        found = model.paths(question, choices)
        print(json_line(paths_as_json(found)) if json else visible_lines(str(found)))
        if draw is not None:
            try:
                print(draw_paths(draw, found), file=sys.stderr)
            except OSError as error:
                raise UserError(f"{draw} cannot be written: {error.strerror}", todo="choose another place") from error


def visible_lines(text: str) -> str:
    """Lines without control characters of other people's texts."""
    return "\n".join(map(visible, text.split("\n")))


def paths_as_json(found: Reasons) -> dict[str, Any]:
    """What `--json` prints of the paths of a question."""
    best = found.choices[0]
    line: dict[str, Any] = {"input": found.question, "output": best.choice, "score": best.probability}
    nbest = [
        {"output": each.choice, "probability": each.probability, "paths": [asdict(path) for path in each.paths]}
        for each in found.choices
    ]
    return {**line, "concepts": found.concepts, "nbest": nbest}


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
