"""Tokens of miniworld's sentences with parts of speech and named entities, from the words that the grammar writes.

    tagged(scene, "en")    # (("Minsu", "PROPN", "B-PER"), ("ate", "VERB", "O"), ("an", "DET", "O"), …)

A token is a word without the punctuation at its end, which is a token of its own, and so is English 's. A Korean token
keeps its particles and endings (an eojeol) and has the part of speech of its first morpheme: 민수는 is PROPN, 학생이다
is NOUN. Parts of speech are those of Universal Dependencies. Entities are in BIO (IOB2):

- PER: someone called by name. LOC: a city.
- DATE: a day or a part of one, also if it returns: 오늘 아침에, every day; not now, often or always.
- QUANTITY: a number and the unit: 두 잔, two glasses (of water), five (cats). `a` without a unit is none.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from mallang.data.miniworld_grammar import BE, Scene
from mallang.data.miniworld_scene import Clause
from mallang.data.miniworld_verbs import VERBS
from mallang.data.miniworld_words import (
    ADJECTIVES,
    NOUNS,
    NUMBERS,
    PLACES,
    TIMES,
    Noun,
    no_type_check,
    nouns,
    third_person,
)

VERSION = 1
"""Changes whenever any token or tag does."""
CITIES = {"ko": ("서울", "부산"), "en": ("Seoul", "Busan")}
MARKS = ".,?"
PREDICATE = frozenset(("verb", "part", "tense", "want", "not"))
"""The labels of the words of a Korean predicate."""
GROUPS = {"name": "PROPN", "pronoun": "PRON", "listener": "PRON", "question": "PRON"}
"""The part of speech of nouns by their group; all others are NOUN."""
FUNCTION_WORDS = {
    "ADP": "of by at in on under to for",
    "ADV": "where when now often sometimes always",
    "AUX": "will can cannot do does did",
    "CCONJ": "and but so",
    "DET": "a an the this that these those no every",
    "ADJ": "last next",
    "NOUN": "day week weekend morning night tonight yesterday tomorrow piece pieces pair pairs cup cups glass",
    "PART": "not",
    "PRON": "it there who what",
    "VERB": "want wants",
}
"""English words that no table of miniworld has, or only inside phrases."""
Word = tuple[str, str]
"""A word and the label of what it stands for."""


@no_type_check
class Token(NamedTuple):
    """A token, its part of speech, and its entity tag."""

    text: str
    pos: str
    ner: str


@no_type_check
def tagged(scene: Scene, language: str) -> tuple[Token, ...]:
    """The tokens of a scene's sentence in Korean (`ko`) or English (`en`)."""
    korean = language == "ko"
    written = iter((scene.korean if korean else scene.english).split(" "))
    found = []
    for clause, words in zip(scene.clauses, scene.words(language), strict=True):
        parts = korean_parts(clause, words) if korean else english_parts(clause, words)
        for part, entity in zip(parts, entities(clause, words, language), strict=True):
            word = next(written)
            bare = word.rstrip(MARKS)
            name = bare.removesuffix("'s")
            found.append(Token(name, part, entity))
            if name != bare:
                found.append(Token("'s", "PART", "O"))
            if bare != word:
                found.append(Token(word[len(bare) :], "PUNCT", "O"))
    return tuple(found)


@no_type_check
def korean_parts(clause: Clause, words: list[Word]) -> list[str]:
    """The part of speech of each word of a Korean clause."""
    verb = clause.verb
    main = ["NOUN"] * bool(verb.part) + ["ADJ" if verb.stem.adjectival else "VERB"]
    found = []
    for word, label in words:
        role, _, kind = label.partition(".")
        if role in PREDICATE:
            found.append(main.pop(0) if main else "NOUN" if word in ("수", "것이다", "거니") else "AUX")
        elif role == "time":
            found.append("NOUN" if is_date(clause) else "ADV")
        elif role == "place":
            found.append("PROPN" if word.startswith(CITIES["ko"]) else "PRON" if word.startswith("어디") else "NOUN")
        elif role == "means":
            found.append("NOUN")
        else:
            found.append(korean_noun_part(clause, word, role, kind))
    return found


