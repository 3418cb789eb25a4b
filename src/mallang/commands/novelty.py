"""`mallang novelty`: what of a text stands in a corpus already, and where."""

from __future__ import annotations

import os
import sys
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mallang import console
from mallang.commands.inputs import read_texts
from mallang.commands.options import (
    Device,
    Json,
    Plugin,
    Quiet,
    Search,
    add_plugins,
    check_run,
    complete_run,
    load_for,
    print_json,
    read_search,
)
from mallang.console import visible
from mallang.errors import UserError

if TYPE_CHECKING:
    from mallang.data.corpus import Rows
    from mallang.evaluation.novelty import Examined, Report
    from mallang.text.tokenizer import Tokenizer

EXAMPLES = (
    'mallang novelty "유나는 지난주에 배를 탔다." --corpus miniworld',
    "mallang novelty --file essay.txt --corpus sources.txt --corpus more.txt --across-lines",
    "mallang novelty --run runs/gpt-miniworld --samples 200",
    "mallang novelty --run runs/gpt-miniworld --file written.txt --unit token --json",
)
UNITS = {"word": "words", "char": "characters", "token": "tokens"}
Texts = Annotated[
    list[str] | None, typer.Argument(metavar="TEXT", help="Texts; without any, standard input.", show_default=False)
]
File = Annotated[Path | None, typer.Option("--file", "-f", help="Take each line of this file.", show_default=False)]
Run = Annotated[
    Path | None,
    typer.Option(
        "--run", metavar="RUN", help="A run: its training text is the corpus, its tokenizer cuts tokens.",
        autocompletion=complete_run, callback=check_run, show_default=False,
    ),
]  # fmt: skip
Samples = Annotated[
    int | None,
    typer.Option("--samples", metavar="N", help="Let --run write so many texts and look at them.", show_default=False),
]
Corpora = Annotated[
    list[str] | None,
    typer.Option("--corpus", metavar="NAME|FILE", help="What to look in. Repeatable.", show_default=False),
]
Split = Annotated[
    str | None,
    typer.Option("--split", help="The split of a corpus by name; otherwise train.", show_default=False),
]
Column = Annotated[
    str | None,
    typer.Option("--column", metavar="NAME", help="The column to look in, by name or number.", show_default=False),
]
UnitName = Annotated[str, typer.Option("--unit", help="Compare by word, char or token (that of --run).")]
Lowercase = Annotated[bool, typer.Option("--lowercase", help="Capitals are small letters.", show_default=False)]
Orders = Annotated[int, typer.Option("--orders", metavar="N", help="The longest n-grams to count.")]
Least = Annotated[
    int | None,
    typer.Option(
        "--least", metavar="N", help="Fewest units of a span to mark; usually 5 words, 20 characters, 8 tokens.",
        show_default=False,
    ),
]  # fmt: skip
Across = Annotated[
    bool, typer.Option("--across-lines", help="A span may go on in the next line of the corpus.", show_default=False)
]


