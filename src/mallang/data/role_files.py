"""Files of semantic roles (.srl): who does what to whom, a line per word; roles as spans by the tree of a sentence.

They have the columns of CoNLL-2009 that matter here, a line per word and a blank line after each
sentence, with tabs between: number, word, part of speech, head, relation, sense, and a column of roles per predicate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from mallang.errors import UserError
from mallang.text.tag_scheme import OUTSIDE, split_tag

NONE = "_"
"""What stands where a word is no predicate, or has no role."""
VERBS = ("V", "C-V")
"""What the verb itself is marked with, and a further part of it, as the particle of a phrasal verb."""
COLUMNS = ("number", "word", "pos", "head", "relation", "sense")
"""The columns of a file before those of roles."""


def without_verbs(tag: str) -> str:
    """A role, or none where it marks the verb itself."""
    if tag in VERBS or not tag:
        return NONE
    prefix, kind = split_tag(tag)
    return OUTSIDE if prefix in tuple("BIES") and kind in VERBS else tag


def places_of(predicates: Sequence[str]) -> list[int]:
    """Which words are predicates."""
    return [place for place, lemma in enumerate(predicates) if lemma != NONE]


# ---- trees ----


def subtree_spans(roles: Sequence[str], heads: Sequence[int], predicate: int) -> list[str]:
    """Roles on head words as tags of spans (IOB2), by a tree: `heads` numbers the head of every word from 1, 0 is none.

    A word belongs to the nearest word above it, or to itself, that has a role or is the predicate; a span is the
    unbroken run of such words around the head word. So spans do not overlap, and none holds the predicate.
    """
    owner = [marked_above(place, roles, heads, predicate) for place in range(len(roles))]
    tags = [OUTSIDE] * len(roles)
    for head, role in enumerate(roles):
        if role == NONE or head == predicate:
            continue
        start, end = head, head + 1
        while start and owner[start - 1] == head:
            start -= 1
        while end < len(roles) and owner[end] == head:
            end += 1
        tags[start:end] = [f"B-{role}", *[f"I-{role}"] * (end - start - 1)]
    return tags


def marked_above(place: int, roles: Sequence[str], heads: Sequence[int], predicate: int) -> int:
    """The nearest word from this one up that has a role or is the predicate; −1 if none has."""
    for _ in range(len(roles)):  # a damaged tree may be a circle
        if place < 0 or roles[place] != NONE or place == predicate:
            return place
        place = heads[place] - 1
    return -1


# ---- files ----


def read_sentences(lines: Iterable[str], path: Path) -> Iterator[list[list[str]]]:
    """The sentences of a file of roles, as cells by line; each line is checked."""
    sentence: list[list[str]] = []
    first = 0
    for number, line in enumerate(lines, start=1):
        if line.startswith("#") and not sentence and "\t" not in line:
            continue
        if line.strip():
            first = first or number
            cells = line.split("\t")
            check_line(cells, sentence, f"{path}, line {number}")
            sentence.append(cells)
        elif sentence:
            check_sentence(sentence, f"{path}, lines {first} to {number - 1}")
            yield sentence
            sentence, first = [], 0
    if sentence:
        check_sentence(sentence, f"{path}, from line {first} to its end")
        yield sentence


def check_line(cells: list[str], before: list[list[str]], where: str) -> None:
    """Refuse a line that is not one of a file of roles."""
    if len(cells) < len(COLUMNS):
        raise UserError(
            f"{len(cells)} columns where at least {len(COLUMNS)} are expected: {', '.join(COLUMNS)}, then a column of "
            "roles for each predicate",
            where=where,
            todo="separate columns by tabs; write `_` for what is not known",
        )
    if cells[0] != str(len(before) + 1):
        raise UserError(
            f"the word has the number {cells[0]!r} where {len(before) + 1} is expected",
            where=where,
            todo="number the words of each sentence from 1, and put a blank line after it",
        )
    if not cells[1].strip():
        raise UserError("there is no word", where=where, todo="the word is the second column")
    if before and len(cells) != len(before[0]):
        raise UserError(
            f"{len(cells)} columns where the first word of the sentence has {len(before[0])}",
            where=where,
            todo="give all words of a sentence as many columns: one of roles for each predicate",
        )


def check_sentence(sentence: list[list[str]], where: str) -> None:
    """Refuse a sentence whose predicates and columns of roles, or whose heads, do not fit."""
    predicates = places_of([lemma_of(cells[5]) for cells in sentence])
    columns = len(sentence[0]) - len(COLUMNS)
    is_empty = all(cell in ("", NONE) for cells in sentence for cell in cells[len(COLUMNS) :])
    if columns != len(predicates) and (predicates or not is_empty):
        raise UserError(
            f"{len(predicates)} words have a sense, but there are {columns} columns of roles",
            where=where,
            todo="give a column of roles for each word with a sense, in the order of these words",
        )
    for number, cells in enumerate(sentence, start=1):
        if cells[3] != NONE and not (cells[3].isdecimal() and int(cells[3]) <= len(sentence)):
            raise UserError(
                f"the head of word {number} is {cells[3]!r}, which is no word of the sentence",
                where=where,
                todo=f"give a number from 0, for no head, to {len(sentence)}, or `_` where there is no tree",
            )


def lemma_of(sense: str) -> str:
    """The lemma of a sense: that of `give.01` is `give`."""
    return sense.rsplit(".", 1)[0] if sense not in ("", NONE) else NONE


def row_of(sentence: list[list[str]]) -> dict[str, str]:
    """The columns of a sentence as cells: those of the words, and roles on head words and as spans of the tree."""
    _, words, parts, heads, relations, senses, *_ = (
        list(column) for column in zip(*(cells[: len(COLUMNS)] for cells in sentence), strict=True)
    )
    lemmas = [lemma_of(sense) for sense in senses]
    predicates = places_of(lemmas)
    roles = [[without_verbs(cells[len(COLUMNS) + number]) for cells in sentence] for number in range(len(predicates))]
    cells = {"words": words, "pos": parts, "heads": heads, "relations": relations, "senses": senses}
    cells |= {"predicates": lemmas, "roles": [role for own in roles for role in own]}
    if NONE not in heads:
        tree = [int(head) for head in heads]
        pairs = zip(roles, predicates, strict=True)
        cells["role-spans"] = [tag for own, place in pairs for tag in subtree_spans(own, tree, place)]
    return {name: "\t".join(items) for name, items in cells.items()}


NAMES = ("words", "pos", "heads", "relations", "senses", "predicates", "roles", "role-spans")
"""The columns of a row of such a file."""


def rows(lines: Iterable[str], path: Path) -> Iterator[tuple[str, ...]]:
    """The rows of a file of roles."""
    for sentence in read_sentences(lines, path):
        found = row_of(sentence)
        yield tuple(found.get(name, "") for name in NAMES)
