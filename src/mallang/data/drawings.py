"""Drawings with captions in a table and one file of raw images, split by what they show.

A drawing of a woman, a man and a person who do the same thing differ by a few pixels, and so do skin tones and drawings
that face right. All of them have one `concept`, and a split by the hash of the concept never has such near-duplicates
on both sides.

    man judge, woman judge                          concept  judge
    man: red hair, older person                     concept  person
    person kneeling: facing right                   concept  kneeling
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from mallang.data.source import Row
from mallang.errors import UserError

COLUMNS = ("index", "hexcode", "split", "group", "subgroup", "caption", "tags")
"""The columns of the table; rows have `image` and `concept` besides."""
PEOPLE = frozenset(
    {
        *("person", "people", "man", "men", "male", "woman", "women", "female", "adult", "old", "older", "and"),
        *("boy", "boys", "girl", "girls", "child", "children", "baby", "santa", "mrs", "mx"),
    }
)
"""Words that tell variants of one drawing apart."""
SAME = {
    "prince": "with crown", "princess": "with crown",
    "merman": "merperson", "mermaid": "merperson",
}  # fmt: skip
"""What else stands for one concept."""
TONE = re.compile(r"(?:medium-light|medium-dark|medium|light|dark) skin tone")
WORD = re.compile(r"[\w’'-]+")


def rows(lines: Iterable[str], path: Path, images: str) -> Iterator[Row]:
    """The rows of a table, whose first line names the columns, with the place of each image and its concept."""
    for number, line in enumerate(lines, start=1):
        cells = tuple(line.split("\t"))
        if number == 1:
            if cells != COLUMNS:
                raise UserError(f"the columns are {', '.join(cells)}", where=str(path), todo=", ".join(COLUMNS))
            continue
        if len(cells) != len(COLUMNS):
            raise UserError(f"{len(cells)} columns instead of {len(COLUMNS)}", where=f"{path}, line {number}")
        yield (*cells, f"{images}#{cells[0]}", concept(cells[COLUMNS.index("caption")]))


def concept(caption: str) -> str:
    """What a caption says without who does it: no gender, age, skin tone or hair, and no side that is faced."""
    plain = TONE.sub("", caption.casefold()).removesuffix(": facing right")
    thing, colon, _ = plain.partition(":")
    is_of_people = bool(colon) and not without_people(thing)  # man: red hair
    return " ".join(dict.fromkeys(without_people(thing if is_of_people else plain))) or "person"


def without_people(text: str) -> list[str]:
    """The words of a text but those for people."""
    return [SAME.get(word, word) for word in WORD.findall(text) if word not in PEOPLE]
