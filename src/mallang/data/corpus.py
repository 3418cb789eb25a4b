"""A corpus: named splits, each a stream of rows of text that can be read again and again.

    open_corpus(Config(corpus="multi30k", source="de", target="en"), ("source", "target")).split("train")
    open_corpus(Config(train="my.tsv", columns=["ko", "en"]), ("source", "target")).split("train")

A corpus is miniworld, one of the registry, or files of one's own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

from mallang.data import local, registry
from mallang.data.local import MissingColumnError, Wanted
from mallang.data.readers import Row
from mallang.errors import UserError, nearest

SPLITS = ("train", "valid", "test")
ALIKE = {"val": "valid", "dev": "valid", "validation": "valid"}


@dataclass(frozen=True, kw_only=True)
class Config:
    """What to read, and which rows of it to keep."""

    corpus: str | None = "miniworld"
    """A name that `mallang data list` shows."""
    train: str | list[str] | None = None
    """Your own file in place of the corpus: .txt .tsv .csv .jsonl .parquet .conll (.gz .xz), two files, or a stem."""
    valid: str | list[str] | None = None
    """File for validation."""
    test: str | list[str] | None = None
    """File for the final measure."""
    columns: list[str | int] | None = None
    """Which columns of the file to read, by name or by number from 1, in the order of the task's."""
    header: bool | None = None
    """Whether the first line of a table names its columns; not set: it does if the wanted names stand in it."""
    source: str = "ko"
    """Language, or column, to translate from."""
    target: str = "en"
    """Language, or column, to translate into."""
    min_length: int = 1
    """Shortest text to train on, in tokens."""
    max_length: int = 256
    """Longest text to train on, in tokens; 0 is no bound."""
    max_ratio: float = 9.0
    """How many times longer one side may be than the other; 0 is no bound."""
    drop_duplicates: bool = False
    """Train on the first of equal rows only."""

    def __post_init__(self) -> None:
        if self.min_length < 0 or self.max_length < 0 or self.max_ratio < 0:
            raise ValueError("min_length, max_length and max_ratio cannot be negative")
        if self.max_length and self.min_length > self.max_length:
            raise ValueError(f"min_length {self.min_length} is above max_length {self.max_length}")
        if 0 < self.max_ratio < 1:
            raise ValueError(f"max_ratio {self.max_ratio} is below 1, which no row can keep")

    def wanted(self, roles: tuple[str, ...], text: str = "text") -> Wanted:
        """The columns that a task means by these roles; `text` is what the corpus calls its text."""
        names = {"source": (self.source, "source"), "target": (self.target, "target"), "text": (text, self.source)}
        given = None if self.columns is None else tuple(str(column) for column in self.columns)
        return Wanted(roles, tuple(names.get(role, (role,)) for role in roles), given, self.header)


@runtime_checkable
class Source(Protocol):
    """Where rows come from: files, a generator, a list."""

    def rows(self, picks: Sequence[str]) -> Iterator[Row]:
        """The rows from the first, with these columns."""

    def fingerprint(self, picks: Sequence[str]) -> str:
        """A sum over their content."""


@dataclass(frozen=True)
class Rows:
    """Rows of text, read anew at each iteration; nothing is kept in memory."""

    name: str
    columns: tuple[str, ...]
    """What the columns are to the task."""
    source: Source
    picks: tuple[str, ...]
    """What the columns are called at their source."""
    note: str = ""
    """How the file was understood, where that was a decision."""

    def __iter__(self) -> Iterator[Row]:
        row = None
        for row in self.source.rows(self.picks):
            yield row
        if row is None:
            raise UserError(f"{self.name} is empty", todo="give a file with at least one line")

    @property
    def fingerprint(self) -> str:
        """A sum over the content of the rows: the same text read the same way has the same one."""
        return self.source.fingerprint(self.picks)

    @classmethod
    def of(cls, rows: Sequence[Row], columns: tuple[str, ...], name: str = "rows") -> Rows:
        """Rows that are at hand already."""
        return cls(name, columns, Given(tuple(rows), columns), columns)


