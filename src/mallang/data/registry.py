"""Corpora by name: what each is, under which license, where it comes from, and how its splits are read.

The table itself is registry.toml. A set is what is published together (`klue`), a corpus is what one trains on:
the set itself (`multi30k`) or one of its parts (`klue/nli`). The sha256 of every file is known, so that the same
name is always the same text.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from mallang.data import storage
from mallang.data.miniworld_views import VIEWS
from mallang.data.readers import Files
from mallang.errors import UserError, nearest

TABLE = Path(__file__).with_name("registry.toml")


class UnobtainableError(UserError):
    """A file that is neither on this machine nor at a public address."""


@dataclass(frozen=True)
class File:
    """One file of a set: its content is known by size and sum; `url` is where that very content is published."""

    bytes: int
    sha256: str
    url: str | None
    member: str | None = None
    """Its path inside the archive at `url`, a .tar.gz; none: `url` is the file itself."""


@dataclass(frozen=True)
class DataSet:
    """What is published together, and travels as one folder or one archive."""

    name: str
    source: str
    archive: str
    """The sha256 of NAME.tar.xz; empty where there is none, since everything is published."""
    files: Mapping[str, File]


@dataclass(frozen=True)
class Split:
    """How the rows of one split are read, and how many there are."""

    files: Files
    """Their paths are relative to the folder of the set."""
    rows: int

    def needs(self, picks: Sequence[str]) -> list[str]:
        """The names of the files that hold these columns."""
        paths = self.files.paths
        if self.files.read == "parallel":
            columns = self.files.columns
            parts = [part for pick in picks for part in ([pick] if pick in columns else pick.split("+"))]
            paths = tuple(paths[columns.index(part)] for part in parts)
        return [path.as_posix() for path in paths]

    def at(self, folder: Path) -> Files:
        """The split as it lies in a folder."""
        return replace(self.files, paths=tuple(folder / path for path in self.files.paths))


@dataclass(frozen=True)
class Entry:
    """One corpus: splits that belong together."""

    name: str
    about: str
    kind: str
    license: str
    text: str
    """The column that holds the text, for a task that asks for no more than `text`."""
    splits: Mapping[str, Split]
    home: DataSet

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that every split has."""
        first, *others = (split.files.names for split in self.splits.values())
        return tuple(name for name in first if all(name in other for other in others))


def names() -> list[str]:
    """Every corpus that can be named."""
    return list(_entries())


def entry(name: str) -> Entry:
    """The corpus of a name."""
    known = _entries()
    if name in known:
        return known[name]
    parts = [other for other in known if other.startswith(f"{name}/")]
    if parts:
        raise UserError(f"{name} holds several corpora", todo="name one of " + ", ".join(parts))
    if Path(name).exists():
        raise UserError(f"there is no corpus {name!r}, but a file of that name", todo=f"data.train={name}")
    near = nearest(name, {*VIEWS, *known})
    todo = near if near.startswith("did you mean") else "`mallang data list` shows all of them"
    raise UserError(f"there is no corpus {name!r}", todo=todo)


def entries(name: str) -> list[Entry]:
    """The corpus of a name, or all corpora of the set of that name."""
    return [known for known in _entries().values() if known.home.name == name] or [entry(name)]


def state(corpus: Entry) -> str:
    """Where a corpus would come from now; files are not read for this."""
    home, own = corpus.home, storage.data_folder()
    if own and ((own / home.name).is_dir() or (own / f"{home.name}.tar.xz").is_file()):
        return "here"
    needed = {path for split in corpus.splits.values() for path in split.files.paths}
    if all((storage.cache_folder() / "corpora" / home.name / path).is_file() for path in needed):
        return "here"
    published = sum(home.files[path.as_posix()].url is not None for path in needed)
    return "download" if published == len(needed) else "download in part" if published else "own copy"


