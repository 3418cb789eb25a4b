"""What every source of rows offers: files, a generator, a list in memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

Row = tuple[str, ...]
"""A text per column."""


@runtime_checkable
class Source(Protocol):
    """A source of rows: files, a generator, a list."""

    def rows(self, picks: Sequence[str]) -> Iterator[Row]:
        """The rows from the first, with these columns."""

    def fingerprint(self, picks: Sequence[str]) -> str:
        """A hash of their content."""


@runtime_checkable
class Columned(Source, Protocol):
    """A source whose columns have names."""

    @property
    def columns(self) -> tuple[str, ...]:
        """These names."""


@dataclass(frozen=True)
class Given:
    """Rows in memory."""

    given: tuple[Row, ...]
    columns: tuple[str, ...]

    def rows(self, picks: Sequence[str]) -> Iterator[Row]:
        """The rows that were given."""
        places = [self.columns.index(pick) for pick in picks]
        return (tuple(row[place] for place in places) for row in self.given)

    def fingerprint(self, picks: Sequence[str]) -> str:
        """A hash of all rows."""
        return hashlib.sha256(json.dumps(["given", list(self.rows(picks))]).encode()).hexdigest()
