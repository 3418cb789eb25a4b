"""Files to rows of text, a row at a time: lines, parallel files, tables, JSON, Parquet and column files.

Names that end in .gz or .xz are unpacked on the way. Text is UTF-8; a line ends at \\n or \\r\\n and nowhere else
(U+2028 and its like are text), so that line i is line i for every other tool. What cannot be read says which file
and which line.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import itertools
import json
import lzma
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

from mallang.data import coreference, derived, drawings, question_sentences, relations, role_files, storage
from mallang.data.records import MISSING, as_text, inside, keys
from mallang.data.shares import hundredths, shared_out
from mallang.data.source import Row as Row
from mallang.data.squad import squad_rows
from mallang.errors import UserError, nearest, require

Kind = Literal[
    "text", "parallel", "tsv", "csv", "jsonl", "parquet", "conll", "coreference", "squad", "qnli", "analogy",
    "books", "captions", "drawings", "fewrel", "renamed", "srl",
]  # fmt: skip
PACKED = (".gz", ".xz")


@dataclass(frozen=True)
class Files:
    """A split as it lies on disk: which files, how they are read, and what their columns are called."""

    read: Kind
    paths: tuple[Path, ...]
    columns: tuple[str, ...]
    header: bool = False
    """The first line of the table names its columns."""
    wanted_names: bool = False
    """The first line has the names of the columns that were asked for: it can be nothing but a header."""
    span: tuple[int, int] | None = None
    """The first and the last byte (excluded) that belong to this split."""
    where: tuple[str, str] | None = None
    """A column and the value that it has in this split."""
    share: tuple[str, int, int] | None = None
    """A column, and which hundredths of all its texts belong to this split: from the first to the last, excluded.

    Where the last is not above the first, they wrap around at 99: 80 to 60 are all but those from 60 to 79.
    """
    comment: str = ""
    """How a line of a column file begins that holds no token."""
    strict: bool = True
    """Bytes that are not UTF-8 are an error, and not lone surrogates."""
    joined: derived.Joined = field(default_factory=dict)
    """Further columns, each made of others."""
    values: derived.Values = field(default_factory=dict)
    """Readable names of the values of some columns."""
    sections: tuple[str, ...] = ()
    """The names of the books in files of text, which blank lines separate."""

    @property
    def names(self) -> tuple[str, ...]:
        """All columns that can be read."""
        return (*self.columns, *self.joined)

    def rows(self, picks: Sequence[str]) -> Iterator[Row]:
        """The rows, with these columns in this order."""
        if not any(pick in self.joined or pick in self.values for pick in picks):
            return self._plain(picks)
        read = derived.needed(picks, self.columns, self.joined)
        return derived.derive(self._plain(read), read, picks, self.joined, self.values)

    def _plain(self, picks: Sequence[str]) -> Iterator[Row]:
        places = [self.columns.index(pick) for pick in picks]
        if self.read == "parallel":
            return parallel([self.paths[place] for place in places], self.strict)
        if self.read in ("jsonl", "parquet"):
            if self.share is None:
                return fields(self, picks)
            shared = shared_out(fields(self, (*picks, self.share[0])), len(picks), hundredths(*self.share[1:]))
            return (row[:-1] for row in shared)
        whole = WHOLE[self.read](self)
        if self.where is not None:
            column, value = self.columns.index(self.where[0]), self.where[1]
            whole = (row for row in whole if row[column] == value)
        if self.share is not None:
            whole = shared_out(whole, self.columns.index(self.share[0]), hundredths(*self.share[1:]))
        if places == list(range(len(self.columns))):
            return map(tuple, whole)
        if len(places) == 1:
            return ((row[places[0]],) for row in whole)
        return map(itemgetter(*places), whole)

    def fingerprint(self, picks: Sequence[str]) -> str:
        """A sum over the content of the files and over how they are read; where they lie does not matter."""
        made = [[pick, self.joined.get(pick), self.values.get(pick)] for pick in picks]
        made = [how for how in made if how[1:] != [None, None]]
        picks = derived.needed(picks, self.columns, self.joined) if made else picks
        places = [self.columns.index(pick) for pick in picks]
        used = [self.paths[place] for place in places] if self.read == "parallel" else list(self.paths)
        sums = [storage.file_sha256(path) for path in used]
        how: list[Any] = ["rows 1", self.read, self.header, self.span, self.where, self.comment, sums]
        how.append(list(picks) if self.read in ("jsonl", "parquet") else [] if self.read == "parallel" else places)
        how += [] if self.share is None else [self.share]
        how += [made] if made else []
        how += [list(self.sections)] if self.sections else []
        return hashlib.sha256(json.dumps(how).encode()).hexdigest()


def lines(path: Path, strict: bool = True, span: tuple[int, int] | None = None) -> Iterator[str]:
    """The lines of a text file, without their ends and without a byte order mark."""
    number = 0
    try:
        with open_bytes(path) as stream:
            for number, raw in enumerate(within(stream, span) if span else stream, 1):
                if number == 1:
                    raw = raw.removeprefix(b"\xef\xbb\xbf")
                try:
                    line = raw.decode("utf-8", "strict" if strict else "surrogateescape")
                except UnicodeDecodeError as error:
                    raise not_utf8(path, number, error) from error
                yield line.removesuffix("\n").removesuffix("\r")
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise UserError(
            f"{path} cannot be unpacked: {error}", where=at(path, number + 1), todo="copy it again"
        ) from error
    except OSError as error:
        raise UserError(
            f"cannot read {path}: {error.strerror or error}", todo="check the name and the rights"
        ) from error


def open_bytes(path: Path) -> io.BufferedReader:
    """A file's content, unpacked."""
    if path.suffix == ".gz":
        return io.BufferedReader(gzip.open(path, "rb"), 1 << 16)
    if path.suffix == ".xz":
        return io.BufferedReader(lzma.open(path, "rb"), 1 << 16)
    return path.open("rb")


