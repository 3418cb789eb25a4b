"""Multiple choice in miniworld: a question, and three to five things of which one makes sense as its answer.

    What did Minsu eat at school?      a letter · bread · a bicycle · a song      B

Which it is follows from what goes together in miniworld, as the split of the corpus has it: no combination of who, does
and what of the test set is seen in training. Wrong choices are the objects of other verbs, drawn as the right ones are.
"""

from __future__ import annotations

import json
from functools import cache

from mallang.data import miniworld
from mallang.data.miniworld_draw import WH_POOLS, Draw, draw_clause
from mallang.data.miniworld_grammar import Scene
from mallang.data.miniworld_scene import Clause, Phrase, asked_object, makes_sense
from mallang.data.miniworld_verbs import ACTIONS
from mallang.data.miniworld_words import Noun, Verb, no_type_check

VERSION = 1
"""Changes whenever any question does."""
FEWEST, MOST = 3, 5
"""Choices of a question."""
LETTERS = "ABCDE"


@cache
def rows(split: str, count: int) -> tuple[tuple[str, ...], ...]:
    """Rows of a split: question and choices in Korean, then in English, and the letter of the answer."""
    known = miniworld.familiar()
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    number = Draw(VERSION, list(miniworld.SPLITS).index(split), FEWEST, MOST).next()
    while len(found) < count:
        draw, number = Draw(number), number + 1
        drawn = draw_question(draw, split)
        if drawn is None or not known.issuperset(miniworld.forms(Scene((drawn[0],)))):
            continue
        statement, question, right = drawn
        choices = draw_choices(draw, statement.verb, right, FEWEST + len(found) % (MOST - FEWEST + 1))
        scene, letter = Scene((question,)), LETTERS[choices.index(right)]
        korean, english = (
            json.dumps([getattr(noun, name) for noun in choices], ensure_ascii=False) for name in ("korean", "english")
        )
        found.setdefault((scene.korean, korean), (scene.korean, korean, scene.english, english, letter))
    return tuple(found.values())


@no_type_check
def draw_question(draw: Draw, split: str) -> tuple[Clause, Clause, Noun] | None:
    """A statement, the question for its object, and the object, or nothing when what was drawn has none."""
    drawn = draw_clause(draw, split, WH_POOLS["what"])
    if drawn is None or drawn.subject is None or drawn.object is None or drawn.object.noun.group in ("name", "elder"):
        return None
    right = drawn.object.noun
    plain = drawn._replace(object=Phrase(right), negated=False, fronted=False)
    question = plain._replace(object=Phrase(asked_object(plain.verb)), question=True)
    return (plain, question, right) if makes_sense(question) else None


@no_type_check
def draw_choices(draw: Draw, verb: Verb, right: Noun, count: int) -> list[Noun]:
    """Different things, of which only the right one goes with the verb; the right one stands anywhere."""
    found: list[Noun] = []
    others = [each for each in ACTIONS if each.objects]
    while len(found) < count - 1:
        noun = draw.choose(draw.choose(others).objects)
        is_new = all(noun.english != each.english and noun.korean != each.korean for each in (right, *found))
        if is_new and noun not in verb.objects and noun.group not in ("name", "elder", "pronoun"):
            found.append(noun)
    found.insert(draw.below(count), right)
    return found
