"""Splits of one file by a hash of a column: which hundredths of all its texts belong to each.

The letters and digits of the text alone decide, so that a corpus in one file has held-out rows, the same on every
machine, and no text, or no article of this title, is in two splits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from mallang.data.source import Row


def hundredths(first: int, last: int) -> frozenset[int]:
    """The numbers from the first to the last, excluded; past 99 they wrap around to 0."""
    return frozenset(range(first, last) if first < last else {*range(first, 100), *range(last)})


def shared_out(rows: Iterator[Row], column: int, hundredths: frozenset[int]) -> Iterator[Row]:
    """The rows whose text in this column falls into these hundredths."""
    for row in rows:
        plain = "".join(filter(str.isalnum, row[column].casefold()))
        if int(hashlib.sha256(plain.encode("utf-8", "surrogateescape")).hexdigest(), 16) % 100 in hundredths:
            yield row
