"""Training text without the texts that a model will be scored on.

A row is left out if one of its cells equals a cell of the excluded text, in lower case and with single spaces: a model
that was pre-trained on a test text has an advantage that no new text gives it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

from mallang.data.source import Columned, Row, Source


@runtime_checkable
class Texts(Protocol):
    """Rows of text with a fingerprint."""

    @property
    def name(self) -> str:
        """What they are called."""

    @property
    def fingerprint(self) -> str:
        """A hash of their content."""

    def __iter__(self) -> Iterator[Row]: ...


@dataclass(frozen=True)
class Excluding:
    """A source without the rows whose text is in others."""

    whole: Source
    picks: tuple[str, ...]
    others: tuple[Texts, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of the source; none where it does not say."""
        return self.whole.columns if isinstance(self.whole, Columned) else ()

    def rows(self, picks: Sequence[str]) -> Iterator[Row]:
        """The rows that are left."""
        return (row for row in self.whole.rows(picks) if self.sums.isdisjoint(map(text_sum, row)))

    def fingerprint(self, picks: Sequence[str]) -> str:
        """A hash of that of the source, and of those of the excluded texts."""
        told = [self.whole.fingerprint(picks), *(other.fingerprint for other in self.others)]
        return hashlib.sha256("|without ".join(told).encode()).hexdigest()

    @cached_property
    def sums(self) -> frozenset[bytes]:
        """The hashes of the excluded texts; white space alone excludes nothing."""
        cells: Iterable[str] = (cell for other in self.others for row in other for cell in row)
        return frozenset(text_sum(cell) for cell in cells if cell and not cell.isspace())

    @cached_property
    def account(self) -> str:
        """How many rows are left out."""
        read = left = 0
        for row in self.whole.rows(self.picks):
            read += 1
            left += not self.sums.isdisjoint(map(text_sum, row))
        return f"{left:,} of {read:,} rows are left out: their text is in {' or '.join(x.name for x in self.others)}"


def text_sum(text: str) -> bytes:
    """A hash of a text, equal for texts that are alike."""
    return hashlib.blake2b(fold(text).encode("utf-8", "surrogatepass"), digest_size=8).digest()


def fold(text: str) -> str:
    """A text in lower case, with single spaces."""
    return " ".join(text.casefold().split())
