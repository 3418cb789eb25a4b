"""How scenes of miniworld are drawn: by chance that depends on numbers alone, never on the machine or the Python."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import TypeVar

from mallang.data import miniworld_verbs as verbs
from mallang.data.miniworld_grammar import Scene
from mallang.data.miniworld_scene import (
    REASONS,
    Clause,
    Phrase,
    asked_object,
    asks_what,
    asks_when,
    asks_where,
    can_front,
    counted_object,
    counted_subject,
    fit_together,
    makes_sense,
    means,
    named_once,
    object_phrases,
    objects,
    places,
    recipients,
    subject_phrases,
    subjects,
    times,
)
from mallang.data.miniworld_words import NOUNS, PLACES, WHEN, WHERE, WHO, Noun, Place, Verb, no_type_check

MASK = (1 << 64) - 1
HELD_OUT = {0: "test", 1: "valid"}
"""Of ten combinations of who, does and what, one is kept for each of these; the rest is for training."""

Item = TypeVar("Item")


@no_type_check
class Draw:
    """Draws that follow from a few numbers alone: SplitMix64 (Steele, Lea and Flood, 2014) started by them."""

    __slots__ = ("bits", "room", "state")

    def __init__(self, *numbers: int) -> None:
        self.state = self.bits = self.room = 0
        for number in numbers:
            self.state = (self.state + number) & MASK
            self.state = self.next()

    def next(self) -> int:
        """64 bits more."""
        self.state = bits = (self.state + 0x9E3779B97F4A7C15) & MASK
        bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 & MASK
        bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB & MASK
        return bits ^ (bits >> 31)

    def below(self, count: int) -> int:
        """One of the numbers from 0 to count - 1. 64 bits serve for several, as long as 32 of them are left."""
        room = self.room // count
        if not room:
            self.bits, room = self.next(), (1 << 32) // count
        self.room = room
        bits = self.bits * count
        self.bits = bits & MASK
        return bits >> 64

    def choose(self, options: Sequence[Item]) -> Item:
        """One of the options."""
        return options[self.below(len(options))] if len(options) > 1 else options[0]


@cache
@no_type_check
def split_of(who: Noun | Place | None, verb: Verb, what: Noun | Place | None) -> str:
    """The split that a combination of who, does and what belongs to."""
    names = [verb.stem.plain, verb.part, *verb.english, verb.complement]
    for item in (who, what):
        names += ["", ""] if item is None else [item.korean, item.at if isinstance(item, Place) else item.english]
    digest = hashlib.sha256("/".join(names).encode()).digest()
    return HELD_OUT.get(digest[0] % 10, "train")


@no_type_check
def draw_scene(draw: Draw, split: str) -> Scene:
    """A scene whose combinations all belong to the split."""
    while True:
        kind = draw.choose(KINDS)
        # A kind may have nothing in a split (there is little weather), so it is not insisted on.
        for _ in range(1000):
            found = draw_kind(draw, split, kind)
            if found:
                return found


@no_type_check
def draw_kind(draw: Draw, split: str, kind: str) -> Scene | None:
    """A scene of a kind, or nothing when what was drawn first belongs to another split."""
    if kind == "and":
        return both(draw, split)
    if kind == "but":
        return contrast(draw, split)
    if kind == "so":
        return consequence(draw, split)
    asked = kind if kind in WH_POOLS else "whether" if kind == "question" else ""
    clause = draw_clause(draw, split, POOLS[kind], asked)
    return Scene((clause,)) if clause else None


@no_type_check
def draw_clause(
    draw: Draw, split: str, pool: tuple[Verb, ...], asked: str = "", tense: str = "", simple: bool = False
) -> Clause | None:
    """A clause with one of these verbs; `asked` makes a question, `simple` leaves out what is not needed."""
    question = asked != ""
    verb = draw.choose(pool)
    noun = WHO if asked == "who" else None if verb.dummy else draw.choose(subjects(verb, question))
    thing = draw_object(draw, verb, noun, asked)
    place = WHERE if asked == "where" else None if simple and not verb.needs else draw.choose(places(verb, noun))
    if not of_split(split, verb, noun, thing, place) or (asked == "what" and noun and not asks_what(verb, noun)):
        return None
    tense = tense or draw.choose(("past", "future") if asked == "when" else verb.tenses)
    if asked == "who" and tense == "habit":
        return None
    negated = not question and not simple and draw.below(100) < 18
    subject = phrase = recipient = way = time = None
    if noun:
        subject = draw.choose(subject_phrases(verb, noun, counted_subject(tense, question)))
    if thing:
        phrase = draw.choose(object_phrases(verb, thing, tense, counted_object(verb, negated, question)))
    if noun and verb.needs == "recipient":
        recipient = Phrase(draw.choose(recipients(verb, noun)))
    if not simple:
        way = draw.choose(means(verb, place))
        time = WHEN if asked == "when" else draw.choose(times(verb, tense, negated))
    fronted = can_front(time, subject, question) and draw.below(100) < 25
    clause = Clause(verb, tense, subject, phrase, recipient, place, way, time, negated, question, fronted)
    return clause if named_once(clause) and partners_fit(clause, split) else None


@no_type_check
def draw_object(draw: Draw, verb: Verb, noun: Noun | None, asked: str) -> Noun | None:
    """What it is done to, or the word that asks for it."""
    if asked == "what":
        return asked_object(verb)
    return draw.choose(objects(verb, noun)) if verb.objects else None


@no_type_check
def of_split(split: str, verb: Verb, noun: Noun | None, thing: Noun | None, place: Place | None) -> bool:
    """Whether who does what to what belongs to the split; a place stands in for who or what is missing."""
    if verb.needs != "goal" and verb.needs != "place" and not verb.dummy:
        place = None
    return split_of(noun or place, verb, thing or place) == split


@no_type_check
def partners_fit(clause: Clause, split: str) -> bool:
    """Whether all of 민수와 지영은 빵과 우유를 goes together and belongs to the split."""
    subject, phrase = clause.subject, clause.object
    if subject is None or not (subject.partner or (phrase and phrase.partner)):
        return True
    if phrase and phrase.partner and phrase.partner not in objects(clause.verb, subject.noun):
        return False
    whos = [who for who in (subject.noun, subject.partner) if who]
    whats = [what for what in (phrase.noun, phrase.partner) if what] if phrase else [None]
    return all(of_split(split, clause.verb, who, what, clause.place) for who in whos for what in whats)


@no_type_check
def belongs(clause: Clause, split: str) -> bool:
    """Whether a clause that was put together belongs to the split."""
    noun = clause.subject.noun if clause.subject else None
    thing = clause.object.noun if clause.object else None
    return of_split(split, clause.verb, noun, thing, clause.place) and partners_fit(clause, split)


@no_type_check
def both(draw: Draw, split: str) -> Scene | None:
    """Two who do things at one time: ... 고, ..."""
    tense, pool = draw.choose(BOTH_POOLS)
    first = draw_clause(draw, split, pool, tense=tense, simple=True)
    if first is None:
        return None
    for _ in range(100):
        second = draw_clause(draw, split, pool, tense=tense, simple=True)
        if second and fit_together((first, second), "and"):
            return Scene((first, second), "and")
    return None


@no_type_check
def contrast(draw: Draw, split: str) -> Scene | None:
    """One does it, another does not: ... 지만, ..."""
    tense = draw.choose(("past", "future", "present"))
    first = draw_clause(draw, split, CONTRAST_POOLS[tense], tense=tense, simple=True)
    if first is None or (first.object and (first.object.number or first.object.owner)):
        return None
    for _ in range(100):
        other = draw.choose(subjects(first.verb, False))
        second = first._replace(subject=draw.choose(subject_phrases(first.verb, other, False)), negated=True)
        if fit_together((first, second), "but") and makes_sense(second) and belongs(second, split):
            return Scene((first, second), "but")
    return None


@no_type_check
def consequence(draw: Draw, split: str) -> Scene | None:
    """One does something because of how one feels: ... 서 ..."""
    feeling, verb, goal, negated = draw.choose(REASONS)
    noun = draw.choose(subjects(verb, False))
    if not noun.again or not of_split(split, feeling, noun, None, None):
        return None
    subject = draw.choose(subject_phrases(feeling, noun, False))
    thing = draw.choose(objects(verb, noun)) if verb.objects else None
    phrase = draw.choose(object_phrases(verb, thing, "past", not negated)) if thing else None
    time = draw.choose(times(feeling, "past", False)) if draw.below(100) < 60 else None
    first = Clause(feeling, "past", subject, time=time, fronted=time is not None)
    second = Clause(verb, "past", subject, phrase, place=PLACES.get(goal), negated=negated)
    if belongs(first, split) and belongs(second, split) and makes_sense(second):
        return Scene((first, second), "so")
    return None


def _weighted(pool: tuple[Verb, ...]) -> tuple[Verb, ...]:
    return tuple(verb for verb in pool for _ in range(2 + min(len(verb.objects) // 2, 3)))


def _in_tense(tense: str, pool: tuple[Verb, ...]) -> tuple[Verb, ...]:
    return tuple(verb for verb in pool if tense in verb.tenses)


FEELING = verbs.FEELINGS + verbs.ACHES
POOLS = {
    "action": _weighted(verbs.ACTIONS),
    "taste": verbs.TASTES,
    "have": (verbs.HAVE, verbs.HAVE, verbs.HAVE, verbs.LIVE, *verbs.LOOKS),
    "identity": (verbs.IDENTITY,),
    "there": verbs.THERE,
    "feeling": FEELING,
    "weather": verbs.WEATHER,
    "quality": verbs.QUALITIES,
    "mixed": _weighted(verbs.ACTIONS) + verbs.TASTES * 4 + (verbs.HAVE,) * 4 + verbs.FEELINGS,
    "question": _weighted(verbs.ACTIONS)
    + verbs.TASTES * 4
    + verbs.THERE * 2
    + FEELING
    + verbs.QUALITIES
    + (verbs.HAVE, verbs.IDENTITY, verbs.LIVE, *verbs.LOOKS, *verbs.WEATHER),
}
BOTH_POOLS = (
    *((tense, _in_tense(tense, POOLS["action"])) for tense in ("past", "past", "past", "progressive", "future")),
    ("present", verbs.TASTES),
    ("present", (verbs.HAVE,)),
    ("present", verbs.FEELINGS),
)
CONTRAST_POOLS = {tense: _in_tense(tense, POOLS["mixed"]) for tense in ("past", "future", "present")}
WH_POOLS = {
    "who": POOLS["action"],
    "what": tuple(verb for verb in POOLS["action"] if asks_what(verb, NOUNS["Minsu"])),
    "where": tuple(verb for verb in POOLS["action"] if asks_where(verb)),
    "when": tuple(verb for verb in POOLS["action"] if asks_when(verb)),
}
POOLS |= WH_POOLS
SHARES = {
    "action": 40,
    "question": 10,
    "who": 2,
    "what": 3,
    "where": 2,
    "when": 2,
    "taste": 5,
    "have": 5,
    "identity": 3,
    "there": 5,
    "feeling": 6,
    "weather": 1,
    "quality": 5,
    "and": 5,
    "but": 2,
    "so": 4,
}
KINDS = tuple(kind for kind, percent in SHARES.items() for _ in range(percent))
