"""A corpus: named splits, each a stream of rows of text that can be iterated repeatedly.

    open_corpus(Config(corpus="multi30k", source="de", target="en"), ("source", "target")).split("train")
    open_corpus(Config(train="my.tsv", columns=["ko", "en"]), ("source", "target")).split("train")
    open_corpus(Config(corpora={"tatoeba-kor-eng": 3.0, "my.tsv": 1.0}), ("source", "target")).split("train")

A corpus is miniworld, one of the registry, the user's own files, or several of these together.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mallang.data import local, registry
from mallang.data.column_names import column_names
from mallang.data.derived import with_joined
from mallang.data.excluded import Excluding
from mallang.data.first_rows import First
from mallang.data.gathered import REFERENCE, Gathered, Gathering, has_chapters
from mallang.data.held_out import HeldOut
from mallang.data.local import MissingColumnError, Wanted
from mallang.data.located import Located, located
from mallang.data.miniworld_views import LICENSE, VIEWS, open_view
from mallang.data.readers import Files
from mallang.data.several import check_corpora
from mallang.data.source import Given, Row, Source
from mallang.data.unpaired import How, Unpaired
from mallang.errors import UserError, nearest

SPLITS = ("train", "valid", "test")
ALIKE = {"val": "valid", "dev": "valid", "validation": "valid"}


@dataclass(frozen=True, kw_only=True)
class Config:
    """The data to read, and the filters of its rows."""

    corpus: str | None = "miniworld"
    """A name that `mallang data list` shows."""
    corpora: dict[str, float] | None = None
    """Several corpora, names or your own files, each with the number of times per epoch: 0.5, 1, 3 …; 0: never."""
    domains: dict[str, str] | None = None
    """The domain of some of `corpora`: a tag before the source, which can be chosen in translation."""
    untagged: float = 0.0
    """Share of the tagged rows that an epoch reads without their tag, so that the model works without it too."""
    train: str | list[str] | None = None
    """Your own file in place of the corpus: .txt .tsv .csv .jsonl .parquet .conll (.gz .xz), two files, or a stem."""
    valid: str | list[str] | None = None
    """File for validation."""
    hold_out: float = 0.0
    """Share of `train` held out for validation, chosen by a hash of each row; for files without `valid`."""
    test: str | list[str] | None = None
    """File for the final test."""
    columns: list[str | int] | None = None
    """Which columns of the file to read, by name or by number from 1, in the order of the task's."""
    header: bool | None = None
    """Whether the first line of a table names its columns; not set: it does if it has the wanted names."""
    source: str = "ko"
    """Language, or column, to translate from."""
    target: str = "en"
    """Language, or column, to translate into."""
    min_length: int = 1
    """Minimum length of a training text in tokens."""
    max_length: int = 256
    """Maximum length of a training text in tokens; 0: no limit."""
    max_ratio: float = 9.0
    """Maximum length ratio of the two sides; 0: no limit."""
    drop_duplicates: bool = False
    """Train only on the first of equal rows."""
    documents: Gathering = "rows"
    """How rows become documents: each is one, a blank line ends one, a heading of WikiText begins one, or the verses of
    a chapter are one, where a column ref says Genesis 25:1; corpora without that column keep their rows."""
    unpaired: How = "no"
    """Read both sides apart in training, without pairs: sources and targets of different halves, or all of both."""
    first: int | None = None
    """Train on the first rows alone, at most this many: for curves over the size of the data."""
    exclude: list[str] | None = None
    """Text that is not trained on, as NAME:SPLIT, such as nsmc:test: rows with the same text are left out."""

    def __post_init__(self) -> None:
        if self.min_length < 0 or self.max_length < 0 or self.max_ratio < 0:
            raise ValueError("min_length, max_length and max_ratio cannot be negative")
        if self.max_length and self.min_length > self.max_length:
            raise ValueError(f"min_length {self.min_length} is above max_length {self.max_length}")
        if 0 < self.max_ratio < 1:
            raise ValueError(f"max_ratio {self.max_ratio} is below 1, which no row can keep")
        if not 0.0 <= self.hold_out <= 0.5:
            raise ValueError(f"hold_out = {self.hold_out} must be a share between 0 and 0.5")
        if self.hold_out and (not self.train or self.valid is not None):
            raise ValueError(f"hold_out = {self.hold_out} is of use with train and without valid only")
        if self.documents != "rows" and self.hold_out:
            raise ValueError(f"hold_out = {self.hold_out} holds out lines, and documents have several; give valid")
        if self.unpaired != "no" and (self.domains or self.exclude or self.documents != "rows"):
            raise ValueError(f'unpaired = "{self.unpaired}" goes with neither domains, exclude nor documents')
        if self.first is not None and (self.first < 1 or self.corpora or self.hold_out):
            raise ValueError(f"first = {self.first} must be at least 1, and goes with neither corpora nor hold_out")
        for name in self.exclude or ():
            if not all(name.rpartition(":")[::2]):
                raise ValueError(f"exclude names {name!r}; write a corpus and its split, such as nsmc:test")
        check_corpora(self)

    def wanted(self, roles: tuple[str, ...], text: str = "text") -> Wanted:
        """The columns that a task means by these roles; `text` is what the corpus calls its text."""
        names = column_names(self.source, self.target, text)
        given = None if self.columns is None else tuple(str(column) for column in self.columns)
        usual = frozenset(name for each in names.values() for name in each)
        return Wanted(roles, tuple(names.get(role, (role,)) for role in roles), given, self.header, usual)