@no_type_check
def korean_noun_part(clause: Clause, word: str, role: str, kind: str) -> str:
    """The part of speech of a word in a phrase about someone or something."""
    phrase = getattr(clause, role)
    if kind == "determiner":
        return "DET"
    if kind == "adjective":
        return "ADJ"
    if kind == "number":
        return "NUM" if word in KOREAN_NUMBERS else "NOUN"
    named = {"owner": phrase.owner, "partner": phrase.partner}.get(kind, phrase.noun)
    return GROUPS.get(named.group, "NOUN")


@no_type_check
def english_parts(clause: Clause, words: list[Word]) -> list[str]:
    """The part of speech of each word of an English clause."""
    known = lexicon()
    found = []
    for word, label in words:
        part = known[word.removesuffix("'s").rstrip(",").lower()]
        if word == "to" and label == "want":
            part = "PART"
        elif word == "home" and clause.verb.needs == "goal":
            part = "ADV"
        elif part == "AUX" and clause.verb.dummy == "there":
            part = "VERB"  # there is a cat
        found.append(part)
    return found


@no_type_check
def entities(clause: Clause, words: list[Word], language: str) -> list[str]:
    """The entity tag of each word of a clause."""
    found, before = [], ""
    for word, label in words:
        kind = entity(clause, word, label, language)
        found.append(f"{'I' if kind == before else 'B'}-{kind}" if kind else "O")
        # Only dates and quantities have several words: 민수와 지영 are two entities.
        before = kind if kind in ("DATE", "QUANTITY") else ""
    return found


@no_type_check
def entity(clause: Clause, word: str, label: str, language: str) -> str:
    """The type of the entity that a word belongs to; none for most."""
    role, _, kind = label.partition(".")
    if role == "time":
        return "DATE" if is_date(clause) else ""
    if role == "place":
        return "LOC" if word.startswith(CITIES[language]) else ""
    if kind in ("number", "counter"):
        phrase = getattr(clause, role)
        has_unit = language == "ko" or phrase.number > 1 or phrase.noun.unit
        return "QUANTITY" if has_unit and word != "of" else ""
    return "PER" if role in ("subject", "object", "recipient") and is_name(word, kind, language) else ""


@no_type_check
def is_name(word: str, kind: str, language: str) -> bool:
    """Whether a word is a name, with its particle or 's."""
    if language == "en":
        return word.removesuffix("'s") in NAMES["en"]
    return kind in ("noun", "owner", "partner") and word.startswith(NAMES["ko"])


@no_type_check
def is_date(clause: Clause) -> bool:
    """Whether the time of a clause is a day or a part of one."""
    return clause.time in DATES


@cache
def lexicon() -> dict[str, str]:
    """The part of speech of every English word, in lower case."""
    found = {word: part for part, words in FUNCTION_WORDS.items() for word in words.split()}
    found |= {form: "AUX" for forms in BE.values() for form in forms}
    found |= {number: "NUM" for count, (_, number) in NUMBERS.items() if count > 1}
    found |= {adjective.english: "ADJ" for adjective in ADJECTIVES}
    for noun in NOUNS.values():
        part = english_noun_part(noun)
        for form in (noun.english, noun.plural, noun.object, noun.possessive.removesuffix("'s")):
            found |= {form.removeprefix("the ").lower(): part} if form else {}
    for place in PLACES.values():
        name = place.at.split()[-1]
        found[name.lower()] = "PROPN" if name in CITIES["en"] else "NOUN"
    for verb in VERBS:
        base, past, ing = (form.split()[0] for form in verb.english)
        found |= {} if base == "be" else dict.fromkeys((base, third_person(base), past, ing), "VERB")
        found |= {verb.complement: "ADJ"} if verb.complement else {}
        found |= {verb.part_english: "NOUN"} if verb.part_english else {}
    return found


def english_noun_part(noun: Noun) -> str:
    """The part of speech of a noun; what has a capital is a name: Grandma, Korean."""
    return GROUPS.get(noun.group, "PROPN" if noun.english[0].isupper() else "NOUN")


NAMES = {
    "ko": tuple(noun.korean for noun in nouns("name")),
    "en": tuple(noun.english for noun in nouns("name")),
}
KOREAN_NUMBERS = frozenset(korean for korean, _ in NUMBERS.values())
DATES = frozenset(time for times in TIMES.values() for time in times if not time.frequency and time.english != "now")
