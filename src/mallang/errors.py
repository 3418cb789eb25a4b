"""Errors that a user can fix: one clear message, exit code 2, no traceback."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterable
from types import ModuleType


class UserError(Exception):
    """A user's error: what is wrong, where, and what to do about it."""

    def __init__(self, what: str, *, where: str | None = None, todo: str | None = None) -> None:
        super().__init__(what)
        self.what, self.where, self.todo = what, where, todo

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.todo:
            lines.append(f"  try:   {self.todo}")
        return "\n".join(lines)


def nearest(name: str, known: Iterable[str], shown: Callable[[str], str] = str) -> str:
    """A phrase that names the closest known names, or lists them all when none is close."""
    options = sorted(known)
    close = difflib.get_close_matches(name, options, n=3, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(dict.fromkeys(map(shown, close))) + "?"
    return f"known: {within(dict.fromkeys(map(shown, options)))}" if options else "there are none"


def within(names: Iterable[str], most: int = 1000) -> str:
    """Names up to so many characters in all, each cut to one line; then how many there are."""
    listed, brief = [*names], []
    for name in map(cut, listed):
        most -= len(name) + 2
        if most < 0:
            break
        brief.append(name)
    return ", ".join(brief) + (f" … ({len(listed):,} in all)" if len(brief) < len(listed) else "")


def cut(name: str, most: int = 80) -> str:
    """A name, or the beginning of one that is longer than a name should be."""
    return name if len(name) <= most else f"{name[:most]}…"


def some_of(names: Iterable[str], most: int = 5) -> str:
    """The first few of them, quoted."""
    shown = [*names]
    return ", ".join(map(repr, map(cut, shown[:most]))) + (" …" if len(shown) > most else "")


def install(extra: str) -> str:
    """The line that installs an extra, in a clone of the repository: the package is on no index."""
    return f"pip install -e '.[{extra}]'"


def require(module: str, extra: str) -> ModuleType:
    """Import an optional module, or say which command installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(
            f"this needs the optional package {module.split('.')[0]}, which is not installed",
            todo=install(extra),
        ) from error