@dataclass(frozen=True)
class Rows:
    """Rows of text, read again at each iteration; nothing is kept in memory."""

    name: str
    columns: tuple[str, ...]
    """The roles of the columns in the task."""
    source: Source
    picks: tuple[str, ...]
    """The names of the columns in their source."""
    note: str = ""
    """How the file was interpreted, where that was a choice."""

    def __iter__(self) -> Iterator[Row]:
        row = None
        for row in self.source.rows(self.picks):
            yield row
        if row is None:
            raise UserError(f"{self.name} is empty", todo="give a file with at least one line")

    @property
    def fingerprint(self) -> str:
        """A hash of the content of the rows: equal for the same text read in the same way."""
        return self.source.fingerprint(self.picks)

    @classmethod
    def of(cls, rows: Sequence[Row], columns: tuple[str, ...], name: str = "rows") -> Rows:
        """Rows from a list in memory."""
        return cls(name, columns, Given(tuple(rows), columns), columns)

    @classmethod
    def joined(cls, members: Sequence[Member], columns: tuple[str, ...], untagged: float = 0.0) -> Rows:
        """The rows of several corpora, one after the other."""
        name = " + ".join(member.rows.name for member in members)
        return cls(name, columns, Joined(tuple(members), untagged), columns)

    @property
    def parts(self) -> tuple[Rows, ...]:
        """The rows of each corpus, where there are several; else these rows."""
        return tuple(member.rows for member in self.source.members) if isinstance(self.source, Joined) else (self,)


@dataclass(frozen=True)
class Corpus:
    """Splits by name, and the license."""

    name: str
    license: str
    splits: Mapping[str, Rows]
    kind: str = "own"
    absent: Mapping[str, UserError] = field(default_factory=dict)
    """Splits that exist but are not available here, and why."""

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

    def has(self, name: str) -> bool:
        """Whether there is such a split, available or not."""
        known = {*self.splits, *self.absent}
        return name in known or (name == "test" and any(split.startswith("test") for split in known))

    @property
    def notes(self) -> list[str]:
        """How files were interpreted, where that was a choice."""
        parts = [part for rows in self.splits.values() for part in rows.parts]
        told = [f"{rows.name}: {rows.note}" for rows in parts if rows.note]
        return told + [f"{rows.name}: {how.account}" for rows in parts if (how := excluding(rows.source))]


def open_corpus(config: Config, columns: tuple[str, ...]) -> Corpus:
    """The corpus of a configuration, its rows with these columns; all columns where none is named."""
    corpus = _open(config, columns)
    if config.first is not None and "train" in corpus.splits:  # a file to test on has nothing to train on
        rows = corpus.splits["train"]
        corpus = replace(
            corpus, splits={**corpus.splits, "train": replace(rows, source=First(rows.source, config.first))}
        )
    if config.unpaired != "no" and config.train is None:
        return _unpaired(corpus, config.unpaired)
    if config.documents == "rows" and not config.exclude:
        return corpus
    named = [name.rpartition(":")[::2] for name in config.exclude or ()]
    others = tuple(_open(Config(corpus=name), ()).split(split) for name, split in named)
    shaped = {name: _shaped(rows, config, others if name == "train" else ()) for name, rows in corpus.splits.items()}
    parts = [part for rows in shaped.values() for part in rows.parts]
    is_trained = "train" in shaped  # a file to test on may hold documents, a row each
    if config.documents == "chapters" and is_trained and not any(isinstance(part.source, Gathered) for part in parts):
        raise UserError(
            f"data.documents=chapters needs a column {REFERENCE}, such as Genesis 25:1, and {corpus.name} has none",
            todo="data.corpus=korean-english/bible, or data.documents=rows",
        )
    return replace(corpus, splits=shaped)


