"""Rows of text as flat integer files: tokenized once, kept in the cache folder, read through memory maps.

    cache/prepared/<sum>/  0.tokens 0.offsets 1.tokens 1.offsets …   manifest.json

Row i of a column is `tokens[offsets[i]:offsets[i + 1]]`. The sum covers the rows, the tokenizers and the filters, so
that an entry never grows stale; the manifest holds sizes and sums, so that a damaged one is made again.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cached_property
from io import BufferedWriter
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int8, Integer

from mallang.data import storage
from mallang.data.columns import Column, ColumnEncoder, LabelSet, RowEncoder
from mallang.data.corpus import Rows
from mallang.data.filters import REASONS, Account, Filters
from mallang.data.readers import Row
from mallang.errors import UserError
from mallang.text.vocabulary import Vocabulary

FORMAT = 1
CHUNK = 4096
MANIFEST = "manifest.json"
Report = Callable[[int], object]
"""Told now and then how many rows have been read."""


@runtime_checkable
class TextEncoder(Protocol):
    """What is needed of a tokenizer."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens there are."""

    @property
    def fingerprint(self) -> str:
        """A sum over all that decides how it splits."""

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """The ids of every text, without special ones."""


class Prepared:
    """Examples by number: one array of ids a column, without special tokens. Workers may share it, or be sent it."""

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder, self.manifest = folder, manifest
        self.fingerprint: str = manifest["fingerprint"]
        self.account = Account(Filters(**manifest["filters"]), manifest["name"], manifest["read"], manifest["dropped"])

    def __len__(self) -> int:
        return int(self.manifest["rows"])

    def __getitem__(self, place: int) -> tuple[Integer[np.ndarray, " tokens"], ...]:
        count = self.manifest["rows"]
        if not -count <= place < count:
            raise IndexError(place)
        row = place % count
        # A copy, for tensors over read-only memory are refused, and narrow unsigned ids overflow in arithmetic.
        return tuple([tokens[bounds[row] : bounds[row + 1]].astype(np.int64) for tokens, bounds in self._columns])

    @cached_property
    def lengths(self) -> Integer[np.ndarray, "rows columns"]:
        """How many tokens each row has in each column."""
        return np.stack([np.diff(offsets).astype(np.int32) for _, offsets in self._columns], axis=1)

    @cached_property
    def _columns(self) -> list[tuple[Integer[np.ndarray, " tokens"], Integer[np.ndarray, " bounds"]]]:
        return [
            (_map(self.folder / f"{n}.tokens", column["dtype"]), _map(self.folder / f"{n}.offsets", "<i8"))
            for n, column in enumerate(self.manifest["columns"])
        ]

    def column(self, number: int) -> tuple[Integer[np.ndarray, " items"], Integer[np.ndarray, " bounds"]]:
        """All integers of one array, row after row, and where each row begins; the last bound is the end."""
        items, bounds = self._columns[number]
        return items.astype(np.int64), bounds

    @property
    def flat(self) -> Integer[np.ndarray, " tokens"] | None:
        """The ids of the first column, row after row, where they lie so."""
        return self._columns[0][0]

    @property
    def domains(self) -> list[str | None] | None:
        """The domain of every row that was read; nothing where there are no domains."""
        return None

    def epoch(self, seed: int, epoch: int) -> Any:
        """The examples that an epoch reads: all of them, once."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickled memory map is a copy of the file; the other side opens its own.
        return Prepared, (self.folder, self.manifest)


def prepare(
    rows: Rows,
    encoders: Sequence[TextEncoder | Column],
    filters: Filters,
    cache: Path | None = None,
    report: Report | None = None,
) -> Prepared:
    """The rows as ids, from the cache if they are there: a tokenizer per column, or arrays of typed columns."""
    columns = columns_of(encoders, rows)
    facts = [each.encoder.fingerprint for each in columns]
    if any(isinstance(each, Column) for each in encoders):
        facts += [json.dumps([each.place, each.is_text, *each.beside]) for each in columns]
    fingerprint = _sum([FORMAT, rows.fingerprint, facts, asdict(filters)])
    final = (cache or storage.cache_folder()) / "prepared" / fingerprint[:32]
    found = open_prepared(final)
    if found is not None:
        return found
    with storage.locked(final):
        found = open_prepared(final)  # another process may have made it while this one waited
        if found is not None:
            return found
        with storage.temporary_folder(final.parent) as folder:
            _write(folder, rows, columns, filters, fingerprint, report or (lambda read: None))
            storage.put_in_place(folder, final)
        found = open_prepared(final)
    if found is None:
        raise UserError(
            f"{final} changed while it was written", todo="run again; is someone clearing the cache folder?"
        )
    return found


def columns_of(encoders: Sequence[TextEncoder | Column], rows: Rows) -> list[Column]:
    """The arrays to write; a tokenizer by itself reads the column of its place."""
    found = [each if isinstance(each, Column) else Column(place, each) for place, each in enumerate(encoders)]
    if {each.place for each in found} != set(range(len(rows.columns))):
        raise ValueError(f"{len(encoders)} tokenizers for the columns {', '.join(rows.columns)}")
    return found


def open_prepared(folder: Path) -> Prepared | None:
    """What was prepared in a folder; nothing if it is not there, or not whole."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
        if manifest["format"] != FORMAT or manifest["sum"] != _sum({**manifest, "sum": ""}):
            return None
        for n, column in enumerate(manifest["columns"]):
            offsets = folder / f"{n}.offsets"
            if (folder / f"{n}.tokens").stat().st_size != column["tokens"] * np.dtype(column["dtype"]).itemsize:
                return None
            if offsets.stat().st_size != (manifest["rows"] + 1) * 8 or _file_sum(offsets) != column["offsets"]:
                return None
        return Prepared(folder, manifest)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


