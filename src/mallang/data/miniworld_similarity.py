"""Sentence pairs of miniworld with a number from 0 to 5: how much of what they say is the same.

    민수는 어제 빵을 먹었다.    어제 민수는 빵을 먹었다.     5.0
    민수는 어제 빵을 먹었다.    민수는 어제 우유를 마셨다.   3.3
    민수는 어제 빵을 먹었다.    그 새는 자고 있다.         0.8

A sentence has parts: who, does, what, to whom, where, by what, when, the tense, and whether it is denied. The number is
5 times the share of parts that are equal among all parts that either sentence has, with one decimal.
"""

from __future__ import annotations

from functools import cache

from mallang.data import miniworld
from mallang.data.miniworld_draw import Draw, belongs, draw_clause
from mallang.data.miniworld_grammar import Scene
from mallang.data.miniworld_scene import Clause, can_front, makes_sense
from mallang.data.miniworld_verbs import ACTIONS
from mallang.data.miniworld_words import no_type_check

VERSION = 1
"""Changes whenever any pair does."""
HIGHEST = 5.0
PARTS = ("verb", "tense", "subject", "object", "recipient", "place", "means", "time", "negated")
KEPT = (0, 50, 75, 90)
"""The percentages of parts that the second sentence may take over from the first."""


@cache
def rows(split: str, count: int) -> tuple[tuple[str, ...], ...]:
    """Pairs of a split: both sentences in Korean, in English, and the number."""
    known = miniworld.familiar()
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    number = Draw(VERSION, list(miniworld.SPLITS).index(split), len(PARTS)).next()
    while len(found) < count:
        draw, number = Draw(number), number + 1
        first = draw_clause(draw, split, ACTIONS)
        second = draw_second(draw, split, first) if first else None
        if first is None or second is None:
            continue
        one, other = Scene((first,)), Scene((second,))
        if one == other or not all(known.issuperset(miniworld.forms(scene)) for scene in (one, other)):
            continue
        key = one.korean, other.korean
        found.setdefault(key, (*key, one.english, other.english, f"{similarity(first, second):.1f}"))
    return tuple(found.values())


@no_type_check
def similarity(first: Clause, second: Clause) -> float:
    """5 times the share of equal parts among all parts that either clause has."""
    both = [(getattr(first, part), getattr(second, part)) for part in PARTS]
    said = [pair for pair in both if pair != (None, None)]
    equal = sum(bool(one == other) for one, other in said)
    return HIGHEST * equal / len(said)


@no_type_check
def draw_second(draw: Draw, split: str, first: Clause) -> Clause | None:
    """Another clause, which takes over some parts of the first where that makes sense."""
    kept = draw.choose(KEPT)
    drawn = draw_clause(draw, split, (first.verb,) if kept else ACTIONS)
    if drawn is None:
        return None
    if kept:
        same = {
            part: getattr(first, part) for part in PARTS if part not in ("tense", "time") and draw.below(100) < kept
        }
        if draw.below(100) < kept:  # what has a time has the tense for it
            same |= {"tense": first.tense, "time": first.time}
        drawn = drawn._replace(**same)
    fronted = can_front(drawn.time, drawn.subject, False) and draw.below(2) == 1
    drawn = drawn._replace(fronted=fronted)
    return drawn if makes_sense(drawn) and belongs(drawn, split) else None
