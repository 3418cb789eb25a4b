"""Documents out of lines: several rows of a corpus become one, with line breaks between.

blank-lines    a blank line ends a document, as in books and in BERT's own format
headings       a title, ` = Title = `, begins one, as in WikiText
chapters       the verses of a chapter, which a column `ref` tells: Genesis 25:1
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from mallang.data.source import Columned, Row, Source

Gathering = Literal["rows", "blank-lines", "headings", "chapters"]
REFERENCE = "ref"
"""The column that says where a verse stands."""
TITLE = re.compile(r"= [^=].*[^=] =|= [^=] =")
"""The title of an article; a heading inside has two signs or more."""


def has_chapters(source: Source) -> bool:
    """Whether a source says of its rows which chapter they are from."""
    return isinstance(source, Columned) and REFERENCE in source.columns


@dataclass(frozen=True)
class Gathered:
    """A source of lines, read as documents."""

    lines: Source
    how: Gathering

    def rows(self, picks: Sequence[str]) -> Iterator[Row]:
        """A row per document: its lines that are not blank."""
        if self.how == "chapters":
            verses = self.lines.rows((*picks, REFERENCE))
            for _, chapter in groupby(verses, key=lambda row: row[-1].rpartition(":")[0]):
                yield ("\n".join(line.strip() for line, _ in chapter if line.strip()),)
            return
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
        read = (*picks, REFERENCE) if self.how == "chapters" else picks
        return hashlib.sha256(f"{self.lines.fingerprint(read)}|documents {self.how}".encode()).hexdigest()
