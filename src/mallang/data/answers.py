"""Answers in their context: how the cells of a span column are read, checked against the context, and placed on tokens.

| a cell                                              | means                                                     |
|-----------------------------------------------------|-----------------------------------------------------------|
| [{"text": "Seoul", "answer_start": 17}]             | answers with their first characters, as SQuAD has them    |
| {"text": ["Seoul"], "answer_start": [17]}           | the same as lists, as Hugging Face has them               |
| ["Seoul", "the city of Seoul"]                      | answers at their first occurrence in the context          |
| Seoul                                               | one answer at its first occurrence                        |
| nothing, [] or {"text": []}                         | the context has no answer                                 |

Offsets count the characters of the context from 0.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Int

from mallang.errors import UserError
from mallang.text.tokenizer import Tokenizer

NOWHERE = -1
"""The token of an answer that no token holds, such as a character that the tokenizer leaves out."""
Offsets = Int[np.ndarray, "tokens 2"]
"""The first character of each token, and the first one after it."""


@dataclass(frozen=True)
class Answer:
    """A part of a context."""

    text: str
    start: int | None = None
    """Its first character; none: its first occurrence."""

    @property
    def end(self) -> int:
        """The first character after it."""
        assert self.start is not None
        return self.start + len(self.text)


def read_answers(cell: str) -> list[Answer]:
    """The answers that a cell holds, as they are written; none where there is no answer."""
    plain = cell.strip()
    if plain[:1] in ("[", "{"):
        try:
            return from_json(json.loads(plain))
        except ValueError:
            pass  # a text in brackets
    return [Answer(plain)] if plain else []


def from_json(value: Any) -> list[Answer]:
    """Answers out of plain values; a ValueError where they are none."""
    if isinstance(value, dict) and isinstance(value.get("text"), list):
        starts = value.get("answer_start", [None] * len(value["text"]))
        if not isinstance(starts, list) or len(starts) != len(value["text"]):
            raise UserError(
                "text and answer_start of the answers differ in length", todo="give every answer its text and its place"
            )
        return [make_answer(text, start) for text, start in zip(value["text"], starts, strict=True)]
    items = [value] if isinstance(value, dict) else value
    if not isinstance(items, list) or not all(isinstance(item, str) or "text" in plain(item) for item in items):
        raise ValueError("these are no answers")
    pairs = [(item, None) if isinstance(item, str) else (item["text"], item.get("answer_start")) for item in items]
    return [make_answer(*pair) for pair in pairs]


def plain(item: Any) -> dict[str, Any]:
    """An object of JSON; nothing for other values."""
    return item if isinstance(item, dict) else {}


def make_answer(text: Any, start: Any) -> Answer:
    """An answer of a text and, perhaps, a place."""
    if not isinstance(text, str) or isinstance(start, bool) or not isinstance(start, int | None):
        raise UserError(
            f"an answer is a text and the number of its first character, not {text!r} and {start!r}",
            todo='write [{"text": "Seoul", "answer_start": 17}], or the text alone',
        )
    if not text.strip():
        raise UserError("an answer is empty", todo="give its text, or no answer at all: []")
    return Answer(text, start)


def locate(answers: Sequence[Answer], context: str) -> list[Answer]:
    """The answers with their places; one that is not in the context, or not at its place, is refused."""
    return [located(answer, context) for answer in answers]


def located(answer: Answer, context: str) -> Answer:
    """An answer with its place."""
    found = context.find(answer.text)
    if found < 0:
        raise UserError(
            f"the answer {shown(answer.text)} is not in its context {shown(context)}",
            todo="an answer is a part of the context, letter by letter; leave it empty if the context has none",
        )
    if answer.start is None:
        return Answer(answer.text, found)
    if answer.start < 0 or context[answer.start : answer.end] != answer.text:
        there = shown(context[max(0, answer.start) : max(0, answer.end)])
        raise UserError(
            f"the answer {shown(answer.text)} does not stand at character {answer.start} of its context: there is "
            f"{there}",
            todo=f"its first occurrence is at {found}; places count characters from 0, not bytes",
        )
    return answer


def shown(text: str, most: int = 60) -> str:
    """A text as a message quotes it."""
    return repr(text if len(text) <= most else text[: most - 1] + "…")


def offsets_of(tokenizer: Tokenizer, text: str) -> tuple[list[int], Offsets]:
    """The tokens of a text, and where each is in it, without white space at its sides."""
    found = tokenizer.encode(text)
    places = []
    for start, end in found.offsets:
        piece = text[start:end]
        left = start + len(piece) - len(piece.lstrip())
        places.append((left, max(left, start + len(piece.rstrip()))))
    return found.ids, np.array(places, dtype=np.int64).reshape(-1, 2)


def token_span(offsets: Offsets, start: int, end: int) -> tuple[int, int]:
    """The first and the last token that share a character with a part of the text; NOWHERE twice if none does."""
    begins, ends = offsets[:, 0], offsets[:, 1]
    touching = np.flatnonzero((begins < end) & (ends > start) & (ends > begins))
    return (int(touching[0]), int(touching[-1])) if len(touching) else (NOWHERE, NOWHERE)


@dataclass
class Spans:
    """Encodes answers as the first and the last token of each, beside the tokens of their context."""

    tokenizer: Tokenizer
    kept: dict[str, Offsets] = field(default_factory=dict)
    """The offsets of the context read last: several questions in a row are about one."""

    @property
    def fingerprint(self) -> str:
        """A sum over all that decides how it encodes."""
        return hashlib.sha256(f"spans 1 {self.tokenizer.fingerprint}".encode()).hexdigest()

    def encode_rows(self, rows: Sequence[tuple[str, ...]]) -> list[list[int]]:
        """First and last tokens of the answers of every row, a pair after the other; nothing where there are none."""
        return [self.encode(*row) for row in rows]

    def encode(self, cell: str, context: str) -> list[int]:
        """The tokens of the answers of one row."""
        answers = locate(read_answers(cell), context)
        if context not in self.kept:
            self.kept = {context: offsets_of(self.tokenizer, context)[1]}
        spans = [token_span(self.kept[context], answer.start or 0, answer.end) for answer in answers]
        return [token for span in dict.fromkeys(spans) for token in span]
