"""What happens in miniworld: scenes made of clauses, and which choices make sense in them.

Every list of choices serves twice: scenes are drawn from it, where repetition is weight, and a sentence read back
is refused when it holds what the list does not.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from mallang.data.miniworld_verbs import ACHES, ACTIONS, FEELINGS, UNUSUAL, VERBS
from mallang.data.miniworld_words import (
    ADJECTIVES,
    DETERMINERS,
    NUMBERS,
    PLACES,
    TIMES,
    WHAT,
    WHEN,
    WHERE,
    WHO,
    Adjective,
    Noun,
    Place,
    Time,
    Verb,
    no_type_check,
    nouns,
)


@no_type_check
class Phrase(NamedTuple):
    """Someone or something with what is said about it: 그 작은 고양이, the small cat."""

    noun: Noun
    adjective: Adjective | None = None
    determiner: str = ""
    number: int = 0
    """How many; 0 when nobody counts."""
    plural: bool = False
    """Several after a determiner: 그 아이들, the children."""
    owner: Noun | None = None
    partner: Noun | None = None
    """A second one, joined by 와/과: 민수와 지영."""

    @property
    def agreement(self) -> str:
        """The English verb form it takes as subject: I, one or many."""
        if self.number:
            return "one" if self.number == 1 else "many"
        return "many" if self.plural or self.partner else self.noun.agreement


@no_type_check
class Clause(NamedTuple):
    """One predicate with all that belongs to it."""

    verb: Verb
    tense: str
    subject: Phrase | None = None
    object: Phrase | None = None
    recipient: Phrase | None = None
    place: Place | None = None
    means: Noun | None = None
    time: Time | None = None
    negated: bool = False
    question: bool = False
    fronted: bool = False
    """The time comes first."""


SPEAKERS = nouns("I we")
OWNERS = nouns("I we name")
OWNED = frozenset(
    nouns("animal friend apple pear cake wear bicycle car book letter picture bag umbrella present apology")
)
DIET = {"cat": "meat milk water", "dog": "meat bread water", "bird": "bread water", "horse": "apple bread water"}
ANIMAL_PLACES = frozenset(PLACES[name] for name in ("공원", "정원", "방", "부엌", "해변"))
MEANS_TO = {
    "서울": nouns("bus train car"),
    "부산": nouns("bus train ship car"),
    "학교": nouns("bus bicycle"),
    "도서관": nouns("bus bicycle"),
    "공원": nouns("bicycle"),
    "시장": nouns("bus bicycle car"),
    "병원": nouns("bus car"),
    "해변": nouns("bus train car"),
}
SINGLE = frozenset(("pronoun", "listener", "name", "elder", "question"))


@cache
def adjectives(noun: Noun) -> tuple[Adjective, ...]:
    """The qualities this noun can have."""
    return tuple(adjective for adjective in ADJECTIVES if noun in adjective.nouns)


@cache
def subjects(verb: Verb, question: bool) -> tuple[Noun, ...]:
    """Who can do it, those more often who are closer to the reader; a question is not about me but may be about you."""
    groups = {noun.group for noun in verb.subjects}
    weights = {"name": 3, "pronoun": 2, "elder": 2}
    known = [noun for noun in verb.subjects for _ in range(weights.get(noun.group, 1))]
    if question:
        listener = nouns("you") * 4 if "pronoun" in groups else ()
        return (*(noun for noun in known if noun not in SPEAKERS), *listener)
    return tuple(known)


@no_type_check
def counted_subject(tense: str, question: bool) -> bool:
    """Whether a subject can be a number of someone: 학생 두 명이 ... is what one sees or saw."""
    return not question and tense in ("past", "progressive")


@cache
def subject_phrases(verb: Verb, noun: Noun, counted: bool) -> tuple[Phrase, ...]:
    """The forms in which a noun can be the subject of a verb; `counted` when numbers are in place."""
    bare = Phrase(noun)
    if noun.group == "name" and not verb.part_english:
        return (bare,) * 20 + tuple(Phrase(noun, partner=other) for other in nouns("name") if other is not noun)
    if noun.group in SINGLE:
        return (bare,)
    phrases = [Phrase(noun, determiner=word) for word in ("the", "the", "the", "the", "this", "that")]
    if not verb.part_english and noun.countable:
        phrases += [Phrase(noun, determiner=word, plural=True) for word in ("the", "the", "this", "that")]
    if verb in ACTIONS:
        phrases += [Phrase(noun, quality, determiner="the") for quality in adjectives(noun)]
        if counted:
            phrases += [Phrase(noun, number=number) for number in (1, 1, *NUMBERS)]
            phrases += [Phrase(noun, quality, number=number) for quality in adjectives(noun) for number in (1, 2)]
    if noun in OWNED:
        phrases += [Phrase(noun, owner=owner) for owner in OWNERS]
    return tuple(phrases)


@no_type_check
def counted_object(verb: Verb, negated: bool, question: bool) -> bool:
    """Whether an object can be counted: what is not, or may not be there, is not."""
    return not negated and not (question and verb.dummy)


@cache
def object_phrases(verb: Verb, noun: Noun, tense: str, counted: bool) -> tuple[Phrase, ...]:
    """The forms in which a noun can be the object of a verb; `counted` when numbers are in place."""
    if noun.group in SINGLE:
        return (Phrase(noun),)
    unusual = UNUSUAL.get(verb.english[0], ())
    qualities = [quality for quality in adjectives(noun) if "a" in verb.modifiers and quality.english not in unusual]
    joined = counted and "p" in verb.modifiers
    counted = counted and "n" in verb.modifiers and noun.counter != ""
    if verb.dummy == "there" and counted and noun.countable:
        return tuple(
            Phrase(noun, quality, number=number)
            for quality in (None, None, *qualities)
            for number in (1, *NUMBERS)
            if quality is None or number < 3
        )
    phrases = [Phrase(noun, quality) for quality in qualities] * 3
    if counted:
        phrases += [Phrase(noun, number=number) for number in range(1 if noun.unit else 2, 6)] * 2
        phrases += [Phrase(noun, quality, number=number) for quality in qualities for number in (2, 3)]
    # A habit is about any one, and so is a taste in food.
    particular = tense != "habit" and not (verb.article == "all" and noun.group in ("food", "drink"))
    if particular and "d" in verb.modifiers and noun.group != "idea":
        phrases += [Phrase(noun, determiner=word) for word in DETERMINERS] * 2
        phrases += [Phrase(noun, quality, determiner="the") for quality in qualities]
    if particular and "o" in verb.modifiers and noun in OWNED:
        phrases += [Phrase(noun, owner=owner) for owner in OWNERS]
    if joined:
        alike = [other for other in verb.objects if other is not noun and other.group == noun.group]
        phrases += [Phrase(noun, partner=other) for other in alike]
    if noun.english == "apology":  # without saying whose it would be an odd thing to accept
        return tuple(phrases)
    return tuple(phrases) + (Phrase(noun),) * max(1, len(phrases))


@cache
def times(verb: Verb, tense: str, negated: bool) -> tuple[Time | None, ...]:
    """When it can be said to happen; a habit always names its rhythm."""
    if verb.timeless:
        return (None,)
    known = TIMES.get(tense, ())
    if tense == "habit":
        return tuple(time for time in known if not negated or time.english == "often")
    return (None,) * max(1, len(known)) + known


@cache
def places(verb: Verb, noun: Noun | None) -> tuple[Place | None, ...]:
    """Where someone can do it, or go."""
    if verb.needs in ("goal", "place"):
        return verb.places
    known = verb.places
    if noun and noun.group == "animal":
        known = tuple(place for place in known if place in ANIMAL_PLACES)
    return (None,) * max(1, len(known)) + known


@cache
def objects(verb: Verb, noun: Noun | None) -> tuple[Noun, ...]:
    """What someone can do it to."""
    known = verb.objects
    if noun and noun.group == "animal":
        return tuple(thing for thing in known if thing in nouns(DIET[noun.english]))
    if noun and noun.group == "pronoun":
        return tuple(thing for thing in known if thing.group != "pronoun")
    return tuple(thing for thing in known if thing is not noun)


@cache
def recipients(verb: Verb, noun: Noun) -> tuple[Noun, ...]:
    """To whom someone can do it. 사과를 드리다 would be giving an apple as well, so elders get no apologies."""
    if verb.needs != "recipient":
        return ()
    groups = ["name"] if verb.part else ["name", "elder"]
    if noun.group != "pronoun":
        groups.append("pronoun")
    return tuple(person for person in nouns(" ".join(groups)) if person is not noun)


@cache
def means(verb: Verb, place: Place | None) -> tuple[Noun | None, ...]:
    """By what one gets to a place."""
    if verb.needs != "goal" or place is None:
        return (None,)
    known = MEANS_TO.get(place.korean, ())
    return (None,) * (2 * len(known) or 1) + known


@cache
def asks_what(verb: Verb, noun: Noun) -> bool:
    """Whether one can ask for its object: the verb alone must tell its meaning, in both languages."""
    if not verb.objects or verb.shares_number or verb.dummy or verb not in ACTIONS:
        return False
    if (verb.honor and noun.group == "elder") or (verb.article == "the" and verb.modifiers):
        return False
    return not any(other is not verb and (other.stem == verb.stem or other.english == verb.english) for other in VERBS)


@no_type_check
def asked_object(verb: Verb) -> Noun:
    """The question word for its object."""
    return WHO if "name" in verb.what.split() else WHAT


@no_type_check
def makes_sense(clause: Clause) -> bool:
    """Whether every choice in a clause is one that can be drawn."""
    verb, subject = clause.verb, clause.subject
    noun = subject.noun if subject else None
    return (
        clause.tense in verb.tenses
        and not (clause.negated and clause.question)
        and _subject_fits(clause)
        and _object_fits(clause)
        and (clause.recipient is None) == (verb.needs != "recipient")
        and (clause.recipient is None or (noun is not None and clause.recipient.noun in recipients(verb, noun)))
        and (clause.place in places(verb, noun) or (clause.place is WHERE and asks_where(verb) and clause.question))
        and clause.means in means(verb, clause.place)
        and _time_fits(clause)
        and _asked(clause) <= 1
        and named_once(clause)
        and (not clause.fronted or can_front(clause.time, subject, clause.question))
    )


@no_type_check
def named_once(clause: Clause) -> bool:
    """Whether nobody is named twice: not 민수는 민수의 책을, not 지영에게 지영의 책을."""
    _, _, subject, phrase, recipient, *_ = clause
    named = [subject.noun, subject.partner] if subject else []
    if phrase is not None:
        named += [phrase.noun, phrase.owner]
    if recipient is not None:
        named.append(recipient.noun)
    known = [noun for noun in named if noun is not None]
    return len(known) == len(set(known))


@no_type_check
def asks_where(verb: Verb) -> bool:
    """Whether one can ask for its place."""
    return bool(verb.places) and not verb.dummy


@no_type_check
def asks_when(verb: Verb) -> bool:
    """Whether one can ask for its time."""
    return verb in ACTIONS and "past" in verb.tenses and "future" in verb.tenses


@no_type_check
def can_front(time: Time | None, subject: Phrase | None, question: bool) -> bool:
    """Whether the time can come first: only before a subject, in a statement."""
    return time is not None and not time.frequency and subject is not None and not question


@no_type_check
def _time_fits(clause: Clause) -> bool:
    if clause.time is WHEN:
        return clause.question and asks_when(clause.verb) and clause.tense in ("past", "future")
    return clause.time in times(clause.verb, clause.tense, clause.negated)


@no_type_check
def _asked(clause: Clause) -> int:
    asked = [phrase.noun for phrase in (clause.subject, clause.object) if phrase]
    return sum(noun in (WHO, WHAT) for noun in asked) + (clause.place is WHERE) + (clause.time is WHEN)


@no_type_check
def _subject_fits(clause: Clause) -> bool:
    verb, subject = clause.verb, clause.subject
    if subject is None:
        return bool(verb.dummy)
    noun = subject.noun
    known = noun in subjects(verb, clause.question)
    if noun is WHO:
        known = clause.question and verb in ACTIONS and clause.tense != "habit"
    counted = counted_subject(clause.tense, clause.question)
    return known and not verb.dummy and subject in subject_phrases(verb, noun, counted)


@no_type_check
def _object_fits(clause: Clause) -> bool:
    verb, phrase = clause.verb, clause.object
    if phrase is None:
        return not verb.objects
    noun = clause.subject.noun if clause.subject else None
    if phrase.noun in (WHO, WHAT):
        return clause.question and noun is not None and asks_what(verb, noun) and phrase.noun is asked_object(verb)
    counted = counted_object(verb, clause.negated, clause.question)
    return (
        phrase.noun in objects(verb, noun)
        and (phrase.partner is None or phrase.partner in objects(verb, noun))
        and phrase in object_phrases(verb, phrase.noun, clause.tense, counted)
    )


@no_type_check
def fit_together(clauses: tuple[Clause, ...], joined: str) -> bool:
    """Whether a second clause can follow the first in this way."""
    if not joined:
        return True
    first, second = clauses
    if first.negated or first.question or first.tense != second.tense:
        return False
    if joined == "so":
        place = second.place.korean if second.place else ""
        return first.tense == "past" and (first.verb, second.verb, place, second.negated) in REASONS
    if joined == "but":
        same = first._replace(subject=second.subject, negated=True) == second
        return same and not people(first) & people(second, subject_only=True)
    return not second.negated and not people(first) & people(second)


@no_type_check
def people(clause: Clause, subject_only: bool = False) -> set[Noun]:
    """Everyone a clause calls by name; who says I is one of us."""
    spoken = (clause.subject,) if subject_only else (clause.subject, clause.object, clause.recipient)
    phrases = [phrase for phrase in spoken if phrase]
    found = {noun for phrase in phrases for noun in (phrase.noun, phrase.partner) if noun and noun.group in SINGLE}
    return found | set(SPEAKERS) if found & set(SPEAKERS) else found


RESULTS = {
    "hungry": "eat,eat,eat,go:식당",
    "thirsty": "drink,drink,drink",
    "tired": "sleep,rest,go:집,not swim,not work",
    "happy": "laugh,sing",
    "sick": "go:병원,rest,not go:학교,not work",
    "busy": "not meet,not rest,not watch,not go:해변,not go:공원",
    "stomach": "go:병원,rest,not eat",
    "head": "go:병원,rest,not read",
    "leg": "go:병원,rest,not run,not walk",
}


def _reasons() -> tuple[tuple[Verb, Verb, str, bool], ...]:
    feelings = {verb.complement or verb.part_english: verb for verb in FEELINGS + ACHES}
    actions = {verb.english[0]: verb for verb in ACTIONS}
    found = []
    for feeling, results in RESULTS.items():
        for result in results.split(","):
            word, _, goal = result.split()[-1].partition(":")
            found.append((feelings[feeling], actions[word], goal, "not" in result.split()))
    return tuple(found)


REASONS = _reasons()