def within(stream: io.BufferedReader, span: tuple[int, int]) -> Iterator[bytes]:
    """The lines of a part of a file; the first and the last may be parts of a line."""
    position = stream.seek(span[0])
    for raw in stream:
        yield raw[: span[1] - position]
        position += len(raw)
        if position >= span[1]:
            return


def text(files: Files) -> Iterator[Row]:
    """One column: the line."""
    return ((line,) for line in lines(files.paths[0], files.strict, files.span))


def parallel(paths: Sequence[Path], strict: bool = True) -> Iterator[Row]:
    """A column a file; line i of each belongs together."""
    readers = [lines(path, strict) for path in paths]
    for number, row in enumerate(itertools.zip_longest(*readers, fillvalue=None)):
        if None in row:
            counts = [
                number + (cell is not None) + sum(1 for _ in rest) for cell, rest in zip(row, readers, strict=True)
            ]
            message = ", ".join(f"{path} has {count:,} lines" for path, count in zip(paths, counts, strict=True))
            raise UserError(
                f"files that belong together differ in length: {message}",
                todo="line i of one must be the translation of line i of the other",
            )
        yield row  # type: ignore[misc]


def table(files: Files) -> Iterator[Row]:
    """The rows of a .tsv (split at tabs, nothing is quoted) or a .csv (commas and quotes)."""
    width = len(files.columns)
    rows = cells(files.paths[0], files.read, files.strict)
    if files.header:
        next(rows, None)
    for number, row in rows:
        if len(row) != width:
            if row == [""] or not row:
                row = [""] * width  # an empty line is an empty row: filters count it
            else:
                raise UserError(
                    f"{count(len(row), 'column')} where the first line has {width}",
                    where=at(files.paths[0], number),
                    todo="mend the line; a tab or comma inside the text splits it",
                )
        yield tuple(row)


def cells(path: Path, kind: Kind, strict: bool = True) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of each row of a table."""
    if kind == "tsv":
        for number, line in enumerate(lines(path, strict), 1):
            yield number, line.split("\t")
        return
    csv.field_size_limit(1 << 30)
    reader = csv.reader((line + "\n" for line in lines(path, strict)), strict=True)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        raise UserError(
            f"not well-formed CSV: {error}", where=at(path, reader.line_num), todo="look for an unbalanced quote"
        ) from error


def conll(files: Files) -> Iterator[Row]:
    """A row per sentence: the tokens of each column joined by tabs, for a token may be a space."""
    width = len(files.columns)
    sentence: list[list[str]] = []
    for number, line in enumerate(lines(files.paths[0], files.strict), 1):
        if line.startswith("-DOCSTART-") or (files.comment and line.startswith(files.comment)):
            continue
        if line.strip():
            token = split_token(line)
            if len(token) != width:
                found = count(len(token), "column")
                raise UserError(
                    f"{found} where {width} are expected",
                    where=at(files.paths[0], number),
                    todo="mend the line: a token and its columns, with one tab or space between",
                )
            sentence.append(token)
        elif sentence:
            yield tuple("\t".join(column) for column in zip(*sentence, strict=True))
            sentence = []
    if sentence:
        yield tuple("\t".join(column) for column in zip(*sentence, strict=True))


def split_token(line: str) -> list[str]:
    """The columns of one token: between tabs if there are any, else between spaces."""
    return line.split("\t") if "\t" in line else line.split()


def fields(files: Files, picks: Sequence[str]) -> Iterator[Row]:
    """The rows of .jsonl or .parquet; `question.stem` is the stem inside question."""
    path = files.paths[0]
    records = json_records(path, files.strict) if files.read == "jsonl" else parquet_records(path, picks)
    for number, record in records:
        row = []
        for pick in picks:
            value = inside(record, pick)
            if value is MISSING:
                known = ", ".join(keys(record)) or "nothing"
                raise UserError(f"there is no {pick!r}", where=at(path, number), todo=f"this row has {known}")
            row.append(as_text(value))
        yield tuple(row)


def json_records(path: Path, strict: bool = True) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and object of each line; blank lines are passed over."""
    return ((number, record) for number, _, record in json_lines(path, strict))