def command(
    texts: Texts = None,
    file: File = None,
    run: Run = None,
    samples: Samples = None,
    corpus: Corpora = None,
    split: Split = None,
    column: Column = None,
    unit: UnitName = "word",
    lowercase: Lowercase = False,
    orders: Orders = 10,
    least: Least = None,
    across: Across = False,
    search: Search = None,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Tell which n-grams, spans and lines of texts stand in a corpus word for word, and where.

    For plagiarism: your texts against what they may be taken from. For what a model memorized: --samples that
    a run writes against what it was trained on. Spans are marked in the text: in color, or in ⟦ ⟧ in a pipe.
    """
    from mallang.evaluation.novelty import Config, novelty

    add_plugins(plugin)
    config = Config(unit=unit, lowercase=lowercase, orders=orders, least=least, across=across)  # type: ignore[arg-type]
    check(texts, file, run, samples, search, corpus, split, column, unit)
    places = Places(list(open_corpora(corpus or (), split, column) if corpus else corpus_of(run, split, column)))
    tokenizer = tokenizer_of(run) if unit == "token" else None
    if samples:
        given = write(run, samples, device, read_search(search))
    else:
        given = [text for text in read_texts(texts, file) if text.strip()]
    report = novelty(given, places.texts(), config, tokenizer)
    if json:
        print_json(report.to_json(places.name))
        return
    if not quiet:
        typer.echo(f"{len(report.texts)} texts against {places.about}: {report.rows:,} rows", err=True)
        for text in report.texts:
            print(marked(text), file=console.own(sys.stdout))
        print()
    show(report, places, UNITS[unit], config.shortest)


def check(
    texts: Sequence[str] | None, file: Path | None, run: Path | None, samples: int | None, search: Sequence[str] | None,
    corpus: Sequence[str] | None, split: str | None, column: str | None, unit: str,
) -> None:  # fmt: skip
    """Refuse what cannot be done, or would have no effect, before anything is read."""
    if samples is not None:
        if run is None:
            raise UserError("--samples needs a run to write them", todo="--run RUN --samples 200")
        if texts or file is not None:
            raise UserError("--samples and texts were both given", todo="give one of them")
        if samples < 1:
            raise UserError(f"--samples {samples}: there is nothing to look at", todo="--samples 200")
    elif search:
        raise UserError("--search has no effect without --samples", todo="--run RUN --samples 200")
    if corpus is None and run is None:
        raise UserError("there is nothing to look in", todo="--corpus NAME or FILE, or --run RUN for what it learned")
    if unit == "token" and run is None:
        raise UserError("--unit token needs the tokenizer of a run", todo="--run RUN, or --unit word")
    if corpus is not None and run is not None and samples is None and unit != "token":
        raise UserError(
            f"--run {run} has no effect: the corpus and the texts are given", todo="leave --run out, or --unit token"
        )


class Places:
    """The rows of several corpora one after the other, and what to call each of them."""

    def __init__(self, members: Sequence[Rows]) -> None:
        self.members = members
        self.starts = [0]

    @property
    def about(self) -> str:
        """What is looked in."""
        return " + ".join(rows.name for rows in self.members)

    def texts(self) -> Iterator[str]:
        """Every row."""
        for rows in self.members:
            self.starts.append(self.starts[-1])
            for (text,) in rows:
                self.starts[-1] += 1
                yield text

    def name(self, row: int) -> str:
        """Where a row stands; its number is that of the line where rows are lines."""
        from mallang.data.readers import Files

        member = bisect_right(self.starts, row) - 1
        source = self.members[member].source
        is_line = isinstance(source, Files) and source.read in ("text", "parallel")
        what = "line" if is_line else "row"
        return f"{self.members[member].name}, {what} {row - self.starts[member] + 1}"


def open_corpora(names: Sequence[str], split: str | None, column: str | None) -> Iterator[Rows]:
    """The rows of corpora by name and of files of one's own."""
    from mallang.data import registry
    from mallang.data.corpus import Config, open_corpus

    columns: list[str | int] | None = None if column is None else [column]
    for name in names:
        path = Path(name).expanduser()
        if name not in registry.names() and (path.is_file() or path.is_fifo() or path.suffix or name == "-"):
            if split is not None:
                raise UserError(f"--split {split} has no effect on the file {name}", todo="leave --split out")
            yield open_corpus(Config(corpus=None, train=name, columns=columns), ("text",)).split("train")
        else:
            yield open_corpus(Config(corpus=name, columns=columns), ("text",)).split(split or "train")


def corpus_of(run: Path | None, split: str | None, column: str | None) -> Iterator[Rows]:
    """What a run was trained on: the text it learned to write."""
    from dataclasses import replace

    from mallang.data.corpus import open_corpus
    from mallang.find import find
    from mallang.runs.folder import Run

    assert run is not None
    opened = Run.open(run)
    columns = find("tasks", opened.task).Task.columns
    rows = open_corpus(opened.data(), columns).split(split or "train")
    for part in rows.parts:
        pick = part.picks[-1] if column is None else column
        if column is not None and column not in part.picks:
            raise UserError(f"{run} was not trained on a column {column!r}", todo=f"--column {part.picks[-1]}")
        yield replace(part, columns=("text",), picks=(pick,))


def tokenizer_of(run: Path | None) -> Tokenizer:
    """The tokenizer of what a run writes."""
    from mallang.find import find
    from mallang.runs.folder import Run

    assert run is not None
    opened = Run.open(run)
    columns = find("tasks", opened.task).Task.columns
    return opened.tokenizers(columns)[columns[-1]]


def write(run: Path | None, samples: int, device: str, options: dict[str, Any]) -> list[str]:
    """Texts that a language model writes from nothing, drawn at random unless the search says otherwise."""
    assert run is not None
    model = load_for(run, "language_modeling", "novelty --samples", device)
    options = {"method": "sampling", **options}
    return [str(each.output) for each in model.generate([""] * samples, **options)]


def marked(text: Examined) -> str:
    """A text in which all that stands in the corpus is marked."""
    is_colored = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    parts, done = [], 0
    for start, end in merged([(span.start, span.end) for span in text.spans]):
        found = visible(text.text[start:end])
        parts += [visible(text.text[done:start]), typer.style(found, fg="yellow") if is_colored else f"⟦{found}⟧"]
        done = end
    line = "".join([*parts, visible(text.text[done:])])
    return f"= {line}" if text.is_row else f"  {line}"


def merged(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges in order of their beginning, those that overlap joined."""
    found: list[tuple[int, int]] = []
    for start, end in ranges:
        if found and start < found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def show(report: Report, places: Places, unit: str, least: int) -> None:
    """The numbers, and the longest spans with where they stand."""
    for score in report.found:
        print(f"{score.name:<18} {score.value:6.2f} %  [{score.low:.2f}, {score.high:.2f}]")
    print(f"in spans of {least} {unit} or more: {report.covered.value:.2f} %")
    whole = sum(text.is_row for text in report.texts)
    print(f"whole lines found: {whole} of {len(report.texts)} ({report.whole.value:.2f} %)")
    if report.spans:
        print("longest spans found:")
    for span in report.spans:
        often = "" if span.times == 1 else f" and {span.times - 1:,} more"
        print(f"  {span.units} {unit}: {span.text}\n    {places.name(span.row)}{often}")
    print(report.whole.signature)
