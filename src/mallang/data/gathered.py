"""Documents out of lines: several rows of a corpus become one, with line breaks between.

blank-lines    a blank line ends a document, as in books and in BERT's own format
headings       a title, ` = Title = `, begins one, as in WikiText
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from mallang.data.source import Row, Source

Gathering = Literal["rows", "blank-lines", "headings"]
TITLE = re.compile(r"= [^=].*[^=] =|= [^=] =")
"""The title of an article; a heading inside has two signs or more."""


@dataclass(frozen=True)
class Gathered:
    """A source of lines, read as documents."""

    lines: Source
    how: Gathering

    def rows(self, picks: Sequence[str]) -> Iterator[Row]:
        """A row per document: its lines that are not blank."""
        document: list[str] = []
        for (line,) in self.lines.rows(picks):
            text = line.strip()
            is_border = not text if self.how == "blank-lines" else bool(TITLE.fullmatch(text))
            if is_border and document:
                yield ("\n".join(document),)
                document = []
            if text:
                document.append(text)
        if document:
            yield ("\n".join(document),)

    def fingerprint(self, picks: Sequence[str]) -> str:
        """A hash of that of the lines, and of how they are gathered."""
        return hashlib.sha256(f"{self.lines.fingerprint(picks)}|documents {self.how}".encode()).hexdigest()
