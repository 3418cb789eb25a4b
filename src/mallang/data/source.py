"""What every source of rows offers: files, a generator, a list in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