def _shaped(rows: Rows, config: Config, others: tuple[Rows, ...]) -> Rows:
    """Rows without excluded ones, gathered to documents; of each corpus where there are several."""
    if isinstance(rows.source, Joined):
        members = [replace(member, rows=_shaped(member.rows, config, others)) for member in rows.source.members]
        return replace(rows, source=replace(rows.source, members=tuple(members)))
    source = Excluding(rows.source, rows.picks, others) if others else rows.source
    if config.documents != "rows" and (config.documents != "chapters" or has_chapters(rows.source)):
        if len(rows.picks) != 1:
            what = f"data.documents joins lines of one column, and {rows.name} has {len(rows.picks)}"
            raise UserError(what, todo="data.documents=rows, or name one column with data.columns")
        source = Gathered(source, config.documents)
    return replace(rows, source=source)


def _unpaired(corpus: Corpus, how: How) -> Corpus:
    """A corpus whose texts for training and validation are read without pairs; test sets stay paired."""
    splits = {name: unpair(rows, how) if name in SPLITS[:2] else rows for name, rows in corpus.splits.items()}
    return replace(corpus, splits=splits)


def unpair(rows: Rows, how: How) -> Rows:
    """Rows with one side each; of each corpus where there are several."""
    if isinstance(rows.source, Joined):
        members = [replace(member, rows=unpair(member.rows, how)) for member in rows.source.members]
        return replace(rows, source=replace(rows.source, members=tuple(members)))
    if len(set(rows.picks)) != 2:
        raise UserError(f"unpaired text of {rows.name} needs two languages", todo="set data.source and data.target")
    return replace(rows, source=Unpaired(rows.source, rows.picks, how))


def excluding(source: Source) -> Excluding | None:
    """What leaves rows out of a source, if anything does."""
    inner = source.lines if isinstance(source, Gathered) else source
    return inner if isinstance(inner, Excluding) else None


def _open(config: Config, columns: tuple[str, ...]) -> Corpus:
    """The corpus as it lies there."""
    given = {name: getattr(config, name) for name in SPLITS if getattr(config, name) is not None}
    if config.corpora is None and ("train" in given or config.corpus is None):
        # Held-out rows of another corpus would be meaningless, so no default is filled in.
        if not given:
            raise UserError("there is no data", todo="set data.corpus to a name or data.train to a file")
        corpus = open_files(given, config, columns)
        if config.unpaired != "no":
            corpus = _unpaired(corpus, config.unpaired)
        return _hold_out(corpus, config.hold_out)
    if config.corpora is not None:
        corpus = _open_several(config, columns)
    else:
        corpus = _open_named(str(config.corpus), config, columns)
    return replace(corpus, splits={**corpus.splits, **open_files(given, config, columns).splits}) if given else corpus


def open_files(specs: Mapping[str, str | list[str]], config: Config, columns: tuple[str, ...]) -> Corpus:
    """A corpus of the user's files, by the name of their splits."""
    splits = {name: _open_local(spec, config, columns) for name, spec in specs.items()}
    return Corpus(" + ".join(dict.fromkeys(rows.name for rows in splits.values())), "own data", splits)


def _hold_out(corpus: Corpus, share: float) -> Corpus:
    """A corpus with a share of its training rows held out as the validation split."""
    if not share:
        return corpus
    rows = corpus.splits["train"]
    assert isinstance(rows.source, Files | Located | Unpaired)
    train = HeldOut(rows.source, rows.picks, share, is_valid=False)
    valid = replace(rows, name=f"{rows.name} (held out)", source=replace(train, is_valid=True), note="")
    return replace(corpus, splits={**corpus.splits, "train": replace(rows, source=train), "valid": valid})


