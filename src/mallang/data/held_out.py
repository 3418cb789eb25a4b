"""Rows kept for validation where a person has one file only: a fixed share, chosen by a hash of each row.

Equal rows are on the same side, so nothing that is validated on was trained on. The order and the number of the other
rows do not matter: a row that was held out once is held out in a longer file too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mallang.data.readers import Files, Row


def is_held_out(row: Row, share: float) -> bool:
    """Whether a row belongs to the held-out share."""
    digest = hashlib.blake2b("\x1f".join(row).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2**64


@dataclass(frozen=True)
class HeldOut:
    """One side of a file that is split: the rows to validate on, or the others."""

    files: Files
    share: float
    is_valid: bool

    def rows(self, picks: Sequence[str]) -> Iterator[Row]:
        """The rows of this side, in the order of the file."""
        return (row for row in self.files.rows(picks) if is_held_out(row, self.share) == self.is_valid)

    def fingerprint(self, picks: Sequence[str]) -> str:
        """A sum over the file's own and over how it is split."""
        told = f"{self.files.fingerprint(picks)}|held out {self.share}|{self.is_valid}"
        return hashlib.sha256(told.encode()).hexdigest()
