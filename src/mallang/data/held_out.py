"""A validation split of one file: a fixed share of its rows, chosen by a hash of each row.

Equal rows are in the same split, so no validation row is trained on. The order and the number of the other rows do not
matter: a row that was held out once is held out in a longer file too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mallang.data.located import Located
from mallang.data.readers import Files, Row
from mallang.data.unpaired import Unpaired
from mallang.errors import UserError


def place_of(row: Row) -> float:
    """The hash of a row as a number between 0 and 1; rows below the share are held out."""
    digest = hashlib.blake2b("\x1f".join(row).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


@dataclass(frozen=True)
class HeldOut:
    """One split of a file: the validation rows, or the training rows."""

    files: Files | Located | Unpaired
    picks: tuple[str, ...]
    """The columns that are hashed, whichever columns are read."""
    share: float
    is_valid: bool

    def rows(self, picks: Sequence[str]) -> Iterator[Row]:
        """These columns of the rows of this split, in the order of the file."""
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
        """A hash of the file's fingerprint and of the split."""
        told = f"{self.files.fingerprint(self._read(picks))}|held out {self.share}|{self.is_valid}"
        if tuple(picks) != self.picks:
            told += f"|{self._places(picks)}"
        return hashlib.sha256(told.encode()).hexdigest()

    def _read(self, picks: Sequence[str]) -> tuple[str, ...]:
        """The columns to read: those that are hashed, then the other requested ones."""
        return (*self.picks, *(pick for pick in dict.fromkeys(picks) if pick not in self.picks))

    def _places(self, picks: Sequence[str]) -> list[int]:
        return [self._read(picks).index(pick) for pick in picks]