@dataclass
class Writer:
    """One column while it is written."""

    tokens: BufferedWriter
    offsets: BufferedWriter
    dtype: np.dtype[Any]
    written: int = 0

    def add(self, ids: Sequence[Sequence[int]]) -> None:
        """Put some rows at the end."""
        ends = self.written + np.cumsum([len(row) for row in ids], dtype="<i8")
        if len(ends):
            flat = np.fromiter(itertools.chain.from_iterable(ids), self.dtype, int(ends[-1]) - self.written)
            self.tokens.write(flat.tobytes())
            self.offsets.write(ends.tobytes())
            self.written = int(ends[-1])


def _write(
    folder: Path,
    rows: Rows,
    columns: Sequence[Column],
    filters: Filters,
    fingerprint: str,
    report: Report,
) -> None:
    """Tokenize chunk after chunk into the files of a folder."""
    account = Account(filters, rows.name)
    needed = sorted({each.place for each in columns if not _may_be_empty(each)})
    repeated = _repeated(rows) if filters.drop_duplicates else None
    try:
        with ExitStack() as stack:
            writers = [_open_writer(folder, n, each.encoder, stack) for n, each in enumerate(columns)]
            for chunk in _chunks(rows):
                fate = _first_look(chunk, filters, needed, repeated, account.read)
                _write_chunk(chunk, fate, columns, filters, writers, f"{rows.name}, row {{}}", account.read)
                account.add(fate)
                report(account.read)
        if account.kept:
            _write_manifest(folder, account, writers, fingerprint)
    except OSError as error:
        raise storage.unwritable(folder.parent, error) from error
    if not account.kept:
        raise UserError(
            f"no row is left to use\n{account}", todo="widen data.min_length, data.max_length or data.max_ratio"
        )


def _open_writer(folder: Path, column: int, encoder: ColumnEncoder | RowEncoder, stack: ExitStack) -> Writer:
    tokens, offsets = (stack.enter_context((folder / f"{column}.{kind}").open("wb")) for kind in ("tokens", "offsets"))
    offsets.write(bytes(8))
    is_narrow = isinstance(encoder, TextEncoder) and len(encoder.vocabulary) <= 1 << 16
    return Writer(tokens, offsets, np.dtype("<u2" if is_narrow else "<i4"))


def _first_look(
    chunk: list[Row], filters: Filters, needed: Sequence[int], repeated: Bool[np.ndarray, " all"] | None, read: int
) -> Int8[np.ndarray, " rows"]:
    """What can be said of rows before they are tokenized."""
    fate = np.zeros(len(chunk), np.int8)
    if repeated is not None:
        fate[repeated[read : read + len(chunk)]] = REASONS.index("duplicate")
    if filters.drop_empty:
        cells = ([row[place] for place in needed] for row in chunk)
        is_empty = np.fromiter((any(not cell or cell.isspace() for cell in row) for row in cells), bool, len(chunk))
        fate[is_empty] = REASONS.index("empty")
    return fate


