"""Texts with mentions and entity links: how their cells are read, checked against the text, and placed on tokens.

A mention is a part of a text that a question is about. A link says which entity of a knowledge graph a part names.

| column   | a cell                                    | means                                              |
|----------|-------------------------------------------|----------------------------------------------------|
| mentions | 0 and 5, with a tab or a space between    | the mention from character 0 to 4                  |
| mentions | [[0, 5], [20, 26]]                        | two mentions: of a relation the head, then the tail |
| links    | [["Q90", 0, 5], ["Q142", 20, 26, 0.4]]    | entity, first character, end, confidence (by default 1) |
| links    | nothing, or []                            | no entity is linked                                |

Offsets count the characters of the text from 0; an end is the first character after.

A text may also be written with both at once, as `mallang classify` reads it:

    [[Paris|Q90]] is the capital of {{France|Q142}}.            one mention, with its link, and a link
    [[tail:France|Q142]] has the capital [[head:Paris]].        the head and the tail of a relation
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int64, Integer

from mallang.data.answers import NOWHERE, offsets_of, shown, token_span
from mallang.data.columns import TextEncoder
from mallang.data.knowledge import as_token
from mallang.errors import UserError
from mallang.text.tokenizer import Tokenizer

LINK = 3
"""The integers of a link: its first and its last token, and its entity."""
ROLES = ("head", "tail")
"""The mentions of a relation, in their order."""
MARKUP = re.compile(
    r"\[\[(?:(?P<role>head|tail):)?(?P<mention>[^\[\]{}|]+)(?:\|(?P<its>[^\[\]{}|]+))?\]\]"
    r"|\{\{(?P<linked>[^\[\]{}|]+)\|(?P<entity>[^\[\]{}|]+)\}\}"
)


@dataclass(frozen=True)
class Link:
    """A part of a text, and the entity that it names."""

    entity: str
    start: int
    end: int
    """The first character after it."""
    confidence: float = 1.0


def read_mentions(cell: str, text: str, count: int) -> list[tuple[int, int]]:
    """The mentions that a cell holds; another number of them, or one outside the text, is refused."""
    try:
        found: list[Any] = json.loads(cell) if cell.strip()[:1] == "[" else [int(part) for part in cell.split()]
        pairs = [found] if found and not isinstance(found[0], list) else found
        mentions = [(whole(start), whole(end)) for start, end in pairs]
    except (ValueError, TypeError) as error:
        raise UserError(
            f"{shown(cell)} is no mention",
            todo="write its first character and its end, such as [0, 5], or several: [[0, 5], [20, 26]]",
        ) from error
    if len(mentions) != count:
        raise UserError(
            f"a row has {len(mentions)} mentions, and {count} are asked for",
            todo='task.marks="entity" reads one mention, task.marks="relation" the head and the tail',
        )
    for start, end in mentions:
        check_part("mention", start, end, text)
    return mentions


def read_links(cell: str, text: str) -> list[Link]:
    """The links that a cell holds; one outside the text is refused."""
    if not cell.strip():
        return []
    try:
        items = json.loads(cell)
        links = [Link(named(item[0]), whole(item[1]), whole(item[2]), *confidence(item[3:])) for item in items]
    except (ValueError, TypeError, IndexError, KeyError) as error:
        raise UserError(
            f"{shown(cell)} is no list of links",
            todo='write [["Q90", 0, 5]]: entity, first character, end, and perhaps a confidence from 0 to 1',
        ) from error
    for link in links:
        check_part(f"link to {link.entity}", link.start, link.end, text)
    return links


def whole(value: Any) -> int:
    """A whole number; a ValueError where it is none."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} is no whole number")
    return value


