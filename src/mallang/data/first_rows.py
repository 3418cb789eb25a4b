"""The first rows of a training text: how much does more data bring?"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from mallang.data.source import Columned, Row, Source


@dataclass(frozen=True)
class First:
    """The first rows of a source, at most this many."""

    whole: Source
    count: int

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of the source; none where it does not say."""
        return self.whole.columns if isinstance(self.whole, Columned) else ()

    def rows(self, picks: Sequence[str]) -> Iterator[Row]:
        """The rows."""
        return islice(self.whole.rows(picks), self.count)

    def fingerprint(self, picks: Sequence[str]) -> str:
        """A hash of that of the source, and of the number of rows."""
        return hashlib.sha256(f"{self.whole.fingerprint(picks)}|first {self.count}".encode()).hexdigest()
