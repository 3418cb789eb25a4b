"""Reading comprehension of miniworld: a context of three statements, a question about one, and its answer in it.

    Minsu drank milk in the kitchen. The small cat slept yesterday. Jiyoung will read a book.
    Who slept yesterday?                                        The small cat

The statements have different subjects and different verbs, so that one of them answers the question. The answer is a
part of the context, with the place of its first character: who, what, where or when. In Korean it has no particle.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from mallang.data import miniworld
from mallang.data.miniworld_draw import POOLS, Draw, draw_clause
from mallang.data.miniworld_grammar import ENGLISH_ORDER, KOREAN_ORDER, Scene, Slots
from mallang.data.miniworld_scene import Clause, Phrase, asked_object, makes_sense
from mallang.data.miniworld_words import WHEN, WHERE, WHO, Noun, no_type_check
from mallang.text.hangul import particle

VERSION = 1
"""Changes whenever any question does."""
STATEMENTS = 3
"""Statements of a context."""
PARTS = ("subject", "object", "place", "time")
"""What a question may ask for."""


@cache
def rows(split: str, count: int) -> tuple[tuple[str, ...], ...]:
    """Rows of a split: context, question and answer in Korean, then in English, and what is asked for."""
    known = miniworld.familiar()
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    number = Draw(VERSION, list(miniworld.SPLITS).index(split), len(PARTS), STATEMENTS).next()
    while len(found) < count:
        draw, number = Draw(number), number + 1
        part = PARTS[len(found) % len(PARTS)]  # in turn, so that none is more frequent
        clauses = draw_statements(draw, split)
        if clauses is None or any(not known.issuperset(miniworld.forms(Scene((clause,)))) for clause in clauses):
            continue
        asked = draw.below(STATEMENTS)
        question = question_of(clauses[asked], part)
        if question is None:
            continue
        texts = [text for language in ("ko", "en") for text in told(clauses, asked, question, part, language)]
        row = (*texts, part)
        found.setdefault((row[0], row[1]), row)
    return tuple(found.values())


@no_type_check
def draw_statements(draw: Draw, split: str) -> list[Clause] | None:
    """Statements with different subjects and different verbs; nothing when what was drawn does not allow them."""
    found: list[Clause] = []
    for _ in range(50):
        drawn = draw_clause(draw, split, POOLS["action"])
        if drawn is None or drawn.subject is None or drawn.negated or drawn.fronted or not makes_sense(drawn):
            continue
        if any(subjects_of(clause) & subjects_of(drawn) for clause in found):
            continue
        if any(clause.verb.english == drawn.verb.english for clause in found):
            continue
        found.append(drawn)
        if len(found) == STATEMENTS:
            return found
    return None


@no_type_check
def subjects_of(clause: Clause) -> set[Noun]:
    """Who does it."""
    subject = clause.subject
    return set() if subject is None else {noun for noun in (subject.noun, subject.partner) if noun}


@no_type_check
def question_of(clause: Clause, part: str) -> Clause | None:
    """The question that asks for a part of a statement, if there is one that makes sense."""
    asked: dict[str, Any] = {
        "subject": Phrase(WHO),
        "object": Phrase(asked_object(clause.verb)),
        "place": WHERE,
        "time": WHEN,
    }
    if getattr(clause, part) is None:
        return None
    found = clause._replace(question=True, **{part: asked[part]})
    return found if makes_sense(found) else None


@no_type_check
def told(clauses: list[Clause], asked: int, question: Clause, part: str, language: str) -> tuple[str, str, str]:
    """Context, question and answer in a language; the answer as JSON."""
    scenes = [Scene((clause,)) for clause in clauses]
    texts = [scene.korean if language == "ko" else scene.english for scene in scenes]
    context, before = " ".join(texts), sum(len(text) + 1 for text in texts[:asked])
    start, end = span_of(scenes[asked], part, language)
    answer = {"text": context[before + start : before + end], "answer_start": before + start}
    whole = Scene((question,))
    return context, whole.korean if language == "ko" else whole.english, json.dumps([answer], ensure_ascii=False)


@no_type_check
def span_of(scene: Scene, part: str, language: str) -> tuple[int, int]:
    """Where a part stands in the sentence of a scene: its first character, and the first one after it."""
    if language == "ko":
        slots: Slots = scene.korean_slots()[0]
        start, text = place_of(slots, KOREAN_ORDER, part)
        return start, start + len(without_particle(scene.clauses[0], part, text))
    slot = "frequency" if part == "time" and "frequency" in scene.english_slots()[0] else part
    start, text = place_of(scene.english_slots()[0], ENGLISH_ORDER, slot)
    return start, start + len(text)


@no_type_check
def place_of(slots: Slots, order: tuple[str, ...], part: str) -> tuple[int, str]:
    """The first character of a phrase in its sentence, and the phrase."""
    texts = [slots[slot].text for slot in order[: order.index(part)] if slot in slots]
    return sum(len(text) + 1 for text in texts), slots[part].text


@no_type_check
def without_particle(clause: Clause, part: str, text: str) -> str:
    """A Korean phrase without the particle at its end."""
    if part == "time":
        return text
    if part == "place":
        return text.removesuffix(clause.verb.place_case)
    is_counted = clause.subject is not None and clause.subject.number > 0
    case = clause.verb.case if part == "object" else "이가" if is_counted else "은는"
    bare = text[:-1]
    assert bare + particle(bare, case) == text, text
    return bare
