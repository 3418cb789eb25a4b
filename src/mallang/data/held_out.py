"""Rows kept for validation where a person has one file only: a fixed share, chosen by a hash of each row.

Equal rows are on the same side, so nothing that is validated on was trained on. The order and the number of the other
rows do not matter: a row that was held out once is held out in a longer file too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mallang.data.readers import Files, Row
from mallang.errors import UserError


def place_of(row: Row) -> float:
    """Where the hash of a row lies between 0 and 1; rows below a share are held out."""
    digest = hashlib.blake2b("\x1f".join(row).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


@dataclass(frozen=True)
class HeldOut:
    """One side of a file that is split: the rows to validate on, or the others."""

    files: Files
    picks: tuple[str, ...]
    """The columns that decide on which side a row is, whichever are asked for."""
    share: float
    is_valid: bool

    def rows(self, picks: Sequence[str]) -> Iterator[Row]:
        """These columns of the rows of this side, in the order of the file."""
        places, is_any, is_one_here = self._places(picks), False, False
        for whole in self.files.rows(self._read(picks)):
            is_any = True
            if (place_of(whole[: len(self.picks)]) < self.share) == self.is_valid:
                is_one_here = True
                yield tuple(whole[place] for place in places)
        if is_any and not is_one_here:
            purpose = "validate" if self.is_valid else "train"
            raise UserError(
                f"data.hold_out = {self.share:g} leaves no row of {self.files.paths[0]} to {purpose} on",
                todo="give another share, up to data.hold_out=0.5, or data.valid=FILE",
            )

    def fingerprint(self, picks: Sequence[str]) -> str:
        """A sum over the file's own and over how it is split."""
        told = f"{self.files.fingerprint(self._read(picks))}|held out {self.share}|{self.is_valid}"
        if tuple(picks) != self.picks:
            told += f"|{self._places(picks)}"
        return hashlib.sha256(told.encode()).hexdigest()

    def _read(self, picks: Sequence[str]) -> tuple[str, ...]:
        """The columns to read: those that decide, then the others that are asked for."""
        return (*self.picks, *(pick for pick in dict.fromkeys(picks) if pick not in self.picks))

    def _places(self, picks: Sequence[str]) -> list[int]:
        return [self._read(picks).index(pick) for pick in picks]