def _may_be_empty(column: Column) -> bool:
    """Whether an empty cell means something: none of the labels applies, or there is no answer."""
    is_several = isinstance(column.encoder, LabelSet) and column.encoder.kind == "labels"
    return is_several or column.may_be_empty


def _write_chunk(
    chunk: list[Row],
    fate: Int8[np.ndarray, " rows"],
    columns: Sequence[Column],
    filters: Filters,
    writers: Sequence[Writer],
    where: str,
    read: int,
) -> None:
    """Encode what is left of a chunk, judge it by its lengths, write what is kept; `fate` is brought up to date."""
    places = np.flatnonzero(fate == 0)
    if not len(places):
        return
    cells = list(zip(*(chunk[place] for place in places), strict=True))
    ids = [_encode(each, cells, where, read + places + 1) for each in columns]
    lengths = np.array([[len(row) for row in column] for column in ids]).T
    for number, each in enumerate(columns):
        if each.like is not None and (wrong := np.flatnonzero(lengths[:, number] != lengths[:, each.like])).size:
            row = int(wrong[0])
            raise UserError(
                f"there are {lengths[row, each.like]} words but {lengths[row, number]} tags",
                where=where.format(read + int(places[row]) + 1),
                todo="give every word exactly one tag",
            )
    measured = lengths[:, [each.is_text for each in columns]]
    fate[places] = filters.judge(measured, fate[places])
    for writer, column in zip(writers, ids, strict=True):
        writer.add([row for row, kept in zip(column, fate[places] == 0, strict=True) if kept])


def _encode(
    column: Column, cells: Sequence[Sequence[str]], where: str, numbers: Integer[np.ndarray, " rows"]
) -> list[list[int]]:
    """The integers of a column, given the cells of all; the error names the row of one that cannot be encoded."""
    rows = list(zip(*(cells[place] for place in (column.place, *column.beside)), strict=True))

    def encode(rows: Sequence[tuple[str, ...]]) -> list[list[int]]:
        if isinstance(column.encoder, RowEncoder):
            return column.encoder.encode_rows(rows)
        return column.encoder.encode_batch([cell for cell, *_ in rows])

    try:
        return encode(rows)
    except UserError as error:
        for row, number in zip(rows, numbers, strict=True):
            try:
                encode([row])
            except UserError as wrong:
                raise UserError(wrong.what, where=wrong.where or where.format(number), todo=wrong.todo) from error
        raise


def _repeated(rows: Rows) -> Bool[np.ndarray, " rows"]:
    """True where a row equals an earlier one. By 64-bit sums, for a set of five million texts fills the memory."""
    sums = np.array(array("Q", (row_sum(row) for row in rows)), np.uint64)
    _, firsts = np.unique(sums, return_index=True)
    repeated = np.ones(len(sums), bool)
    repeated[firsts] = False
    return repeated


def row_sum(row: Row) -> int:
    """A 64-bit sum of a row: equal rows, equal sums."""
    whole = row[0] if len(row) == 1 else "".join(f"{len(text)}:{text}" for text in row)
    digest = hashlib.blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _chunks(rows: Rows) -> Iterator[list[Row]]:
    return _batched(iter(rows), CHUNK)


def _batched(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while chunk := list(itertools.islice(items, size)):
        yield chunk


def _write_manifest(folder: Path, account: Account, writers: Sequence[Writer], fingerprint: str) -> None:
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "fingerprint": fingerprint,
        "name": account.name,
        "rows": account.kept,
        "read": account.read,
        "dropped": account.dropped,
        "filters": asdict(account.filters),
        "columns": [
            {"dtype": writer.dtype.str, "tokens": writer.written, "offsets": _file_sum(folder / f"{n}.offsets")}
            for n, writer in enumerate(writers)
        ],
        "sum": "",
    }
    manifest["sum"] = _sum(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), "utf-8")


def _map(path: Path, dtype: str) -> Integer[np.ndarray, " items"]:
    if path.stat().st_size == 0:
        return np.empty(0, dtype)  # nothing cannot be mapped
    return np.memmap(path, dtype, "r").view(np.ndarray)  # plain slices: those of a memmap cost ten times as much


def _file_sum(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sum(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
