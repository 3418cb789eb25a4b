"""The user's own files: their formats, and the columns that a task reads."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from mallang.data import coreference, readers, role_files, squad
from mallang.data.derived import with_joined
from mallang.data.readers import PACKED, Files, Kind
from mallang.data.records import MISSING, inside, keys
from mallang.errors import UserError, nearest

Described = tuple[Files, tuple[str, ...], str]
"""The files, the chosen columns, and a note on that choice."""
T = TypeVar("T")

spooled: dict[str, Any] = {}
"""Temporary copies of standard input (`-`) and of pipes, by path, so that they can be read again."""


class MissingColumnError(UserError):
    """A column that a table does not have."""


@dataclass(frozen=True)
class Wanted:
    """The columns that a task asks for."""

    roles: tuple[str, ...]
    """Their roles in the task; all columns where there are none."""
    names: tuple[tuple[str, ...], ...]
    """The possible names of each."""
    given: tuple[str, ...] | None = None
    """Names or numbers that the user gave."""
    header: bool | None = None
    usual: frozenset[str] = frozenset()
    """The names that columns have in any task, by which a header is known where all columns are wanted."""

    def __post_init__(self) -> None:
        if self.given is not None and self.roles and len(self.given) != len(self.roles):
            raise UserError(
                f"data.columns names {readers.count(len(self.given), 'column')}, "
                f"but {len(self.roles)} are needed: {', '.join(self.roles)}"
            )

    def are_named_in(self, header: Sequence[str]) -> bool:
        """Whether this line has the names of the wanted columns."""
        if self.given is not None:
            return any(not name.isdecimal() for name in self.given)
        if not self.roles:
            return len(header) > 1 and all(cell.strip() in self.usual for cell in header)
        return self.found_in(header) is not None

    def found_in(self, known: Sequence[str]) -> tuple[str, ...] | None:
        """The column of each role, if every one is there by name."""
        found = [next((name for name in names if name in known), None) for names in self.names]
        return None if None in found else tuple(name for name in found if name is not None)

    def check_unnamed(self, first: Sequence[str], where: str) -> None:
        """Refuse a first line that names some of the wanted columns, but not all: by order, others would be read."""
        named = [any(name in first for name in names) for names in self.names]
        if any(named) and not any(" " in cell.strip() for cell in first):
            role = self.roles[named.index(False)]
            raise MissingColumnError(
                f"{where} has no column for the {role}: its first line seems to name the columns {', '.join(first)}",
                todo=f"name them in the order {', '.join(self.roles)}: data.columns='[\"…\", …]'; "
                "data.header=false if the first line is data",
            )

    def pick(self, known: Sequence[str], where: str) -> tuple[str, ...]:
        """The wanted ones among the known columns."""
        if self.given is not None:
            return tuple(_by_names_or_numbers(name, known, where) for name in self.given)
        if not self.roles:
            return tuple(known)
        found = self.found_in(known)
        if found is None:
            place = next(i for i, names in enumerate(self.names) if not set(names) & set(known))
            role, options = self.roles[place], ", ".join(known)
            key = f"data.{role}" if role in ("source", "target") else "data.columns or --columns"
            raise MissingColumnError(
                f"{where} has no column {self.names[place][0]!r} for the {role}", todo=f"set {key}; there are {options}"
            )
        return found


def describe(spec: str | list[str], wanted: Wanted) -> Described:
    """How to read a file, a pair of files, a common stem of several files, or standard input (`-`)."""
    files, picks, note = _describe(spec, wanted)
    return with_joined(files, picks), picks, note


def _describe(spec: str | list[str], wanted: Wanted) -> Described:
    if isinstance(spec, list):
        return _several([Path(name).expanduser() for name in spec], wanted)
    if spec == "-":
        return _one(_spool(spec), wanted, _kind_of_stream(wanted))
    path = Path(spec).expanduser()
    if is_pipe(path):
        return _one(_spool(spec), wanted, readers.kind_of(path) or _kind_of_stream(wanted))
    if path.is_dir():
        raise UserError(f"{path} is a folder", todo="name a file in it, or the stem of parallel files")
    if not path.is_file():
        return _stem(path, wanted)
    return _one(path, wanted, readers.kind_of(path))


def _one(path: Path, wanted: Wanted, kind: Kind | None) -> Described:
    if kind in ("tsv", "csv"):
        return _table(path, kind, wanted)
    if kind in ("jsonl", "parquet"):
        records = readers.json_records(path, strict=False) if kind == "jsonl" else readers.parquet_records(path, ())
        _, record = _first(records, path)
        # A name may also mean a whole branch, which `keys` does not list.
        given = [name for name in wanted.given or () if inside(record, name) is not MISSING]
        picks = wanted.pick([*keys(record), *given], str(path))
        return Files(kind, (path,), picks), picks, ""
    if kind == "conll":
        return _column_file(path, wanted)
    if kind == "squad":
        return Files("squad", (path,), squad.COLUMNS), wanted.pick(squad.COLUMNS, str(path)), ""
    if kind == "srl":
        return Files("srl", (path,), role_files.NAMES), wanted.pick(role_files.NAMES, str(path)), ""
    if len(wanted.roles) <= 1 and not wanted.given:
        return Files("text", (path,), ("text",)), ("text",), ""
    if kind is None and "\t" in _first(readers.lines(path, strict=False), path):
        return _table(path, "tsv", wanted)
    raise UserError(
        f"{path} is plain text, one column, but {len(wanted.roles)} are needed: {', '.join(wanted.roles)}",
        todo='give a .tsv file, or two files: \'["train.ko", "train.en"]\''
        if wanted.roles == ("source", "target")
        else f"give a .tsv, .csv, .jsonl, .parquet or .conll file with {' and '.join(wanted.roles)}",
    )


def _table(path: Path, kind: Kind, wanted: Wanted) -> Described:
    """A .tsv or .csv: the first line is a header if it has the wanted names."""
    _, first = _first(readers.cells(path, kind, strict=False), path)
    numbers = tuple(str(place) for place in range(1, len(first) + 1))
    is_named = wanted.are_named_in(first)
    header = is_named if wanted.header is None else wanted.header
    known = tuple(cell.strip() for cell in first) if header else numbers
    files = Files(kind, (path,), known, header=header, wanted_names=is_named)
    if wanted.given or not wanted.roles or (header and wanted.found_in(known)):
        picks = wanted.pick(known, str(path))
    elif len(known) < len(wanted.roles):
        found, needed = readers.count(len(known), "column"), ", ".join(wanted.roles)
        split_at = "tabs" if kind == "tsv" else "commas"
        raise UserError(
            f"{path} has {found}, but {len(wanted.roles)} are needed: {needed}", todo=f"columns are split at {split_at}"
        )
    else:
        if wanted.header is None and len(known) > len(wanted.roles):
            wanted.check_unnamed(first, str(path))
        picks = known[: len(wanted.roles)]
    start = "the first line names the columns" if header else "the first line is data, not a header"
    order = ", ".join(f"{role} = {name}" for role, name in zip(wanted.roles or picks, picks, strict=True))
    return files, picks, f"{start}; {order} of {readers.count(len(known), 'column')}"


def _column_file(path: Path, wanted: Wanted) -> Described:
    """A .conll file: the token is the first column, the tag the last, unless columns are given."""
    lines = (line for line in readers.lines(path, strict=False) if line.strip())
    token = _first((line for line in lines if not line.startswith("-DOCSTART-")), path)
    if token.startswith(coreference.BEGIN):
        named = coreference.COLUMNS
        return Files("coreference", (path,), named), wanted.pick(named, str(path)), ""
    known = tuple(str(place) for place in range(1, len(readers.split_token(token)) + 1))
    files = Files("conll", (path,), known)
    if wanted.given or not wanted.roles:
        return files, wanted.pick(known, str(path)), ""
    if len(wanted.roles) > len(known):
        raise UserError(
            f"{path} has {readers.count(len(known), 'column')}, but {len(wanted.roles)} are needed",
            todo=f"give a line per token with {' and '.join(wanted.roles)}, and a blank line after each sentence",
        )
    picks = (*known[: len(wanted.roles) - 1], known[-1]) if len(wanted.roles) > 1 else known[:1]
    return files, picks, f"columns {' and '.join(picks)} of {len(known)}"


def _several(paths: list[Path], wanted: Wanted) -> Described:
    """Parallel files, one column each: assigned by their suffixes, else in order."""
    paths = [_spool(str(path)) if is_pipe(path) else path for path in paths]
    for path in paths:
        if not path.is_file():
            raise UserError(f"there is no file {path}", todo=_similar(path))
    if len(paths) < max(1, len(wanted.roles)):
        raise UserError(f"{len(paths)} files are given, but {len(wanted.roles)} are needed: {', '.join(wanted.roles)}")
    where, endings = " + ".join(map(str, paths)), tuple(_ending(path) for path in paths)
    are_distinct = len(set(endings)) == len(endings)
    if are_distinct and (wanted.given or not wanted.roles or wanted.found_in(endings)):
        return Files("parallel", tuple(paths), endings), wanted.pick(endings, where), ""
    numbers = tuple(str(place) for place in range(1, len(paths) + 1))
    files = Files("parallel", tuple(paths), numbers)
    if wanted.given or not wanted.roles:
        return files, wanted.pick(numbers, where), ""
    picks = numbers[: len(wanted.roles)]
    order = ", ".join(f"{role} = {path}" for role, path in zip(wanted.roles, paths, strict=False))
    return files, picks, f"taken in order: {order}"


def _stem(path: Path, wanted: Wanted) -> Described:
    """`train` stands for train.ko and train.en."""
    options = tuple((name,) for name in wanted.given) if wanted.given else wanted.names
    found: list[Path] = []
    for names in options:
        tried = [path.with_name(f"{path.name}.{name}{packed}") for name in names for packed in ("", *PACKED)]
        found += [next((other for other in tried if other.is_file()), tried[0])]
    if not options or not any(other.is_file() for other in found):
        beside = " or ".join(str(other) for other in found)
        beside = f", nor {beside}" if beside else ""
        raise UserError(f"there is no file {path}{beside}", todo=_similar(path))
    missing = [other for other in found if not other.is_file()]
    if missing:
        there = next(other for other in found if other.is_file())
        raise UserError(f"there is {there}, but no {missing[0]}", todo=_similar(missing[0]))
    columns = tuple(_ending(other) for other in found)
    return Files("parallel", tuple(found), columns), columns, ""


def is_pipe(path: Path) -> bool:
    """Whether this is a pipe, as the shell's `<(command)` is, which can be read only once."""
    return path.is_fifo()


