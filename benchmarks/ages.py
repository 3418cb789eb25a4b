"""How old a result is: when its commit was made, and how many commits have changed the code it depends on since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from benchmarks import report
from benchmarks.kinds import kind_of, sources_of

DIRTY = "-dirty"


@dataclass(frozen=True)
class Age:
    """What git knows of a result; None where there is no history, as in a source archive."""

    commit: str
    date: str | None
    changes: int | None
    """Commits since then that touch the sources of the result."""
    speed: bool

    @property
    def dirty(self) -> bool:
        """Whether the code was not that of its commit."""
        return self.commit.endswith(DIRTY)

    @property
    def stale(self) -> bool:
        """Whether it should be measured again: code of no commit, or a speed of code that has changed."""
        return self.dirty or (self.speed and bool(self.changes))

    def __str__(self) -> str:
        short = f"`{self.commit.removesuffix(DIRTY)[:7]}`"
        if self.date is None:
            return f"{short} age unknown"
        parts = [
            short,
            self.date,
            *([f"+{self.changes}"] if self.changes else []),
            *(["**stale**"] if self.stale else []),
        ]
        return " ".join([*parts, *(["**dirty**"] if self.dirty else [])])


def age_of(value: Mapping[str, Any]) -> Age:
    """The age of one result."""
    commit = str(value["commit"]).removesuffix(DIRTY)
    date = date_of(commit)
    changes = None if date is None else changes_since(commit, sources_of(value))
    return Age(str(value["commit"]), date, changes, kind_of(value["file"]).speed)


def oldest(values: Sequence[Mapping[str, Any]]) -> Age:
    """The age of several results that make one row: that of the one most was changed since."""
    return max(map(age_of, values), key=lambda age: (age.changes or 0, age.commit))


@cache
def date_of(commit: str) -> str | None:
    """The day of a commit, if git knows it."""
    return report.git("show", "-s", "--format=%cs", f"{commit}^{{commit}}")


@cache
def changes_since(commit: str, paths: tuple[str, ...]) -> int:
    """How many commits since then touch these paths."""
    return int(report.git("rev-list", "--count", f"{commit}..HEAD", "--", *paths) or 0)
