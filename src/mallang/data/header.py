"""Whether the first line of a table is a header or data: a guess that training would not notice to be wrong.

A header that is read as data becomes a row with a label of its own; data that is read as a header is lost. Both are
seen in the labels of the other rows.
"""

from __future__ import annotations

from mallang.data import readers
from mallang.data.columns import LabelSet
from mallang.data.corpus import Rows
from mallang.data.first_rows import First
from mallang.data.held_out import HeldOut
from mallang.data.readers import Files
from mallang.errors import UserError

LONGEST = 30
"""Characters of the name of a column, at most."""


def check_header(rows: Rows, column: str, labels: LabelSet, given: bool | None) -> None:
    """Refuse a first line that was taken for what it is not; `given` is what the user said of it, if anything.

    A line with the wanted names of all columns is a header, also where a label has the name of its column.
    """
    source = rows.source.whole if isinstance(rows.source, First) else rows.source
    files = source.files if isinstance(source, HeldOut) else source
    if not isinstance(files, Files) or files.read not in ("tsv", "csv"):
        return
    path = files.paths[0]
    _, first = next(readers.cells(path, files.read, strict=False))
    place = files.columns.index(rows.picks[rows.columns.index(column)])
    name = first[place].strip() if place < len(first) else ""
    if files.header and given and not files.wanted_names and name in labels.ids:
        raise UserError(
            f"the first line is read as a header, but {name!r} is also the {column} of rows: it is data",
            where=readers.at(path, 1),
            todo="data.header=false, with data.columns by number: '[1, 2]'; if it is a header, data.columns by name",
        )
    if files.header or given is not None or not all(is_name(cell) for cell in first):
        return
    if (
        dict(zip(labels.names, labels.counts, strict=True)).get(name, 0) <= 1
        and min(others(labels, name), default=0) > 1
    ):
        names = ", ".join(f'"{cell.strip()}"' for cell in first)
        raise UserError(
            f"the first line is read as data, but no other row has the {column} {name!r}: it looks like a header",
            where=readers.at(path, 1),
            todo=f"name the columns: data.columns='[{names}]'; data.header=false if it is data",
        )


def is_name(cell: str) -> bool:
    """Whether a cell may be the name of a column: one word that is no number."""
    return cell.strip().replace("-", "_").isidentifier() and len(cell) <= LONGEST


def others(labels: LabelSet, name: str) -> list[int]:
    """How often the other labels occur."""
    return [count for each, count in zip(labels.names, labels.counts, strict=True) if each != name]
