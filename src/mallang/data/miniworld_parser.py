"""Reading sentences of miniworld: a text is grammatical when some scene is said exactly so.

Words are matched against the slots of the grammar in their order, what was found is put together to clauses, and a
scene counts only if it makes sense and is said in just these words. So particles, endings and agreement are checked
by the one grammar that also writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

from mallang.data import miniworld_grammar as grammar
from mallang.data.miniworld_grammar import ENDINGS, ENGLISH_ORDER, KOREAN_ORDER, Scene
from mallang.data.miniworld_scene import (
    Clause,
    Phrase,
    fit_together,
    makes_sense,
    object_phrases,
    subject_phrases,
)
from mallang.data.miniworld_verbs import ACHES, ACTIONS, IDENTITY, VERBS
from mallang.data.miniworld_words import MEANS, PLACES, TIMES, WHAT, WHEN, WHERE, WHO, no_type_check, nouns
from mallang.errors import UserError, nearest

Fields = dict[str, Any]
"""Some fields of a clause."""
Tables = dict[str, dict[str, list[Fields]]]
"""For each slot, the phrases that can fill it and what they may mean."""

Span = tuple[int, int, str, str]
"""A phrase in a text: where it ends, the rank of its slot, the slot, the words."""

PREDICATE_ENDINGS = ("다", "니", "고", "지만", "서")
LONGEST = 6
VERB_SLOTS = ("helper", "auxiliary", "not", "head")


@no_type_check
def parse(text: str, language: str) -> Scene | None:
    """The scene that a sentence tells in Korean (`ko`) or English (`en`); nothing if it is no sentence of miniworld."""
    if language not in ("ko", "en"):
        raise UserError(f"miniworld does not speak {language!r}", todo=nearest(language, ("ko", "en")))
    question = text.endswith("?")
    for first, second, joined in split_clauses(text[:-1], language):
        for clause in clauses(first, language, question):
            scenes = [Scene((clause,))]
            if joined:
                known = clause if joined == "so" else None
                scenes = [Scene((clause, other), joined) for other in clauses(second, language, False, known)]
            for scene in scenes:
                if fit_together(scene.clauses, joined) and text == (
                    scene.korean if language == "ko" else scene.english
                ):
                    return scene
    return None


@no_type_check
def split_clauses(text: str, language: str) -> Iterator[tuple[str, str, str]]:
    """The ways to part a text into clauses: the first, the second, and what joins them."""
    yield text, "", ""
    if language == "en":
        for found in re.finditer(", (and|but|so) ", text):
            yield text[: found.start()], text[found.end() :], found[1]
        return
    joined = {ending: word for word, ending in ENDINGS.items()}
    for found in re.finditer("(고|지만), |(?<!에)(서) ", text):
        ending = found[1] or found[2]
        yield text[: found.start() + len(ending)], text[found.end() :], joined[ending]


@no_type_check
def clauses(text: str, language: str, question: bool, known: Clause | None = None) -> Iterator[Clause]:
    """The clauses that make sense of a text; a `known` clause before it gives the subject."""
    tables = korean_tables() if language == "ko" else english_tables()
    for slots in readings(spans(text.replace(",", "").lower().split(" "), language)):
        if language == "en":
            slots["verb"] = "|".join([slots.pop(slot, "") for slot in VERB_SLOTS])
        meanings = [tables[slot].get(phrase, ()) for slot, phrase in slots.items()]
        for choice in product(*meanings):
            fields: Fields = {"question": question}
            for some in choice:
                fields |= some
            if known:
                fields["subject"] = known.subject
            if "verb" in fields:
                clause = Clause(**fields)
                if makes_sense(clause):
                    yield clause


@no_type_check
def spans(words: list[str], language: str) -> list[list[Span]]:
    """The phrases that begin at each word."""
    known, count = slots_of(language), len(words)
    found: list[list[Span]] = []
    for start in range(count):
        here: list[Span] = []
        for end in range(start + 1, min(start + LONGEST, count) + 1):
            phrase = " ".join(words[start:end])
            here += [(end, rank, slot, phrase) for rank, slot in known.get(phrase, ())]
        found.append(here)
    return found


@no_type_check
def readings(found: list[list[Span]], start: int = 0, least: int = 0) -> Iterator[dict[str, str]]:
    """The ways to fill slots, in their order, with all the words from one on."""
    if start == len(found):
        yield {}
        return
    for end, rank, slot, phrase in found[start]:
        if rank >= least:
            for rest in readings(found, end, rank + 1):
                yield {slot: phrase, **rest}


@cache
def slots_of(language: str) -> dict[str, list[tuple[int, str]]]:
    """The slots each phrase can fill, with their ranks."""
    order, tables = (KOREAN_ORDER, korean_tables()) if language == "ko" else (ENGLISH_ORDER, english_tables())
    found: dict[str, list[tuple[int, str]]] = {}
    for rank, slot in enumerate(order):
        for phrase in tables[slot]:
            found.setdefault(phrase, []).append((rank, slot))
    return found


@cache
def korean_tables() -> Tables:
    """What Korean phrases can mean in each slot."""
    tables: Tables = {slot: {} for slot in KOREAN_ORDER}
    for phrase in all_phrases():
        for slot, cases in (("subject", ("은는", "이가")), ("object", ("을를", "이가"))):
            for case in cases:
                _note(tables[slot], grammar.korean_phrase(phrase, slot, case).text, {slot: phrase})
    for person in nouns("pronoun name elder"):
        phrase = Phrase(person)
        _note(tables["recipient"], grammar.korean_phrase(phrase, "recipient", "에게").text, {"recipient": phrase})
    for noun in MEANS:
        _note(tables["means"], grammar.korean_phrase(Phrase(noun), "means", "으로로").text, {"means": noun})
    for place in (*PLACES.values(), WHERE):
        for case in ("에", "에서"):
            _note(tables["place"], place.korean + case, {"place": place})
    for time in (WHEN, *(time for known in TIMES.values() for time in known)):
        _note(tables["time"], time.korean, {"time": time})
        _note(tables["early"], time.korean, {"time": time, "fronted": True})
        _note(tables["early"], time.korean, {"time": time})
    for fields in _verb_fields():
        verb, tense, negated = fields["verb"], fields["tense"], fields["negated"]
        manners = product(PREDICATE_ENDINGS, ("plain", "honored", "own"), (False, True) if verb.humble else (False,))
        for ending, manner, humble in manners:
            found = grammar.predicate(verb, tense, negated, ending, manner, humble)
            _note(tables["predicate"], found.text, fields)
    for noun, tense, ending in product(IDENTITY.objects, IDENTITY.tenses, PREDICATE_ENDINGS[:4]):
        fields = {"verb": IDENTITY, "tense": tense, "object": Phrase(noun)}
        _note(tables["predicate"], grammar.copula(noun, tense == "past", ending).text, fields)
    return tables


@cache
def english_tables() -> Tables:
    """What English phrases can mean in each slot; the words of the verb are put together in a slot `verb`."""
    tables: Tables = {slot: {} for slot in (*ENGLISH_ORDER, "verb")}
    for phrase in all_phrases():
        for verb in (ACTIONS[0], *(ACHES if phrase.agreement != "many" or phrase.noun.object else ())):
            _note(tables["subject"], grammar.english_subject(verb, phrase).text, {"subject": phrase})
        for article in ("a", "the", "all", "no"):
            _note(tables["object"], grammar.english_phrase(phrase, "object", article).text, {"object": phrase})
    for word in ("there", "it"):
        _note(tables["subject"], word, {})
    for person in nouns("pronoun name elder"):
        phrase = Phrase(person)
        _note(tables["recipient"], grammar.english_phrase(phrase, "recipient", "a").text, {"recipient": phrase})
    for noun in MEANS:
        _note(tables["means"], f"by {noun.english}", {"means": noun})
    for place in PLACES.values():
        _note(tables["place"], place.at, {"place": place})
        _note(tables["place"], place.to, {"place": place})
    for time in (time for known in TIMES.values() for time in known):
        _note(tables["frequency" if time.frequency else "time"], time.english, {"time": time})
        _note(tables["early"], time.english, {"time": time, "fronted": True})
    _note(tables["asked"], "who", {"object": Phrase(WHO)})
    _note(tables["asked"], "what", {"object": Phrase(WHAT)})
    _note(tables["asked"], "where", {"place": WHERE})
    _note(tables["asked"], "when", {"time": WHEN})
    for fields in _verb_fields():
        verb, tense, negated = fields["verb"], fields["tense"], fields["negated"]
        for agreement, inverted in product(grammar.BE, (False, True)):
            found = grammar.group(verb, tense, negated, agreement, inverted)
            for slot, piece in found.items():
                _note(tables[slot], piece.text, {})
            texts = [found[slot].text if slot in found else "" for slot in VERB_SLOTS]
            _note(tables["verb"], "|".join(texts), fields)
    return tables


@no_type_check
def _note(table: dict[str, list[Fields]], text: str, fields: Fields) -> None:
    known = table.setdefault(text.lower(), [])
    if fields not in known:
        known.append(fields)


def _verb_fields() -> Iterator[Fields]:
    for verb in VERBS:
        for tense, negated in product(verb.tenses, (False, True)):
            yield {"verb": verb, "tense": tense, "negated": negated}


def all_phrases() -> list[Phrase]:
    """Everyone and everything in every form there is."""
    found: dict[Phrase, None] = {Phrase(WHO): None, Phrase(WHAT): None, Phrase(nouns("you")[0]): None}
    for verb in VERBS:
        for noun in verb.subjects:
            found.update(dict.fromkeys(subject_phrases(verb, noun, True)))
        for noun in verb.objects:
            for counted in (True, False):
                found.update(dict.fromkeys(object_phrases(verb, noun, verb.tenses[0], counted)))
    return list(found)