def json_lines(path: Path, strict: bool = True) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Line number, text and object of each line of a JSON Lines file; blank lines are skipped."""
    for number, line in enumerate(lines(path, strict), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"not JSON: {error}", where=at(path, number), todo="one JSON object a line") from error
        if not isinstance(record, dict):
            raise UserError("not a JSON object", where=at(path, number), todo='write {"name": value, …} on each line')
        yield number, line, record


def parquet_records(path: Path, picks: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Row number and values of each row of a Parquet file."""
    pyarrow = require("pyarrow.parquet", "data")
    columns = sorted({pick.split(".")[0] for pick in picks}) or None
    number = 0
    try:
        with pyarrow.ParquetFile(path) as opened:
            missing = sorted(set(columns or ()) - set(opened.schema_arrow.names))
            if missing:
                known = opened.schema_arrow.names
                raise UserError(f"{path} has no column {missing[0]!r}", todo=nearest(missing[0], known))
            for batch in opened.iter_batches(batch_size=4096, columns=columns):
                for record in batch.to_pylist():
                    number += 1
                    yield number, record
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise UserError(f"{path} is not a Parquet file that can be read: {error}", todo="copy it again") from error


def squad(files: Files) -> Iterator[Row]:
    """The rows of a SQuAD file."""
    return squad_rows(whole_json(files.paths[0]), files.paths[0])


def analogy(files: Files) -> Iterator[Row]:
    """A row a question of an analogy file: its section and its four words."""
    section = ""
    for number, line in enumerate(lines(files.paths[0], files.strict), 1):
        words = line.split()
        if line.startswith(":"):
            section = line[1:].strip()
        elif len(words) == 4:
            yield section, *words
        elif words:
            raise UserError(f"{count(len(words), 'word')} instead of four", where=at(files.paths[0], number))


def captions(files: Files) -> Iterator[Row]:
    """A row a caption of the images that the second file lists: image, number, caption."""
    wanted = set(lines(files.paths[1], files.strict))
    for number, line in enumerate(lines(files.paths[0], files.strict), 1):
        name, tab, caption = line.partition("\t")
        image, mark, place = name.rpartition("#")
        if not tab or not mark:
            raise UserError("not `image#number<TAB>caption`", where=at(files.paths[0], number))
        if image in wanted:
            yield image, place, caption


def books(files: Files) -> Iterator[Row]:
    """A row per line: the line, and the name of its book; blank lines end a book, and so does a file."""
    names = iter(files.sections)
    for path in files.paths:
        name, is_new = None, True
        for line in lines(path, files.strict):
            if is_new and line.strip() and (name := next(names, None)) is None:
                raise UserError(f"there are more books than {len(files.sections)}", where=str(path))
            is_new = not line.strip()
            if name is not None:  # blank lines above the first book are of none
                yield line, name


WHOLE: dict[Kind, Callable[[Files], Iterator[Row]]] = {
    "text": text,
    "tsv": table,
    "csv": table,
    "conll": conll,
    "coreference": lambda files: coreference.of_files((path, lines(path, files.strict)) for path in files.paths),
    "squad": squad,
    "qnli": lambda files: question_sentences.rows(whole_json(files.paths[0])),
    "analogy": analogy,
    "books": books,
    "captions": captions,
    "drawings": lambda files: drawings.rows(lines(files.paths[0], files.strict), files.paths[0], files.paths[1].name),
    "fewrel": lambda files: (relations.row(record) for _, record in json_records(files.paths[0], files.strict)),
    "renamed": lambda files: relations.renamed(table(replace(files, read="tsv")), cells(files.paths[1], "tsv")),
    "srl": lambda files: role_files.rows(lines(files.paths[0], files.strict), files.paths[0]),
}
"""The readers that give every column of a file."""


def kind_of(path: Path) -> Kind | None:
    """How a file is read, by its name: `a.tsv.gz` is a table; none where the name says nothing."""
    suffix = Path(path.stem).suffix if path.suffix in PACKED else path.suffix
    known: dict[str, Kind] = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".parquet": "parquet", ".conll": "conll"}
    return {**known, ".json": "squad", ".srl": "srl"}.get(suffix.lower())


def whole_json(path: Path) -> Any:
    """A file that is one JSON value."""
    try:
        return json.loads("\n".join(lines(path)))
    except (ValueError, RecursionError) as error:
        raise UserError(f"not JSON: {error}", where=str(path), todo="copy it again") from error


def not_utf8(path: Path, number: int, error: UnicodeDecodeError) -> UserError:
    """What to say of bytes that are not UTF-8."""
    found = f"byte {error.start + 1} is 0x{error.object[error.start]:02x}"
    return UserError(
        f"not UTF-8 text ({found})",
        where=at(path, number),
        todo="convert it, for example: iconv -f CP949 -t UTF-8 OLD > NEW (an old Korean file), or -f UTF-16",
    )


def at(path: Path, number: int) -> str:
    """A place in a file."""
    return f"{path}, line {number}"


def count(number: int, noun: str) -> str:
    """A number and its noun."""
    return f"{number} {noun}" + ("s" if number != 1 else "")