def _open_several(config: Config, roles: tuple[str, ...]) -> Corpus:
    """Several corpora and files: each split joins those of all members; members of weight 0 are not trained on."""
    weights, domains = config.corpora or {}, config.domains or {}
    opened = {name: _open_member(name, config, roles) for name in weights}
    for name, corpus in opened.items():
        if weights[name] and not corpus.has("train"):
            raise UserError(f"{name} has no split to train on", todo="give it the weight 0: to validate and test only")
        if not weights[name] and not any(corpus.has(split) for split in ("valid", "test")):
            raise UserError(f"{name} has the weight 0 and nothing held out: it has no use here", todo="leave it out")
    wanted = dict.fromkeys((*SPLITS, *(split for corpus in opened.values() for split in corpus.splits)))
    splits: dict[str, Rows] = {}
    absent: dict[str, UserError] = {}
    for split in wanted:
        is_train = split == "train"
        having = [name for name, corpus in opened.items() if corpus.has(split) and (weights[name] or not is_train)]
        try:
            members = [
                Member(name, opened[name].split(split), float(weights[name]) if is_train else 1.0, domains.get(name))
                for name in having
            ]
        except UserError as error:
            absent[split] = error
        else:
            if members:
                splits[split] = Rows.joined(members, roles, config.untagged if is_train else 0.0)
    license = "; ".join(f"{name}: {corpus.license}" for name, corpus in opened.items())
    return Corpus(" + ".join(opened), license, splits, absent=absent)


def _open_member(name: str, config: Config, roles: tuple[str, ...]) -> Corpus:
    """A member of several corpora: a corpus by name, or a file of the user, used for training only."""
    path = Path(name).expanduser()
    is_file = path.is_file() or path.suffix or any(path.parent.glob(f"{path.name}.*"))
    if is_file and name not in VIEWS and name not in registry.names():
        return open_files({"train": name}, config, roles)
    return _open_named(name, config, roles)


def _open_named(name: str, config: Config, roles: tuple[str, ...]) -> Corpus:
    if name in VIEWS:
        return _open_view(name, config, roles)
    entry = registry.entry(name)
    splits: dict[str, Rows] = {}
    absent: dict[str, UserError] = {}
    for split, how in entry.splits.items():
        try:
            picks = config.wanted(roles, entry.text).pick(how.files.names, f"{name} {split}")
            folder = registry.obtain(entry.home, how.needs(picks))
        except (registry.UnobtainableError, MissingColumnError) as error:
            absent[split] = error
        else:
            source = located(with_joined(how.at(folder), picks), roles, picks)
            splits[split] = Rows(f"{name} {split}", roles or picks, source, picks)
    if not splits:
        raise next(iter(absent.values()))
    return Corpus(name, entry.license, splits, entry.kind, absent)


def _open_view(name: str, config: Config, roles: tuple[str, ...]) -> Corpus:
    """Corpora that are generated from miniworld."""
    view = VIEWS[name]
    # Trees, labels and tags are read only where they are asked for by name; by default miniworld is its sentences.
    known = view.columns if roles or config.columns else view.columns[: view.by_default]
    picks = config.wanted(roles).pick(known, name)
    if unknown := [pick for pick in picks if pick not in known]:
        raise UserError(f"columns of {name} cannot be joined: {unknown[0]}", todo=nearest(unknown[0], known))
    splits = {split: Rows(f"{name} {split}", roles or picks, open_view(name, split), picks) for split in view.rows}
    return Corpus(name, LICENSE, splits, "translation" if name == "miniworld" else "own")


def _open_local(spec: str | list[str], config: Config, roles: tuple[str, ...]) -> Rows:
    name = spec if isinstance(spec, str) else " + ".join(spec)
    files, picks, note = local.describe(spec, config.wanted(roles))
    for path in files.paths:
        if path.stat().st_size == 0:
            raise UserError(f"{path} is empty", todo="give a file with at least one line")
    return Rows("standard input" if name == "-" else name, roles or picks, located(files, roles, picks), picks, note)


@dataclass(frozen=True)
class Member:
    """A member of several corpora: its rows, the number of times that an epoch reads them, and their domain."""

    name: str
    rows: Rows
    weight: float = 1.0
    domain: str | None = None


@dataclass(frozen=True)
class Joined:
    """Several corpora, read one after the other."""

    members: tuple[Member, ...]
    untagged: float = 0.0

    def rows(self, picks: Sequence[str]) -> Iterator[Row]:
        """The rows of all members, one member after the other; each has its own columns."""
        return (row for member in self.members for row in member.rows)

    def fingerprint(self, picks: Sequence[str]) -> str:
        """A hash of the fingerprints of all members."""
        return _sum(["joined", [member.rows.fingerprint for member in self.members]])


def _sum(values: list[Any]) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()
