"""Sentences of miniworld in which nouns have other names, with entity links, types and relations.

    Minsu ate a nabuk in the garden.        [["apple", 12, 17]]        nabuk: food, red, big

What a name means is told by its link alone: a name of a test sentence never occurs in training, as the names of people,
companies and places of real text do not. So the text shows what can be done with something, and the graph of
miniworld-triples, which links lead to, shows what it is. Types are the group of the noun and what it can be; the
relation of a pair is the role of a noun beside its verb: takes, done by.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import cache

from mallang.data import miniworld
from mallang.data.miniworld_draw import Draw, draw_clause
from mallang.data.miniworld_grammar import Scene
from mallang.data.miniworld_scene import Clause, Phrase, adjectives, makes_sense
from mallang.data.miniworld_triples import LEFT_OUT
from mallang.data.miniworld_verbs import ACTIONS
from mallang.data.miniworld_words import Noun, no_type_check

VERSION = 1
"""Changes whenever any row does."""
ROLES = {"object": "takes", "subject": "done by"}
"""The role of a noun, and the relation of its verb to it."""
LANGUAGES = ("en", "ko")
NAMES = {"train": 5_000, "valid": 500, "test": 500}
"""New names in each split; no two splits share one."""
SYLLABLES = ("na", "bu", "ki", "do", "le", "mi", "so", "ta", "re", "gu")
HANGUL = ("나", "부", "키", "도", "레", "미", "소", "타", "루", "구")
PARTS = 4
"""Syllables of a name."""


@cache
def rows(split: str, count: int) -> tuple[tuple[str, ...], ...]:
    """Rows of a split: text, links and mention in English and in Korean, types; pairs, and their relation."""
    found: list[tuple[str, ...]] = []
    number = Draw(VERSION, list(miniworld.SPLITS).index(split), PARTS).next()
    while len(found) < count:
        draw, number = Draw(number), number + 1
        clause = draw_clause(draw, split, ACTIONS)
        row = told(clause, draw, split) if clause is not None and makes_sense(clause) else None
        if row is not None:
            found.append(row)
    return tuple(found)


@no_type_check
def told(first: Clause, draw: Draw, split: str) -> tuple[str, ...] | None:
    """The row of a clause; none where nothing in it gets another name."""
    clause, roles = first, [role for role in ROLES if named(getattr(first, role))]
    if not roles:
        return None
    nouns: dict[str, Noun] = {}
    for role in roles:
        phrase = getattr(clause, role)
        name = other_name(draw, split, phrase.noun)
        if name.english in {known.english for known in nouns.values()}:
            return None
        nouns[role] = name
        clause = clause._replace(**{role: phrase._replace(noun=name)})
    asked = roles[draw.below(len(roles))]
    originals = {role: getattr(first, role).noun for role in roles}
    cells: dict[str, tuple[str, str, str, str]] = {}
    for language in LANGUAGES:
        found = linked(clause, originals, nouns, language)
        if found is None:
            return None
        text, parts, head = found
        links = [[entity, *part] for entity, part in parts.values()] + [[first.verb.english[0], *head]]
        mention = parts[asked][1]
        cells[language] = (text, json.dumps(links), json.dumps(mention), json.dumps([list(head), list(mention)]))
    original = originals[asked]
    types = "\t".join((original.group, *(each.english for each in adjectives(original))))
    (en, en_links, en_mention, en_pair), (ko, ko_links, ko_mention, ko_pair) = cells["en"], cells["ko"]
    return en, en_links, en_mention, en_pair, ko, ko_links, ko_mention, ko_pair, types, ROLES[asked]


@no_type_check
def named(phrase: Phrase | None) -> bool:
    """Whether the noun of a phrase is an entity of the graph that can have another name."""
    if phrase is None or phrase.partner or phrase.noun.group in (*LEFT_OUT, "name", "elder"):
        return False
    return phrase.noun.countable and not phrase.noun.unit


def other_name(draw: Draw, split: str, noun: Noun) -> Noun:
    """The noun under a new name of the split, which follows it in all else."""
    number = draw.below(NAMES[split])
    start = {"train": 0, "valid": NAMES["train"], "test": NAMES["train"] + NAMES["valid"]}[split]
    digits = spelling(start + number)
    english, korean = ("".join(table[digit] for digit in digits) for table in (SYLLABLES, HANGUL))
    return replace(noun, english=english, plural=english + "s", korean=korean)


def spelling(number: int) -> tuple[int, ...]:
    """The syllables of a name."""
    chosen = spellings()[number]
    return tuple(chosen // len(SYLLABLES) ** place % len(SYLLABLES) for place in range(PARTS))


@cache
def spellings() -> tuple[int, ...]:
    """The numbers of all names in an order by hash, so that the names of a split look like those of the others."""
    every = range(len(SYLLABLES) ** PARTS)
    return tuple(sorted(every, key=lambda number: hashlib.sha256(f"{VERSION} {number}".encode()).digest()))


@no_type_check
def linked(
    clause: Clause, entities: dict[str, Noun], nouns: dict[str, Noun], language: str
) -> tuple[str, dict[str, tuple[str, list[int]]], list[int]] | None:
    """A sentence, the entity and the part of each noun, and the part of the verb; none where one cannot be found."""
    scene = Scene((clause,))
    text = scene.korean if language == "ko" else scene.english
    (words,) = scene.words(language)
    starts, place = [], 0
    for word in text.split(" "):
        starts.append(place)
        place += len(word) + 1
    parts: dict[str, tuple[str, list[int]]] = {}
    head: list[int] | None = None
    for start, (word, label) in zip(starts, words, strict=True):
        for role, noun in nouns.items():
            name = noun.korean if language == "ko" else noun.english
            if label == f"{role}.noun" and word.lower().startswith(name):
                length = len(word) if language == "en" and word.lower() == noun.plural else len(name)
                parts[role] = entities[role].english, [start, start + length]
        if label == "verb":
            head = [start, start + len(word)]
    if head is None or parts.keys() != nouns.keys():
        return None
    return text, parts, head
