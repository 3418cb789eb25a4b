"""Columns that are made of those in a file: joined ones, and labels under readable names.

joined = { text = ["title", ": ", "description"] }         # the names of columns, and what stands between them
values = { label = { 0 = "negative", 1 = "positive" } }    # other values stay as they are
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mallang.data.source import Row

if TYPE_CHECKING:
    from mallang.data.readers import Files

Joined = Mapping[str, Sequence[str]]
Values = Mapping[str, Mapping[str, str]]


def needed(picks: Sequence[str], columns: Sequence[str], joined: Joined) -> tuple[str, ...]:
    """The columns of the file that these picks are made of, each once."""
    parts = [part for pick in picks for part in joined.get(pick, (pick,))]
    return tuple(dict.fromkeys(part for part in parts if part in columns))


def derive(
    rows: Iterator[Row], read: Sequence[str], picks: Sequence[str], joined: Joined, values: Values
) -> Iterator[Row]:
    """The picks of each row, from rows that have the columns `read`."""
    places = {name: place for place, name in enumerate(read)}
    makers = [[(places.get(part), part) for part in joined.get(pick, (pick,))] for pick in picks]
    named = [values.get(pick, {}) for pick in picks]
    for row in rows:
        cells = ["".join(part if place is None else row[place] for place, part in maker) for maker in makers]
        yield tuple(names.get(cell, cell) for names, cell in zip(named, cells, strict=True))


def with_joined(files: Files, picks: Sequence[str]) -> Files:
    """The files with every pick like `first+second` as a column of its own: theirs with tabs between."""
    several = [pick for pick in picks if "+" in pick and pick not in files.joined]
    if files.read in ("jsonl", "parquet"):  # their columns are the picks
        several = [pick for pick in several if len(pick.split("+")) > 1]
        parts = [part for pick in picks for part in (pick.split("+") if pick in several else [pick])]
        files = replace(files, columns=tuple(dict.fromkeys(parts))) if several else files
    else:
        several = [pick for pick in several if pick not in files.columns]
    made = {pick: [piece for part in pick.split("+") for piece in ("\t", part)][1:] for pick in several}
    return replace(files, joined={**files.joined, **made}) if made else files
