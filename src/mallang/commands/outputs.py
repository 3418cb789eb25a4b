"""How several commands print outputs, as text, with scores, as tables or as lines of JSON, and say what was written."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mallang import console
from mallang.errors import UserError
from mallang.tasks.result_json import output_json

if TYPE_CHECKING:
    from mallang.decoding.contract import Config
    from mallang.inspection.comparison_tables import Table
    from mallang.tasks.translator import Translation

PAGES = (".html", ".htm")


def several(nbest: int, options: Mapping[str, Any], config: Config) -> dict[str, Any]:
    """The search options for so many outputs: a beam that is too narrow is widened, unless its width was given."""
    is_beam = options.get("method", config.method) == "beam"
    width = {"beam": nbest} if is_beam and config.beam < nbest else {}
    return {**width, **options, "nbest": nbest}


def show(result: Translation, *, json: bool, nbest: int, scores: bool) -> None:
    """Print one result, at once: someone may be waiting at the other end of a pipe."""
    if json:
        print(json_line(output_json(result, nbest, scores=scores)), flush=True)
    elif nbest > 1:
        for output, value, _ in result.nbest[:nbest] or ((result.output, result.score, result.score),):
            print(f"{value:.4f}\t{output}" if scores else output, flush=True)
    else:
        print(f"{result.score:.4f}\t{result.output}" if scores else result.output, flush=True)


def json_line(line: dict[str, Any]) -> str:
    """A line of JSON, which has no infinite numbers: the score of what is impossible is null."""
    from mallang.inspection.comparison_tables import finite

    return json_format.dumps(finite(line), ensure_ascii=False, allow_nan=False)


def show_tables(tables: Sequence[Table], notes: Sequence[str], *, quiet: bool) -> None:
    """Tables with lines on a terminal, plain columns in a pipe; notes after them, unless only results are wanted."""
    from rich import table as rich_table

    from mallang.inspection.comparison_tables import as_text

    screen, told = console.drawing(), [] if quiet else notes
    if not screen.is_terminal:
        print(as_text(tables, told))
        return
    for each in tables:
        table = rich_table.Table(title=console.visible(each.title), title_justify="left")
        for place, name in enumerate(each.head):
            table.add_column(name, justify="right" if place and not each.is_text else "left", overflow="fold")
        for line in each.lines:
            table.add_row(*map(console.visible, line))
        screen.print(table, markup=False)
    for note in told:
        screen.print(console.visible(f"note: {note}"), markup=False, highlight=False)


def print_table(head: list[str], rows: list[list[str]]) -> None:
    """A table for people; when piped, a line per row with tabs between the cells."""
    if not sys.stdout.isatty():
        for row in [head, *rows]:
            print("\t".join(row))
        return
    from rich.table import Table

    table, widest = Table(box=None, padding=(0, 2, 0, 0)), max((len(row[0]) for row in rows), default=0)
    for place, name in enumerate(head):
        table.add_column(name, no_wrap=place == 0, min_width=widest if place == 0 else None)
    for row in rows:
        table.add_row(*map(console.visible, row))
    console.drawing().print(table, highlight=False)


def say_paths(paths: Sequence[Path], json: bool, quiet: bool) -> None:
    """Print the paths of what was written, beside the numbers if these are printed."""
    for path in () if quiet else paths:
        print(path) if not json else typer.echo(str(path), err=True)


def is_page(path: Path) -> bool:
    """Whether a path names a page."""
    return path.suffix.lower() in PAGES and not path.is_dir()


def make_folder(folder: Path) -> None:
    """Make a folder to write into."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise UserError(f"{folder} is not a folder", todo="give another place with --out") from error