def named(value: Any) -> str:
    """The name of an entity; a ValueError where it is none."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{value!r} names no entity")
    return value


def confidence(values: Sequence[Any]) -> list[float]:
    """The confidence of a link, if there is one; a ValueError where it is none."""
    found = [float(value) for value in values]
    if len(found) > 1 or not all(0.0 <= value <= 1.0 for value in found):
        raise ValueError("a confidence is a number from 0 to 1")
    return found


def check_part(what: str, start: int, end: int, text: str) -> None:
    """Refuse a part that is empty or outside its text."""
    if not 0 <= start < end <= len(text):
        raise UserError(
            f"the {what} from character {start} to {end} is not within its text, which has {len(text)} characters: "
            f"{shown(text)}",
            todo="offsets count characters from 0, not bytes or tokens; the end is the first character after",
        )


def read_markup(text: str) -> tuple[str, list[tuple[int, int]], list[Link]]:
    """A text that is written with its mentions and links, without them, and both; heads come before tails."""
    plain, last, mentions, links = "", 0, list[tuple[str, int, int]](), list[Link]()
    for found in MARKUP.finditer(text):
        part = found["mention"] or found["linked"]
        start = len(plain) + found.start() - last
        plain += text[last : found.start()] + part
        last, entity = found.end(), found["its"] or found["entity"]
        if found["mention"]:
            mentions.append((found["role"] or "", start, len(plain)))
        if entity:
            links.append(Link(entity.strip(), start, len(plain)))
    if len({role for role, _, _ in mentions}) == len(mentions):  # both roles are named
        mentions.sort(key=lambda mention: ROLES.index(mention[0]) if mention[0] else -1)
    return plain + text[last:], [(start, end) for _, start, end in mentions], links


def as_cells(text: str) -> tuple[str, str, str]:
    """A text that is written with its mentions and links as three cells: text, mentions, links."""
    plain, mentions, links = read_markup(text)
    told = [[link.entity, link.start, link.end, link.confidence] for link in links]
    return plain, json.dumps(mentions), json.dumps(told)


@dataclass(frozen=True)
class Mentions:
    """Encodes the mentions of a text as the first and the last token of each; they stand beside the text."""

    tokenizer: Tokenizer
    count: int
    """How many each row has."""

    @property
    def fingerprint(self) -> str:
        """A sum over all that decides how it encodes."""
        return hashlib.sha256(f"mentions 1 {self.count} {self.tokenizer.fingerprint}".encode()).hexdigest()

    def encode_rows(self, rows: Sequence[tuple[str, ...]]) -> list[list[int]]:
        """First and last tokens of the mentions of every row: its cell, then the text."""
        return [self.encode(*row) for row in rows]

    def encode(self, cell: str, text: str) -> list[int]:
        """The tokens of the mentions of one text."""
        offsets, found = offsets_of(self.tokenizer, text)[1], []
        for start, end in read_mentions(cell, text, self.count):
            first, last = token_span(offsets, start, end)
            if first == NOWHERE:
                raise UserError(f"the mention {shown(text[start:end])} holds no token", todo="mark letters or digits")
            found += [first, last]
        return found


@dataclass(frozen=True)
class Links:
    """Encodes the links of a text as the first and last token and the entity of each; they stand beside the text.

    Of links that begin at one token the most confident is kept. Entities that the graph does not have are left out, and
    so are links below `least`.
    """

    tokenizer: TextEncoder
    entities: TextEncoder | None
    """The tokenizer of the graph; none: no entity is known."""
    least: float = 0.0
    """The least confidence."""

    @property
    def fingerprint(self) -> str:
        """A sum over all that decides how it encodes."""
        graph = "" if self.entities is None else self.entities.fingerprint
        return hashlib.sha256(f"links 1 {self.least} {self.tokenizer.fingerprint} {graph}".encode()).hexdigest()

    def encode_rows(self, rows: Sequence[tuple[str, ...]]) -> list[list[int]]:
        """The links of every row: its cell, then the text."""
        return [self.encode(*row) for row in rows]

    def encode(self, cell: str, text: str) -> list[int]:
        """The links of one text, by their first tokens."""
        links = read_links(cell, text)
        if self.entities is None or not links:
            return []
        assert isinstance(self.tokenizer, Tokenizer)
        offsets, vocabulary = offsets_of(self.tokenizer, text)[1], self.entities.vocabulary
        found: dict[int, list[int]] = {}
        for link in sorted(links, key=lambda link: -link.confidence):
            entity = vocabulary.ids.get(as_token(link.entity))
            first, last = token_span(offsets, link.start, link.end)
            if link.confidence >= self.least and entity not in (None, *vocabulary.specials) and first != NOWHERE:
                found.setdefault(first, [first, last, int(entity or 0)])
        return [number for first in sorted(found) for number in found[first]]


@dataclass(frozen=True)
class LinkedTokens:
    """Encodes the links of a document as one integer for each token: the entity that begins there plus one, or 0.

    The tokens are those of the sentences of the document, one after the other (columns.Segments); the offsets are those
    of the whole text.
    """

    links: Links
    split: Any
    """Splits a text into the sentences that are tokenized one by one."""

    @property
    def fingerprint(self) -> str:
        """A sum over all that decides how it encodes."""
        return f"per token {self.links.fingerprint}"

    def encode_rows(self, rows: Sequence[tuple[str, ...]]) -> list[list[int]]:
        """The entities of the tokens of every row: its cell, then the text."""
        return [self.encode(*row) for row in rows]

    def encode(self, cell: str, text: str) -> list[int]:
        """The entities of the tokens of one text."""
        found, begin = list[int](), 0
        links, tokenizer = read_links(cell, text), self.links.tokenizer
        for sentence in self.split(text):
            place = text.index(sentence, begin)
            begin = place + len(sentence)
            inside = [link for link in links if place <= link.start and link.end <= begin]
            told = [[link.entity, link.start - place, link.end - place, link.confidence] for link in inside]
            entities = [0] * max(1, len(tokenizer.encode_batch([sentence])[0]))  # one without tokens is <unk>
            for first, _, entity in np.reshape(self.links.encode(json.dumps(told), sentence), (-1, LINK)).tolist():
                entities[int(first)] = int(entity) + 1
            found += entities
        return found


def with_marks(
    ids: Integer[np.ndarray, " tokens"], mentions: Integer[np.ndarray, " ends"], marks: Sequence[int]
) -> tuple[Int64[np.ndarray, " longer"], Int64[np.ndarray, " tokens"]]:
    """The tokens of a text with a mark before and after each mention, and where each token stands among them.

    `mentions` has the first and the last token of each, `marks` the mark of each.
    """
    # A mark that closes a mention comes before one that opens the next mention at the same place.
    events = sorted(
        event
        for mark, (first, last) in zip(marks, np.reshape(mentions, (-1, 2)).tolist(), strict=True)
        for event in ((last + 1, 0, mark), (first, 1, mark))
    )
    places = np.array([place for place, _, _ in events], dtype=np.int64)
    tokens = np.insert(np.asarray(ids, dtype=np.int64), places, [mark for _, _, mark in events])
    numbers = np.arange(len(ids))
    return tokens, numbers + np.searchsorted(places, numbers, side="right")
