"""Choices of a question, and which of them is its answer: how the cells are read.

| choices                                               |                                                     |
|-------------------------------------------------------|-----------------------------------------------------|
| ["bread", "a letter"]                                 | a list in JSON                                      |
| [{"label": "A", "text": "bread"}, …]                  | with labels, as CommonsenseQA has them              |
| {"label": ["A", "B"], "text": ["bread", "a letter"]}  | the same as lists, as Hugging Face has them         |
| bread<TAB>a letter                                    | with tabs between                                   |

An answer is the label of a choice, its text, its letter (A is the first), or its number from 0; the first of these that
applies. Several columns of text are one list where data.columns joins their names by plus signs: "first+second+third".
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mallang.data.columns import Segments, Starts
from mallang.errors import UserError, some_of

FEWEST = 2
"""Choices of a question."""


@dataclass(frozen=True)
class Choices:
    """The choices of one question."""

    texts: tuple[str, ...]
    labels: tuple[str, ...] = ()
    """Their labels, where the data names them."""

    @property
    def names(self) -> tuple[str, ...]:
        """What each is called: its label, or else its letter; its number where there are more than letters."""
        letters = tuple(string.ascii_uppercase)
        numbers = tuple(map(str, range(len(self.texts))))
        return self.labels or (letters[: len(self.texts)] if len(self.texts) <= len(letters) else numbers)

    def number(self, answer: str) -> int:
        """Which choice an answer names, from 0."""
        wanted = answer.strip()
        for known in (self.labels, self.texts, self.names):
            if wanted in known:
                return known.index(wanted)
        if wanted.isdecimal() and int(wanted) < len(self.texts):
            return int(wanted)
        raise UserError(
            f"the answer {wanted!r} is none of the {len(self.texts)} choices {some_of(self.texts)}",
            todo=f"give its label or letter ({', '.join(self.names)}), its text, or its number from 0",
        )


def read_choices(cell: str) -> Choices:
    """The choices that a cell holds."""
    found = Choices(tuple(cell.split("\t")))
    if cell.strip()[:1] in ("[", "{"):
        with contextlib.suppress(ValueError):  # a text in brackets
            found = from_json(json.loads(cell))
    check(found)
    return found


def check(found: Choices) -> None:
    """Refuse too few choices, empty ones and equal ones."""
    if len(found.texts) < FEWEST:
        raise UserError(
            f"there are {len(found.texts)} choices, and at least {FEWEST} are needed",
            todo='give a list, ["bread", "a letter"], or tabs between them',
        )
    for number, text in enumerate(found.texts):
        if not text.strip():
            raise UserError(f"choice {found.names[number]} is empty", todo="give every choice a text")
    if len(set(found.labels)) < len(found.labels):
        raise UserError(f"two choices have one label: {', '.join(found.labels)}", todo="label every choice differently")


def from_json(value: Any) -> Choices:
    """Choices out of plain values; a ValueError where they are none."""
    if isinstance(value, dict) and isinstance(value.get("text"), list):
        labels = value.get("label", [])
        if not isinstance(labels, list) or (labels and len(labels) != len(value["text"])):
            raise UserError("there must be as many labels as choices", todo='{"text": ["x", "y"], "label": ["A", "B"]}')
        return Choices(tuple(map(str, value["text"])), tuple(map(str, labels)))
    if not isinstance(value, list):
        raise ValueError("these are no choices")
    if value and all(isinstance(item, dict) and "text" in item for item in value):
        labels = [str(item["label"]) for item in value if "label" in item]
        if labels and len(labels) != len(value):
            raise UserError("some choices have a label and some have none", todo="label all of them, or none")
        return Choices(tuple(str(item["text"]) for item in value), tuple(labels))
    return Choices(tuple(map(str, value)))


class ChoiceTexts(Segments):
    """Encodes the choices of a cell, each by itself."""

    def segments(self, texts: Sequence[str]) -> list[list[list[int]]]:
        """The ids of every choice of every cell."""
        return self.ids_of([read_choices(text).texts for text in texts])


def encoders(tokenizer: Any) -> tuple[ChoiceTexts, Starts]:
    """What gives the tokens of all choices, and the first token of each."""
    texts = ChoiceTexts(tokenizer, "choices")
    return texts, Starts(texts)


@dataclass(frozen=True)
class RightChoice:
    """Encodes an answer as the number of its choice."""

    fingerprint: str = hashlib.sha256(b"right choice 1").hexdigest()

    def encode_rows(self, rows: Sequence[tuple[str, ...]]) -> list[list[int]]:
        """The number of the right choice of every row."""
        return [[read_choices(choices).number(answer)] for answer, choices in rows]


def plain_text(cell: str) -> str:
    """The choices as one text, for a tokenizer to learn from; a cell that cannot be read is refused later, by row."""
    try:
        return " ".join(read_choices(cell).texts)
    except UserError:
        return cell
