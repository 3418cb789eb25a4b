"""What an expensive column encoder gives for rows, kept in the cache folder by content.

    cache/rows/<sum>.npz       the sum covers the rows and all that decides how they are encoded

A prepared corpus (prepared.py) is made again whenever any of its columns changes. Where one of them is slow, such as
paths through a graph or the vectors of an encoder, what it gave for the same rows is read instead.
"""

from __future__ import annotations

import hashlib
import json
import uuid
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mallang.data import storage
from mallang.data.columns import RowEncoder

FEWEST = 64
"""Fewer rows are encoded without being kept."""


class KeptRows:
    """A row encoder that keeps what it gave."""

    def __init__(self, encoder: RowEncoder) -> None:
        self.encoder = encoder

    @property
    def fingerprint(self) -> str:
        """That of the encoder: keeping changes nothing."""
        return self.encoder.fingerprint

    def encode_rows(self, rows: Sequence[tuple[str, ...]]) -> list[list[int]]:
        """The integers of every row, from the cache folder if they are there."""
        if len(rows) < FEWEST:
            return self.encoder.encode_rows(rows)
        path = storage.cache_folder() / "rows" / f"{self.sum_of(rows)}.npz"
        found = read(path, len(rows))
        if found is None:
            found = self.encoder.encode_rows(rows)
            write(path, found)
        return found

    def sum_of(self, rows: Sequence[tuple[str, ...]]) -> str:
        """A sum over the encoder and the rows."""
        return hashlib.sha256(json.dumps([self.fingerprint, list(map(list, rows))]).encode()).hexdigest()[:32]


def read(path: Path, rows: int) -> list[list[int]] | None:
    """What was kept; nothing if it is not there, or not whole."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as kept:
            items, bounds = kept["items"], kept["bounds"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    if len(bounds) != rows + 1 or bounds[-1] != len(items):
        return None
    return [part.tolist() for part in np.split(items, bounds[1:-1])]


def write(path: Path, rows: Sequence[Sequence[int]]) -> None:
    """Keep rows: written aside, then renamed."""
    aside = path.with_name(f".{uuid.uuid4().hex}.npz")
    bounds = np.concatenate(([0], np.cumsum([len(row) for row in rows])))
    items = np.fromiter((item for row in rows for item in row), dtype=np.int64, count=int(bounds[-1]))
    narrow = items.astype(np.int32)
    if not np.array_equal(narrow, items):
        raise ValueError("a prepared corpus holds integers of 32 bits")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(aside, items=narrow, bounds=bounds)
        aside.replace(path)
    except OSError as error:
        raise storage.unwritable(path.parent, error) from error
    finally:
        aside.unlink(missing_ok=True)
