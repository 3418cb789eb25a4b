"""What reports on labels and on tags share: scores with and without seen texts, tables, and the files of a folder.

report.json   all of it        confusion.svg     which class was taken for which
report.md     its tables       reliability.svg   whether confidences can be believed (labels)
errors.tsv    every error, the most confident first
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool

from mallang.data.columns import Kind
from mallang.data.seen import seen, separators
from mallang.errors import UserError, require
from mallang.evaluation.classification import ClassScores, Confusion
from mallang.evaluation.score import Score
from mallang.inspection.comparison_tables import NOTHING, Table, as_markdown, as_text, finite
from mallang.inspection.outputs import open_rows
from mallang.inspection.systems import Value
from mallang.runs.files import unwritable
from mallang.training.materials import spaced

ALL, UNSEEN, COVERED = "all", "unseen", "covered"
"""The parts of the texts that are scored."""
CONFUSIONS = 10
"""Confusions that a report lists."""
Figures = Mapping[str, Callable[[Path], object]]
"""What draws a figure, by the name of its file."""


@runtime_checkable
class Report(Protocol):
    """All that is known of the outputs of a run for some rows."""

    @property
    def notes(self) -> Sequence[str]:
        """What else is to be said."""

    error_columns: ClassVar[tuple[str, ...]]
    """What is written of every error."""

    @property
    def scores(self) -> list[Score]:
        """The scores of all rows."""

    @property
    def outputs(self) -> list[str]:
        """What the run gives for every row."""

    def tables(self) -> list[Table]:
        """Scores with and without seen texts, scores by class, and the most frequent confusions."""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""

    def errors(self) -> Iterator[Sequence[Any]]:
        """Every error, the most confident first: a value per column."""

    def figures(self) -> Figures:
        """What can be drawn."""


def seen_in_training(
    run: Path, texts: Iterable[str], kind: Kind | None = None, splits: Sequence[str] = ("train",)
) -> tuple[Bool[np.ndarray, " texts"] | None, str]:
    """Whether each text also is in the training data, or in these splits, or why that cannot be said."""
    try:
        opened = [open_rows(run, split, None)[0] for split in splits]
        training = (input_of(row, kind) for rows in opened for row in rows)
        return seen(texts, training, separators(opened[0])), ""
    except UserError as error:
        return None, f"texts that are in the training data are not counted: {error.what}"


def input_of(row: Sequence[str], kind: Kind | None = None) -> str:
    """All that a row has before its label, as one text: both texts of a pair, with a tab between."""
    return "\t".join(spaced(cell, kind) for cell in row[:-1])


def unseen_part(is_seen: Bool[np.ndarray, " texts"] | None) -> Bool[np.ndarray, " texts"] | None:
    """The texts that were not in training, if these are some but not all."""
    return ~is_seen if is_seen is not None and is_seen.any() and not is_seen.all() else None


def seen_note(is_seen: Bool[np.ndarray, " texts"] | None, what: str) -> list[str]:
    """How many of the texts were in training too."""
    if is_seen is None:
        return []
    count = int(is_seen.sum())
    told = f"{count:,} of {len(is_seen):,} {what} are in the training data too, in any case and spacing"
    return [told if count else f"none of the {len(is_seen):,} {what} is in the training data"]


def named(scores: Iterable[Score], part: str) -> list[Score]:
    """Scores whose signature says on which texts they were measured, where these are not all."""
    return [replace(each, signature=each.signature + (f"|texts:{part}" if part != ALL else "")) for each in scores]


# ---- tables ----


def score_table(title: str, columns: Mapping[str, Sequence[Score]], names: Sequence[str] | None = None) -> Table:
    """A row per score, a column per part of the texts, and the signature."""
    parts = list(columns.values())
    lines = []
    for place, first in enumerate(parts[0]):
        name = first.name if names is None else names[place]
        lines.append([name, *(shown(scores[place]) for scores in parts), first.signature])
    return Table(title, ["score", *columns, "signature"], lines)


def shown(score: Score) -> str:
    """The value of a score with its interval."""
    from mallang.inspection import comparison_tables

    if abs(score.value) >= 10 or score.low is None or score.high is None:
        return comparison_tables.shown(Value(score.value, score.low, score.high))
    return f"{score.value:.4f} [{score.low:.4f}, {score.high:.4f}]"


def class_table(title: str, head: str, rows: Mapping[str, ClassScores]) -> Table:
    """Precision, recall, F1 and support by class."""
    lines = [[name, *(f"{value:.2f}" for value in row[:3]), f"{row.support:,}"] for name, row in rows.items()]
    return Table(title, [head, "precision", "recall", "F1", "support"], lines)


def confusion_lines(confusion: Confusion) -> list[tuple[str, str, int]]:
    """Gold class, class of the output, and how often; the most frequent first."""
    table = confusion.table.copy()
    np.fill_diagonal(table, 0)
    order = np.argsort(-table, axis=None, kind="stable")[: np.count_nonzero(table)]
    places = zip(*np.unravel_index(order, table.shape), strict=True)
    names = [str(name) for name in confusion.classes]
    return [(names[row], names[column], int(table[row, column])) for row, column in places]


def confusion_table(confusion: Confusion) -> list[Table]:
    """The most frequent confusions, if there are any."""
    lines = confusion_lines(confusion)
    title = f"the {CONFUSIONS} most frequent of {len(lines)} confusions" if len(lines) > CONFUSIONS else "confusions"
    shown_lines = [[gold or NOTHING, output or NOTHING, f"{count:,}"] for gold, output, count in lines[:CONFUSIONS]]
    return [Table(title, ["gold", "output", "count"], shown_lines)] if lines else []


def confusion_json(confusion: Confusion) -> dict[str, Any]:
    """A confusion matrix as plain values: a row per gold class."""
    return {"classes": [str(name) for name in confusion.classes], "table": confusion.table.tolist()}


def classes_json(rows: Mapping[str, ClassScores]) -> dict[str, dict[str, float]]:
    """The scores of classes as plain values."""
    return {name: row._asdict() for name, row in rows.items()}


def as_plain_text(report: Report) -> str:
    """The tables and notes of a report."""
    return as_text(report.tables(), report.notes)


# ---- the folder ----


def write_report(report: Report, folder: Path) -> list[str]:
    """Write the files of a report into a folder; the names of the files, and what could not be drawn as a note."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        plain = json.dumps(finite(report.to_json()), ensure_ascii=False, indent=1, allow_nan=False)
        written = {"report.json": plain + "\n", "errors.tsv": as_tsv(report.error_columns, report.errors())}
        written["report.md"] = as_markdown(report.tables(), report.notes)
        for name, text in written.items():
            (folder / name).write_text(text, "utf-8", "backslashreplace")
        figures = report.figures()
        try:
            require("matplotlib.figure", "plots")
        except UserError as error:
            return [*written, f"no pictures: {error.what}" + (f"; {error.todo}" if error.todo else "")]
        for name, draw in figures.items():
            draw(folder / name)
    except OSError as error:
        raise unwritable(folder, error) from error
    return [*written, *figures]


def as_tsv(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """Lines with tabs between cells; white space inside a cell becomes one space."""
    return "".join("\t".join(map(cell, line)) + "\n" for line in [head, *lines])


def cell(value: Any) -> str:
    """A value in one cell of a table."""
    return f"{value:.6f}" if isinstance(value, float) else " ".join(str(value).split())