def obtain(home: DataSet, wanted: Sequence[str], opener: storage.Opener | None = None) -> Path:
    """The folder that holds these files of a set, each with the right content; unpacks or downloads them if need be."""
    own = storage.data_folder()
    if own and (own / home.name).is_dir():
        _check(home, own / home.name, wanted)
        return own / home.name
    folder = storage.cache_folder() / "corpora" / home.name
    missing = _missing(home, folder, wanted)
    archive = own / f"{home.name}.tar.xz" if own and home.archive else None
    if missing and archive and archive.is_file():
        with storage.locked(folder):
            _unpack(home, archive, folder, wanted)
    elif missing:
        unpublished = [name for name in missing if home.files[name].url is None]
        if unpublished:
            raise UnobtainableError(
                f"the file {unpublished[0]} of {home.name} exists at no public address in this form",
                where=f"it was made from {home.source}",
                todo=_remedy(home),
            )
        with storage.locked(folder):
            _download(home, folder, wanted, opener)
    return folder


def _unpack(home: DataSet, archive: Path, folder: Path, wanted: Sequence[str]) -> None:
    """Unpack an archive whose content is known."""
    found = storage.file_sha256(archive)
    if found != home.archive:
        raise UserError(
            f"{archive} is damaged or another version: its sha256 is {found}, not {home.archive}",
            todo="copy the archive again",
        )
    if _missing(home, folder, wanted):
        storage.unpack(archive, home.name, folder)
        _check(home, folder, wanted)


def _download(home: DataSet, folder: Path, wanted: Sequence[str], opener: storage.Opener | None) -> None:
    """Get the files that are not in the folder yet."""
    for name in _missing(home, folder, wanted):
        url = home.files[name].url
        assert url is not None  # `obtain` has looked
        storage.download(url, folder / name, home.files[name].sha256, opener, home.files[name].member)


def _check(home: DataSet, folder: Path, wanted: Sequence[str]) -> None:
    """Every wanted file is there and is the one that is meant."""
    for name in wanted:
        path = folder / name
        if not path.is_file():
            raise UnobtainableError(f"the file {name} of {home.name} is missing", where=str(folder), todo=_remedy(home))
        found = storage.file_sha256(path)
        if found != home.files[name].sha256:
            raise UserError(
                f"{path} is damaged or another version: its sha256 is {found}, not {home.files[name].sha256}",
                todo=f"put the right file there, or read yours as it is with data.train={path}",
            )


def _missing(home: DataSet, folder: Path, wanted: Sequence[str]) -> list[str]:
    """Which of these files are not there, or damaged."""
    return [name for name in wanted if not _is_whole(folder / name, home.files[name])]


def _is_whole(path: Path, meant: File) -> bool:
    if not path.is_file() or path.stat().st_size != meant.bytes:
        return False
    return storage.file_sha256(path) == meant.sha256


def _remedy(home: DataSet) -> str:
    return f"put {home.name}/ or {home.name}.tar.xz into the folder that MALLANG_DATA names"


@cache
def _entries() -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for name, about in tomllib.loads(TABLE.read_text("utf-8")).items():
        base = about.get("base", "")
        files = {
            file_name: File(facts["bytes"], facts["sha256"], _address(base, facts.get("url")), facts.get("member"))
            for file_name, facts in about["files"].items()
        }
        home = DataSet(name, about["source"], about.get("archive", ""), files)
        own = {"": about} if "splits" in about else {}
        for part, facts in {**own, **about.get("corpora", {})}.items():
            corpus = _read_entry(f"{name}/{part}" if part else name, {**about, **facts}, home)
            found[corpus.name] = corpus
    return found


def _read_entry(name: str, facts: dict[str, Any], home: DataSet) -> Entry:
    splits = {}
    for split, how in facts["splits"].items():
        # TOML has lists where the record has tuples.
        fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in how.items()}
        rows, paths = fields.pop("rows"), tuple(Path(path) for path in fields.pop("files"))
        made: dict[str, Any] = {key: facts[key] for key in ("joined", "values") if key in facts}
        if how["read"] == "books":
            made["sections"] = tuple(facts["sections"])
        splits[split] = Split(Files(paths=paths, **fields, **made), rows)
    text = facts.get("text", "text")
    return Entry(name, facts["about"], facts["kind"], facts["license"], text, splits, home)


def _address(base: str, url: str | None) -> str | None:
    return url if url is None or url.startswith("https://") else base + url
