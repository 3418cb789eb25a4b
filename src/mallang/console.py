"""Terminal output: no control characters from other people's texts, no failure where a stream is closed.

Texts, file names and messages may hold anything: escape sequences that a terminal would obey, bytes that are not UTF-8.
Between the prints of a command and its standard streams stands a `Stream`, which writes such characters as JSON does
(`\\u001b`), so that JSON stays JSON. Our own colors and progress lines go round it, by `own`.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters but tab and newline, and the halves of characters that stand for bytes that are not UTF-8."""
READER_LEFT = 141
"""The exit code where whoever read the output has gone, as in `mallang recipes | head -1`: 128 + SIGPIPE."""


def visible(text: str) -> str:
    """A text that a terminal prints and does not obey: control characters as JSON writes them."""
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def is_utf8(text: str) -> bool:
    """Whether a name, as Python has it, holds no byte that is not UTF-8."""
    return not re.search("[\ud800-\udfff]", text)


class Stream:
    """A standard stream that writes texts as `visible` shows them, and ends the command when its reader has gone."""

    def __init__(self, to: Any) -> None:
        self.to = to

    def write(self, text: str) -> int:
        """Write a text; its length is that of the text that was given."""
        self.write_own(visible(text))
        return len(text)

    def write_own(self, text: str) -> int:
        """Write what may move the cursor or change colors."""
        with self._reader():
            return int(self.to.write(text))

    def writelines(self, lines: Any) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Hand everything on."""
        with self._reader():
            self.to.flush()

    @contextmanager
    def _reader(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            discard(self.to)
            raise SystemExit(READER_LEFT) from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.to, name)


class Own:
    """A `Stream` as our own colors and progress lines see it; texts of others go through `visible` first."""

    def __init__(self, stream: Stream) -> None:
        self.write, self.stream = stream.write_own, stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def own(stream: Any) -> Any:
    """Where to write what may hold escape sequences of ours."""
    return Own(stream) if isinstance(stream, Stream) else stream


def drawing(*, stderr: bool = False) -> Console:
    """A console of rich's for tables and progress lines, without markup; texts of others go through `visible` first."""
    from rich.console import Console

    return Console(file=own(sys.stderr if stderr else sys.stdout), stderr=stderr, markup=False, emoji=False)


def discard(stream: Any) -> None:
    """Let a stream end nowhere, so that what it still holds does not fail when Python ends."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def open_closed() -> None:
    """Standard streams that the caller has closed (`>&-`) end in /dev/null.

    Otherwise the next file that is opened takes their number, and what is printed lands in it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            taken = os.open(os.devnull, os.O_RDWR)
            if taken != number:
                os.dup2(taken, number)
                os.close(taken)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            ending = Path(os.devnull).open("w" if number else "r", encoding="utf-8")  # noqa: SIM115 - to our end
            setattr(sys, name, ending)


@contextmanager
def safe_streams() -> Iterator[None]:
    """Standard streams that take any text, whatever the locale says, while the block runs."""
    open_closed()
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="strict" if stream is sys.stdin else "backslashreplace")
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (each if isinstance(each, Stream) else Stream(each) for each in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
