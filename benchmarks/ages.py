"""How old a result is: when its commit was made, and what has changed since in the code it depends on.

A result is stale only where that code does something else: comments, docstrings and blank lines do not count.
"""

from __future__ import annotations

import ast
import re
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
    differs: bool = False
    """Whether the sources differ by now in more than comments; known for a speed alone."""

    @property
    def dirty(self) -> bool:
        """Whether the code was not that of its commit."""
        return self.commit.endswith(DIRTY)

    @property
    def stale(self) -> bool:
        """Whether it should be measured again: code of no commit, or a speed of code that has changed."""
        return self.dirty or (self.speed and self.differs)

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
    date, is_speed, sources = date_of(commit), kind_of(value["file"]).speed, sources_of(value)
    changes = None if date is None else changes_since(commit, sources)
    return Age(str(value["commit"]), date, changes, is_speed, bool(is_speed and changes and differs(commit, sources)))


def oldest(values: Sequence[Mapping[str, Any]]) -> Age:
    """The age of several results that make one row: a stale one, or that of the one most was changed since."""
    return max(map(age_of, values), key=lambda age: (age.stale, age.changes or 0, age.commit))


@cache
def date_of(commit: str) -> str | None:
    """The day of a commit, if git knows it."""
    return report.git("show", "-s", "--format=%cs", f"{commit}^{{commit}}")


@cache
def changes_since(commit: str, paths: tuple[str, ...]) -> int:
    """How many commits since then touch these paths."""
    return int(report.git("rev-list", "--count", f"{commit}..HEAD", "--", *paths) or 0)


@cache
def differs(commit: str, paths: tuple[str, ...]) -> bool:
    """Whether files below these paths came, went, or do something else than at this commit."""
    listed = report.git("diff", "--raw", "--no-renames", "--no-abbrev", commit, "HEAD", "--", *paths) or ""
    for line in listed.splitlines():
        (_, _, before, after, _), path = line.partition("\t")[0].split(), line.partition("\t")[2]
        if meaning(before, path) != meaning(after, path):
            return True
    return False


@cache
def meaning(blob: str, path: str) -> str:
    """A version of a file without what changes nothing: comments, blank lines, and in Python docstrings."""
    text = report.git("cat-file", "blob", blob) if int(blob, 16) else None
    if text is None:
        return blob
    if path.endswith(".py"):
        return ast.dump(WithoutDocstrings().visit(ast.parse(text)))
    comments = {".c": r"//[^\n]*|/\*.*?\*/", ".toml": r"^\s*#[^\n]*"}.get(path[path.rfind(".") :], r"(?!)")
    return " ".join(re.sub(comments, "", text, flags=re.DOTALL | re.MULTILINE).split())


class WithoutDocstrings(ast.NodeTransformer):
    """Removes the docstrings of modules, classes, functions and attributes: strings that stand alone."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        """Keep every statement but a string."""
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node
