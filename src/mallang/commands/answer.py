"""`mallang answer`: the part of a context that answers a question."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mallang import console
from mallang.commands.options import Device, Json, Nbest, Plugin, Quiet, RunFolder, add_plugins, load_for, note_none
from mallang.commands.outputs import json_line
from mallang.errors import UserError
from mallang.tasks.result_json import as_json

if TYPE_CHECKING:
    from mallang.tasks.answerer import Answered

EXAMPLES = (
    'mallang answer runs/bert-miniworld-questions --context "Minsu ate bread at school." "Where did Minsu eat bread?"',
    'mallang answer runs/bert-squad --context article.txt "Who wrote it?" "When?" --nbest 3',
    "mallang answer runs/bert-squad --file questions.tsv --json",
    "mallang answer runs/bert-squad --file dev-v1.1.json --out answers.txt",
)
CHUNK = 256
"""Questions that are read before their answers are printed."""
SUFFIXES = (".txt", ".md", ".text", ".html", ".json", ".tsv", ".csv")
"""A context of one word that ends so is the name of a file, not a text."""
Questions = Annotated[list[str] | None, typer.Argument(metavar="QUESTION", help="Questions.", show_default=False)]
Context = Annotated[
    str | None,
    typer.Option("--context", "-c", metavar="FILE|TEXT", help="The text that holds the answers.", show_default=False),
]
File = Annotated[
    Path | None,
    typer.Option(
        "--file", "-f", help="Questions and contexts: .tsv .csv .jsonl .parquet, or SQuAD .json.", show_default=False
    ),
]


def command(
    run: RunFolder,
    questions: Questions = None,
    context: Context = None,
    file: File = None,
    nbest: Nbest = 1,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Print the answer to each question, a line each: a part of its context, letter by letter.

    On a terminal the answer is also marked in its context. --nbest prints the most probable answers, with their
    probabilities first; --json also where they stand. Where the run knows questions without an answer, the line of such
    a question is empty.
    """
    add_plugins(plugin)
    given = read_questions(questions, context, file)
    model = load_for(run, None, "answer", device)
    pairs = note_none(given, "answer", quiet=quiet)
    while chunk := list(itertools.islice(pairs, CHUNK)):  # so that a file of any size needs little memory
        for found in model.answer(*map(list, zip(*chunk, strict=True)), nbest=nbest):
            if json:
                print(json_line(as_json("answer", found)))
            elif nbest > 1:
                for line in lines(found):
                    print(line)
            else:
                show(found)


def read_questions(questions: list[str] | None, context: str | None, file: Path | None) -> Iterator[tuple[str, str]]:
    """Questions with their contexts, from the command line or a file."""
    if file is not None:
        if questions or context is not None:
            raise UserError("--file has questions and contexts of its own", todo="give --file alone, or leave it out")
        from mallang.data.corpus import Config, open_files

        return iter(open_files({"test": str(file)}, Config(), ("question", "context")).split("test"))  # type: ignore[arg-type]
    if not questions:
        raise UserError("there is no question", todo='mallang answer RUN --context FILE "Who?"')
    if context is None:
        raise UserError("there is no context to find the answer in", todo="--context FILE, or --context TEXT")
    text = read_context(context)
    return ((question, text) for question in questions)


def read_context(given: str) -> str:
    """The text of a file, or the text itself where there is no such file."""
    from mallang.data.readers import lines

    path = Path(given)
    try:
        is_file = path.is_file()
    except OSError:  # too long for a name
        is_file = False
    if not is_file and path.suffix in SUFFIXES and not any(map(str.isspace, given)):
        raise UserError(f"there is no file {given}", todo="--context takes a file or the text itself")
    return "\n".join(lines(path)) if is_file else given


def lines(found: Answered) -> Iterator[str]:
    """The most probable answers with their probabilities; no answer is an empty text."""
    answers = [(each.probability, each.text) for each in found.nbest]
    if found.no_answer is not None:
        answers = sorted([*answers, (found.no_answer, "")], key=lambda pair: -pair[0])[: len(found.nbest)]
    for probability, text in answers:
        yield f"{probability:.4f}\t{one_line(text)}"


def one_line(text: str) -> str:
    """A text without line ends."""
    return " ".join(text.split("\n"))


def show(found: Answered) -> None:
    """Print an answer; on a terminal also its context, with the answer marked."""
    if not sys.stdout.isatty():
        print(one_line(found.answer))
        return
    from rich.text import Text

    drawn, share = console.drawing(), f"{found.probability:.2f}"
    answer = found.answer if found.start is not None else "no answer"
    drawn.print(Text.assemble((console.visible(one_line(answer)), "bold"), (f"  {share}", "dim")))
    if found.start is not None and found.end is not None:
        before, inside, after = found.context[: found.start], found.answer, found.context[found.end :]
        marked = [
            (console.visible(before), "dim"),
            (console.visible(inside), "reverse"),
            (console.visible(after), "dim"),
        ]
        drawn.print(Text.assemble(*marked), highlight=False)
