"""Paths of images in a table: relative to the folder of the table, wherever a command is typed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mallang.data import storage
from mallang.data.readers import Files
from mallang.data.source import Row, Source

IMAGE = "image"
"""The role of a column that may hold paths."""
PREFIX = "data:image/"
"""How an image begins that is in the table itself."""


def located(files: Files, roles: Sequence[str], picks: Sequence[str]) -> Source:
    """Files whose paths of images are seen from here, if a task reads images from them."""
    return Located(files, picks[list(roles).index(IMAGE)]) if IMAGE in roles else files


@dataclass(frozen=True)
class Located:
    """A source whose column `image` holds paths, which are given as seen from here."""

    source: Files
    image: str
    """What the source calls the column."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files of the table."""
        return self.source.paths

    def rows(self, picks: Sequence[str]) -> Iterator[Row]:
        """The rows with paths as seen from here."""
        for row in self.source.rows(picks):
            cells = (self.located(cell) if pick == self.image else cell for pick, cell in zip(picks, row, strict=True))
            yield tuple(cells)

    def located(self, cell: str) -> str:
        """A path as seen from here; other images are left as they are."""
        is_path = bool(cell.strip()) and not cell.startswith(PREFIX)
        return str(self.paths[0].parent / Path(cell).expanduser()) if is_path else cell

    def fingerprint(self, picks: Sequence[str]) -> str:
        """A hash of the rows and of the images, so that a changed image is read again."""
        digest = hashlib.sha256(self.source.fingerprint(picks).encode())
        if self.image in picks:
            cells = dict.fromkeys(cell for (cell,) in self.rows([self.image]))
            paths = dict.fromkeys(split_number(cell)[0] for cell in cells if cell and not cell.startswith(PREFIX))
            for path in paths:
                if path.is_file():  # one that is missing is reported with its row, where it is read
                    digest.update(storage.file_sha256(path).encode())
        return digest.hexdigest()


def split_number(cell: str) -> tuple[Path, int | None]:
    """The path of a cell, and the number of an image in it, if it names one."""
    name, mark, number = cell.rpartition("#")
    if mark and number.isdecimal() and Path(name).suffix in (".u8", ".npy"):
        return Path(name).expanduser(), int(number)
    return Path(cell).expanduser(), None
