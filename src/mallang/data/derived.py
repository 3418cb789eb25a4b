"""Columns that are made of those in a file: joined ones, and labels under readable names.

joined = { text = ["title", ": ", "description"] }         # the names of columns, and what stands between them
values = { label = { 0 = "negative", 1 = "positive" } }    # other values stay as they are
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mallang.data.source import Row

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