def _kind_of_stream(wanted: Wanted) -> Kind:
    """The format of a stream without a name: a table where several columns are wanted."""
    return "tsv" if len(wanted.roles) > 1 or wanted.given else "text"


def _spool(spec: str) -> Path:
    """Standard input or a pipe as a temporary file, because rows are read more than once."""
    if spec not in spooled:
        spool = tempfile.NamedTemporaryFile(prefix="mallang-pipe-")  # noqa: SIM115 - it lives as long as the process
        if spec == "-":
            shutil.copyfileobj(sys.stdin.buffer, spool)
        else:
            with Path(spec).expanduser().open("rb") as pipe:
                shutil.copyfileobj(pipe, spool)
        spool.flush()
        spooled[spec] = spool
    return Path(spooled[spec].name)


def _by_names_or_numbers(name: str, known: Sequence[str], where: str) -> str:
    """A column, or several with plus signs between, each by its name or number."""
    if name in known or "+" not in name:
        return _by_name_or_number(name, known, where)
    return "+".join(_by_name_or_number(part, known, where) for part in name.split("+"))


def _by_name_or_number(name: str, known: Sequence[str], where: str) -> str:
    if name in known:
        return name
    if not name.isdecimal():
        raise MissingColumnError(f"{where} has no column {name!r}", todo=nearest(name, known))
    if not 1 <= int(name) <= len(known):
        has = readers.count(len(known), "column")
        raise MissingColumnError(f"{where} has no column {name}: it has {has}", todo="the first column is 1")
    return known[int(name) - 1]


def _first(items: Iterator[T], path: Path) -> T:
    for item in items:
        return item
    raise UserError(f"{path} is empty", todo="give a file with at least one line")


def _ending(path: Path) -> str:
    """`ko` of train.ko and of train.ko.gz."""
    return (Path(path.stem).suffix if path.suffix in PACKED else path.suffix).removeprefix(".")


def _similar(path: Path) -> str:
    if not path.parent.is_dir():
        return f"the folder {path.parent} does not exist either"
    return nearest(path.name, (other.name for other in path.parent.iterdir()))
