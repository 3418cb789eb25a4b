"""Unpaired text: the two sides of a corpus read apart, for translation that is learned without pairs of sentences.

    no       (source, target)                   a row is a sentence and its translation
    halves   (source, "") …   ("", target) …    sources of one half of the rows, targets of the other half
    all      (source, "") …   ("", target) …    every source and every target; two files need not be parallel

The halves are chosen by a hash of the source, so that no sentence of one half is the translation of one in the other.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mallang.data.located import Located
from mallang.data.readers import Files
from mallang.data.shares import hundredths, shared_out
from mallang.data.source import Row, Source
from mallang.errors import UserError

How = Literal["no", "halves", "all"]
HALVES = hundredths(0, 50), hundredths(50, 0)
LINES = 2000
"""Lines of each side that are compared to find out whether they are in one language."""
FEWEST = 50
"""With fewer words on a side nothing is said about its language."""
ALIKE = 0.5
"""The share of words in common from which two texts are taken to be in one language."""
WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True)
class Unpaired:
    """The two columns of a source in turn; the other cell of each row is empty, and blank lines are left out."""

    pairs: Source
    columns: tuple[str, ...]
    """The source and the target."""
    how: How

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that are read, if they are the user's own."""
        return self.pairs.paths if isinstance(self.pairs, Files | Located) else ()

    def rows(self, picks: Sequence[str]) -> Iterator[Row]:
        """A text of the source and a text of the target in turn, until both have ended."""
        for texts in itertools.zip_longest(self.side(0), self.side(1)):
            for text, column in zip(texts, self.columns, strict=True):
                if text is not None:
                    yield tuple(text if pick == column else "" for pick in picks)

    def side(self, number: int) -> Iterator[str]:
        """The texts of one side that are not blank."""
        if self.how == "halves":
            chosen = shared_out(self.pairs.rows(self.columns), 0, HALVES[number])
            texts = (row[number] for row in chosen)
        else:
            texts = (text for (text,) in self.pairs.rows(self.columns[number : number + 1]))
        return (text for text in texts if text.strip())

    def fingerprint(self, picks: Sequence[str]) -> str:
        """A hash of the content of both sides, and of how they are read."""
        if self.how == "halves":
            known = [self.pairs.fingerprint(self.columns)]
        else:
            known = [self.pairs.fingerprint((column,)) for column in self.columns]
        return hashlib.sha256("|".join([*known, "unpaired", self.how, *picks]).encode()).hexdigest()


def check_languages(unpaired: Unpaired, name: str) -> None:
    """Refuse two sides in one language: there is nothing to translate between them."""
    sides = [list(itertools.islice(unpaired.side(number), LINES)) for number in (0, 1)]
    for side, column in zip(sides, ("source", "target"), strict=True):
        if not side:
            raise UserError(f"{name} has no text for the {column}", todo="give two files, each in its own language")
    counts = [Counter(word for line in side for word in WORD.findall(line.lower())) for side in sides]
    totals = [count.total() for count in counts]
    if min(totals) < FEWEST:
        return
    common = sum(min(count / totals[0], counts[1][word] / totals[1]) for word, count in counts[0].items())
    if common > ALIKE:
        raise UserError(
            f"source and target of {name} seem to be in one language: {common:.0%} of their words are the same",
            todo="give text of two languages, one in each file",
        )
