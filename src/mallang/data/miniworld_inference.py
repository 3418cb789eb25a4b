"""Sentence pairs of miniworld for natural language inference: does the second sentence follow from the first?

    민수는 어제 학교에서 빵을 먹었다.    민수는 빵을 먹었다.            entailment
    민수는 빵을 먹지 않았다.            민수는 어제 빵을 먹었다.        contradiction
    민수는 빵을 먹었다.                민수는 어제 빵을 먹었다.        neutral

Each pair comes from three versions of one statement: a general one, one with a modifier more (a time, a place, a means
or an adjective), one with two more. The specific one entails the others; denied, it is the other way around. The
hypothesis is always the version in between, as often affirmed as denied whatever the label is, so that it says nothing
about the label by itself. In some of the neutral pairs the premise is about someone or something else.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from mallang.data import miniworld
from mallang.data.miniworld_draw import Draw, belongs, draw_clause
from mallang.data.miniworld_grammar import Scene
from mallang.data.miniworld_scene import (
    Clause,
    Phrase,
    adjectives,
    makes_sense,
    means,
    objects,
    places,
    subject_phrases,
    subjects,
    times,
)
from mallang.data.miniworld_verbs import ACTIONS
from mallang.data.miniworld_words import no_type_check

VERSION = 1
"""Changes whenever any pair does."""
LABELS = ("entailment", "neutral", "contradiction")
TENSES = ("past", "future", "progressive", "want", "can")
"""A habit always has a time, so it cannot be told without one."""
POOL = tuple(verb for verb in ACTIONS if verb.places or verb.objects)
Change = dict[str, Any]
"""Fields of a clause and their values."""


@cache
def rows(split: str, count: int) -> tuple[tuple[str, ...], ...]:
    """Pairs of a split: premise and hypothesis in Korean, in English, and the label."""
    known = miniworld.familiar()
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    number = Draw(VERSION, list(miniworld.SPLITS).index(split), len(LABELS)).next()
    while len(found) < count:
        draw, number = Draw(number), number + 1
        # The labels take turns, so that none is more frequent.
        label = LABELS[len(found) % len(LABELS)]
        pair = draw_pair(draw, split, label)
        if pair is None or any(not known.issuperset(miniworld.forms(scene)) for scene in pair):
            continue
        premise, hypothesis = pair
        key = premise.korean, hypothesis.korean
        if key not in found:
            found[key] = (*key, premise.english, hypothesis.english, label)
    return tuple(found.values())


@no_type_check
def draw_pair(draw: Draw, split: str, label: str) -> tuple[Scene, Scene] | None:
    """Premise and hypothesis with this label, or nothing when what was drawn does not allow them."""
    versions = draw_versions(draw, split)
    if versions is None:
        return None
    general, between, specific = versions
    denied = draw.below(2) == 1
    if label == "neutral":
        told = draw.below(2) == 1
        if draw.below(2):  # the same statement, told too generally or denied too specifically
            premise = general if told else specific._replace(negated=True)
        else:
            other = draw_other(draw, split, specific if told else general)
            if other is None:
                return None
            premise = other._replace(negated=not told)
    else:
        premise = specific if (label == "entailment") != denied else general._replace(negated=True)
    hypothesis = between._replace(negated=denied)
    if not makes_sense(premise) or not makes_sense(hypothesis):
        return None
    return Scene((premise,)), Scene((hypothesis,))


@no_type_check
def draw_versions(draw: Draw, split: str) -> tuple[Clause, Clause, Clause] | None:
    """A statement with none, one and two modifiers."""
    drawn = draw_clause(draw, split, POOL, tense="past" if draw.below(2) else draw.choose(TENSES))
    if drawn is None or drawn.tense not in drawn.verb.tenses or drawn.subject is None:
        return None
    verb, subject = drawn.verb, drawn.subject._replace(adjective=None, number=0, partner=None)
    if subject not in subject_phrases(verb, subject.noun, False):
        return None
    thing = Phrase(drawn.object.noun) if drawn.object else None
    place = drawn.place if verb.needs in ("goal", "place") else None
    plain = Clause(verb, drawn.tense, subject, thing, drawn.recipient, place)
    changes = modifiers(draw, plain)
    if len(changes) < 2:
        return None
    first = changes.pop(draw.below(len(changes)))
    between = plain._replace(**first)
    return plain, between, between._replace(**draw.choose(changes))


@no_type_check
def modifiers(draw: Draw, plain: Clause) -> list[Change]:
    """One modifier of each kind that a clause can have."""
    verb, thing = plain.verb, plain.object
    noun = plain.subject.noun if plain.subject else None
    options: list[list[Change]] = [
        [{"time": time} for time in times(verb, plain.tense, True) if time],
        [{"means": way} for way in means(verb, plain.place) if way],
    ]
    if plain.place is None:
        options.append([{"place": place} for place in places(verb, noun) if place])
    if thing is not None:
        described: list[Change] = [{"object": thing._replace(adjective=quality)} for quality in adjectives(thing.noun)]
        options.append([change for change in described if makes_sense(plain._replace(**change))])
    return [draw.choose(some) for some in options if some]


@no_type_check
def draw_other(draw: Draw, split: str, clause: Clause) -> Clause | None:
    """The same statement about someone or something else; few of them belong to a held-out split."""
    verb, subject = clause.verb, clause.subject
    assert subject is not None
    for _ in range(50):
        if clause.object is not None and draw.below(2):
            noun, before = draw.choose(objects(verb, subject.noun)), clause.object.noun
            changed = clause._replace(object=Phrase(noun))
        else:
            noun, before = draw.choose(subjects(verb, False)), subject.noun
            who = draw.choose(subject_phrases(verb, noun, False))
            if who.adjective or who.partner:
                continue
            changed = clause._replace(subject=who)
        if noun is not before and makes_sense(changed) and belongs(changed, split):
            return changed
    return None
