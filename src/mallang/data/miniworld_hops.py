"""Questions about miniworld that two steps in its graph answer: from the concept asked about to one of three choices.

    What is used in the same way as "tea"?       tea ←takes- drink -takes→ milk        milk · letter · song      A

No text says so: it follows from two triples of `miniworld-triples`. Questions come in threes with the same choices, of
which each is right once, so that no choice is likelier than another. The held-out splits ask about concepts that occur
nowhere in the text of training. So without the graph, nothing is left to go by.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from mallang.data import miniworld_triples
from mallang.data.miniworld_draw import Draw
from mallang.data.miniworld_triples import Name

VERSION = 1
"""Changes whenever any question does."""
CHOICES = 3
LETTERS = "ABC"


@dataclass(frozen=True)
class Template:
    """A question in both languages, and the two relations that answer it; `^` before one walks it backward."""

    first: str
    second: str
    korean: str
    english: str


TEMPLATES = (
    Template("is a", "^is a", "{}하고 같은 종류는 무엇인가요?", 'What is of the same kind as "{}"?'),
    Template(
        "can be", "^can be", "{}처럼 될 수 있는 것은 무엇인가요?", 'What can be described in the same way as "{}"?'
    ),
    Template("^takes", "takes", "{}처럼 쓰이는 것은 무엇인가요?", 'What is used in the same way as "{}"?'),
    Template("^takes", "done at", "{}하고 어울리는 곳은 어디인가요?", 'Where does one have to do with "{}"?'),
)
Reached = dict[Name, frozenset[Name]]
"""What two steps lead to from each concept."""


@cache
def rows(split: str, count: int) -> tuple[tuple[str, ...], ...]:
    """Rows of a split: question and choices in Korean, then in English, and the letter of the answer."""
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    number = Draw(VERSION, ("train", "valid", "test").index(split), CHOICES).next()
    while len(found) < count:
        draw, number = Draw(number), number + 1
        template = draw.choose(TEMPLATES)
        drawn = draw_three(draw, split, reached_by(template))
        if drawn is None:
            continue
        asked, right = drawn
        for name, answer in zip(asked, right, strict=True):
            choices = shuffled(draw, right)
            english, korean = (json.dumps([each[place] for each in choices], ensure_ascii=False) for place in (0, 1))
            questions = template.korean.format(name[1]), template.english.format(name[0])
            row = (questions[0], korean, questions[1], english, LETTERS[choices.index(answer)])
            found.setdefault((questions[1], english), row)
    return tuple(found.values())[:count]


def draw_three(draw: Draw, split: str, reached: Reached) -> tuple[list[Name], list[Name]] | None:
    """Three concepts, and for each a choice that it alone reaches; nothing where what was drawn has none."""
    names = [name for name in reached if split_of(name) == split]
    asked = shuffled(draw, names)[:CHOICES]
    right = []
    for name in asked:
        elsewhere = {end for other in asked if other != name for end in reached[other]}
        own = sorted(end for end in reached[name] - elsewhere if end not in asked and split_of(end) in ("train", split))
        if not own:
            return None
        right.append(draw.choose(own))
    differ = all(len({each[place] for each in (*asked, *right)}) == 2 * CHOICES for place in (0, 1))
    return (asked, right) if differ else None


def shuffled(draw: Draw, names: list[Name]) -> list[Name]:
    """The names in random order."""
    return sorted(names, key=lambda name: draw.next())


@cache
def reached_by(template: Template) -> Reached:
    """What the two relations of a template lead to from each concept, in the training triples of the graph."""
    following: dict[str, dict[Name, set[Name]]] = defaultdict(lambda: defaultdict(set))
    for head, relation, tail in graph():
        following[relation][head].add(tail)
        following[f"^{relation}"][tail].add(head)
    first, second = following[template.first], following[template.second]
    ends = {name: {end for middle in first[name] for end in second.get(middle, ())} - {name} for name in sorted(first)}
    return {name: frozenset(found) for name, found in ends.items() if found}


def graph() -> Iterator[tuple[Name, str, Name]]:
    """The triples of the training split of miniworld-triples."""
    for triple, split in miniworld_triples.split_of().items():
        if split == "train":
            yield triple


def split_of(name: Name) -> str:
    """The split whose questions ask about a concept; those of valid and test occur nowhere in the text of training."""
    number = hashlib.sha256(f"{VERSION}\t{name[0]}".encode()).digest()[0] % 8
    return {0: "valid", 1: "valid", 2: "test", 3: "test"}.get(number, "train")