@dataclass(frozen=True)
class Corpus:
    """Splits by name, and what may be done with them."""

    name: str
    licence: str
    splits: Mapping[str, Rows]
    kind: str = "own"
    absent: Mapping[str, UserError] = field(default_factory=dict)
    """Splits that exist but cannot be had here, and why."""

    def split(self, name: str) -> Rows:
        """The rows of a split; `dev` and `val` are `valid`, `test` is the first test set."""
        meant = ALIKE.get(name, name)
        if name in self.splits:
            meant = name
        elif meant == "test" and meant not in self.absent:
            meant = next((known for known in self.splits if known.startswith("test")), meant)
        if meant in self.splits:
            return self.splits[meant]
        if meant in self.absent:
            raise self.absent[meant]
        todo = nearest(meant, self.splits)
        if self.kind == "own" and meant in SPLITS:
            todo = f"give data.{meant}=FILE"
        raise UserError(f"{self.name} has no split {name!r} (it has {', '.join(self.splits)})", todo=todo)

    @property
    def notes(self) -> list[str]:
        """How files were understood, where that was a decision."""
        return [f"{rows.name}: {rows.note}" for rows in self.splits.values() if rows.note]


def open_corpus(config: Config, columns: tuple[str, ...]) -> Corpus:
    """The corpus that a configuration names, its rows with these columns; all columns where none is named."""
    given = {name: getattr(config, name) for name in SPLITS if getattr(config, name) is not None}
    if "train" in given or config.corpus is None:
        # Held-out rows of another corpus would measure nothing, so they are not filled in.
        if not given:
            raise UserError("there is no data", todo="set data.corpus to a name or data.train to a file")
        return open_files(given, config, columns)
    corpus = _open_named(config.corpus, config, columns)
    if not given:
        return corpus
    splits = {**corpus.splits, **open_files(given, config, columns).splits}
    return Corpus(corpus.name, corpus.licence, splits, corpus.kind, corpus.absent)


def open_files(specs: Mapping[str, str | list[str]], config: Config, columns: tuple[str, ...]) -> Corpus:
    """A corpus of files of one's own, by the name of the split that each is."""
    splits = {name: _open_local(spec, config, columns) for name, spec in specs.items()}
    return Corpus(" + ".join(dict.fromkeys(rows.name for rows in splits.values())), "own data", splits)


def _open_named(name: str, config: Config, roles: tuple[str, ...]) -> Corpus:
    if name == "miniworld":
        return _open_miniworld(config, roles)
    entry = registry.entry(name)
    splits: dict[str, Rows] = {}
    absent: dict[str, UserError] = {}
    for split, how in entry.splits.items():
        try:
            picks = config.wanted(roles, entry.text).pick(how.files.columns, f"{name} {split}")
            folder = registry.obtain(entry.home, how.needs(picks))
        except (registry.UnobtainableError, MissingColumnError) as error:
            absent[split] = error
        else:
            splits[split] = Rows(f"{name} {split}", roles or picks, how.at(folder), picks)
    if not splits:
        raise next(iter(absent.values()))
    return Corpus(name, entry.licence, splits, entry.kind, absent)


def _open_miniworld(config: Config, roles: tuple[str, ...]) -> Corpus:
    from mallang.data import miniworld

    picks = config.wanted(roles).pick(Miniworld.COLUMNS, "miniworld")
    splits = {name: Rows(f"miniworld {name}", roles or picks, Miniworld(name), picks) for name in miniworld.SPLITS}
    return Corpus("miniworld", "Apache-2.0 (generated by mallang)", splits, "translation")


def _open_local(spec: str | list[str], config: Config, roles: tuple[str, ...]) -> Rows:
    name = spec if isinstance(spec, str) else " + ".join(spec)
    files, picks, note = local.describe(spec, config.wanted(roles))
    for path in files.paths:
        if path.stat().st_size == 0:
            raise UserError(f"{path} is empty", todo="give a file with at least one line")
    return Rows("standard input" if name == "-" else name, roles or picks, files, picks, note)


@dataclass(frozen=True)
class Miniworld:
    """A split of the generated world."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("ko", "en")
    split: str

    def rows(self, picks: Sequence[str]) -> Iterator[Row]:
        """The sentences of every scene, in these languages."""
        from mallang.data import miniworld

        places = [self.COLUMNS.index(pick) for pick in picks]
        return (tuple(row[place] for place in places) for row in miniworld.rows(self.split))

    def fingerprint(self, picks: Sequence[str]) -> str:
        """A sum over the world's own."""
        from mallang.data import miniworld

        return _sum(["miniworld", miniworld.fingerprint(), self.split, list(picks)])


@dataclass(frozen=True)
class Given:
    """Rows in memory."""

    given: tuple[Row, ...]
    columns: tuple[str, ...]

    def rows(self, picks: Sequence[str]) -> Iterator[Row]:
        """The rows that were given."""
        places = [self.columns.index(pick) for pick in picks]
        return (tuple(row[place] for place in places) for row in self.given)

    def fingerprint(self, picks: Sequence[str]) -> str:
        """A sum over all of them."""
        return _sum(["given", list(self.rows(picks))])


def _sum(values: list[Any]) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()
