"""The grammar of miniworld: how a scene is said in Korean and in English.

Each language puts the phrases of a clause into slots and has one order of slots; the parser reads the same slots in
the same order. Every word carries the label of what it stands for, and words of the two languages with the same
label are aligned.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from mallang.data.miniworld_scene import SINGLE, Clause, Phrase
from mallang.data.miniworld_verbs import BE_ABSENT, BE_THERE, IDENTITY
from mallang.data.miniworld_words import (
    DETERMINERS,
    FINAL_N,
    FINAL_R,
    NUMBERS,
    WHAT,
    WHEN,
    WHERE,
    WHO,
    Noun,
    Stem,
    Verb,
    close,
    no_type_check,
    third_person,
)
from mallang.text.hangul import final, has_final, particle

KOREAN_ORDER = ("early", "subject", "time", "recipient", "means", "place", "object", "predicate")
ENGLISH_ORDER = (
    *("early", "asked", "helper", "subject", "auxiliary", "not", "frequency", "head"),
    *("object", "recipient", "place", "means", "time"),
)
ENDINGS = {"and": "고", "but": "지만", "so": "서"}
NOT, WISH, DO = Stem("않", "않아", "않으"), Stem("싶", "싶어", "싶으", True), Stem("하", "해", "하")
STAY, THING = Stem("계시", "계셔", "계시"), Stem("것이", "것이어", "것이", True)
BE = {"I": ("am", "was"), "one": ("is", "was"), "many": ("are", "were")}


@no_type_check
class Piece(NamedTuple):
    """A phrase, and for each of its words the label of what it stands for."""

    text: str
    labels: tuple[str, ...]


Slots = dict[str, Piece]


@no_type_check
@dataclass(frozen=True)
class Scene:
    """What happens, whole: one clause or two, and how both languages say it."""

    clauses: tuple[Clause, ...]
    joined: str = ""
    """How the second clause follows the first: and, but, so."""

    @property
    def korean(self) -> str:
        """The sentence in Korean."""
        if not self.joined:
            return in_order(self.korean_slots()[0], KOREAN_ORDER) + self.mark
        first, second = (in_order(slots, KOREAN_ORDER) for slots in self.korean_slots())
        return first + (" " if self.joined == "so" else ", ") + second + self.mark

    @property
    def english(self) -> str:
        """The sentence in English."""
        text = f", {self.joined} ".join([in_order(slots, ENGLISH_ORDER) for slots in self.english_slots()])
        return text[0].upper() + text[1:] + self.mark

    @property
    def mark(self) -> str:
        """The punctuation mark at the end."""
        return "?" if self.clauses[0].question else "."

    def korean_slots(self) -> list[Slots]:
        """The Korean phrases of each clause."""
        first = self.clauses[0]
        if not self.joined:
            return [korean_clause(first, "니" if first.question else "다")]
        known = self.joined == "so"
        return [korean_clause(first, ENDINGS[self.joined]), korean_clause(self.clauses[1], "다", known)]

    def english_slots(self) -> list[Slots]:
        """The English phrases of each clause."""
        first = self.clauses[0]
        if not self.joined:
            return [english_clause(first)]
        again = pronoun(first.subject) if self.joined == "so" and first.subject else ""
        return [english_clause(first), english_clause(self.clauses[1], again)]

    def words(self, language: str) -> list[list[tuple[str, str]]]:
        """The words of each clause in Korean (`ko`) or English (`en`), in order, with what they stand for."""
        if language == "ko":
            return [labelled(slots, KOREAN_ORDER) for slots in self.korean_slots()]
        first, *later = (labelled(slots, ENGLISH_ORDER) for slots in self.english_slots())
        return [first, *([(self.joined, "joined"), *words] for words in later)]

    @property
    def alignment(self) -> list[tuple[int, int]]:
        """Pairs (Korean word, English word) that say the same; words are what spaces part."""
        korean, english = self.words("ko"), self.words("en")
        places: dict[tuple[int, str], list[int]] = {(1, "joined"): [len(korean[0]) - 1]}
        for place, key in enumerate([(k, label) for k, clause in enumerate(korean) for _, label in clause]):
            places.setdefault(key, []).append(place)
        pairs = []
        for there, (k, label) in enumerate([(k, label) for k, clause in enumerate(english) for _, label in clause]):
            # What English has a word for, Korean may have said before, or say in the verb or the noun.
            keys = ((k, label), (0, label) if label == "subject.noun" else (k, "verb"), (k, "object.noun"))
            pairs += [(here, there) for here in next(places[key] for key in keys if key in places)]
        return sorted(pairs)


@no_type_check
def in_order(slots: Slots, order: tuple[str, ...]) -> str:
    """The phrases of a clause, one after the other."""
    return " ".join([slots[slot].text for slot in order if slot in slots])


@no_type_check
def labelled(slots: Slots, order: tuple[str, ...]) -> list[tuple[str, str]]:
    """The words of a clause with their labels."""
    pieces = [slots[slot] for slot in order if slot in slots]
    return [pair for found in pieces for pair in zip(found.text.split(" "), found.labels, strict=True)]


@no_type_check
def piece(*parts: tuple[str, str]) -> Piece:
    """A phrase from texts with their labels; empty ones leave no trace."""
    words = [(word, label) for text, label in parts for word in text.split()]
    return Piece(" ".join(word for word, _ in words), tuple(label for _, label in words))


@cache
def simple(text: str, label: str) -> Piece:
    """A phrase whose words all stand for one thing."""
    return piece((text, label))


@no_type_check
def pronoun(subject: Phrase) -> str:
    """The English word that takes a subject up again."""
    return "they" if subject.partner else subject.noun.again


@no_type_check
def korean_clause(clause: Clause, ending: str, known: bool = False) -> Slots:
    """The phrases of a clause in Korean; `ending` is that of the predicate, a `known` subject is left out."""
    verb, tense, subject, thing, recipient, place, means, time, negated, _, fronted = clause
    slots: Slots = {}
    manner = "plain"
    noun = None
    if subject is not None:
        noun = subject.noun
        manner = "honored" if noun.group == "elder" else "own" if noun.korean in ("나", "우리", "너") else "plain"
        if not known:
            slots["subject"] = korean_phrase(subject, "subject", "이가" if subject.number else "은는")
    if time is not None:
        slots["early" if fronted or noun is WHO else "time"] = simple(time.korean, "time")
    if recipient is not None:
        slots["recipient"] = korean_phrase(recipient, "recipient", "에게")
    if means is not None:
        slots["means"] = korean_phrase(Phrase(means), "means", "으로로")
    if place is not None:
        slots["place"] = simple(place.korean + verb.place_case, "place")
    if thing is not None:
        if verb is IDENTITY and not negated:
            slots["predicate"] = copula(thing.noun, tense == "past", ending)
            return slots
        slots["object"] = korean_phrase(thing, "object", verb.case)
    humble = bool(recipient and verb.humble and recipient.noun.group == "elder")
    slots["predicate"] = predicate(verb, tense, negated, ending, manner, humble)
    return slots


@cache
def korean_phrase(phrase: Phrase, role: str, case: str) -> Piece:
    """A noun with what belongs to it and its particle."""
    found: list[tuple[str, str]] = []
    noun = phrase.noun
    if phrase.determiner:
        found.append((DETERMINERS[phrase.determiner][0], f"{role}.determiner"))
    if phrase.owner:
        found.append((phrase.owner.owned, f"{role}.owner"))
    if phrase.adjective:
        found.append((phrase.adjective.attribute, f"{role}.adjective"))
    found.append((noun.korean + "들" * phrase.plural, f"{role}.noun"))
    if phrase.number:
        found.append((NUMBERS[phrase.number][0], f"{role}.number"))
        found.append((noun.counter, f"{role}.counter" if noun.unit else f"{role}.number"))
    if phrase.partner:
        found[-1] = noun.korean + particle(noun.korean, "과와"), f"{role}.noun"
        found.append((phrase.partner.korean, f"{role}.partner"))
    last, label = found[-1]
    return piece(*found[:-1], (with_particle(last, case, noun), label))


def with_particle(word: str, case: str, noun: Noun) -> str:
    """The word and its particle, which depends on how the word ends and, for giving, on who it is."""
    if case == "에게":
        return word + ("께" if noun.group == "elder" else "에게")
    if noun is WHO and case != "을를":
        return "누가"
    return word + particle(word, case)


@cache
def predicate(verb: Verb, tense: str, negated: bool, ending: str, manner: str, humble: bool) -> Piece:
    """The Korean verb with its auxiliaries; `manner` is honored for elders, own for one's own wish, or plain."""
    main, label, honored = verb.stem, "verb", manner == "honored"
    if negated and verb.negative:
        main, negated = verb.negative, False
    elif humble:
        main = Stem(verb.humble, verb.humble[:-1] + "려", verb.humble)
    # The last verb that can shows respect; the few with a word of their own for it always do.
    if honored and (verb.honor or tense == "can" or (not negated and tense not in ("progressive", "want"))):
        main = verb.honored if main is verb.stem else main.honored
    found = [(verb.part, "part" if verb.part_english else "verb")]
    if tense == "progressive":
        found.append((main.plain + "고", label))
        main, label = (STAY if honored else BE_THERE), "tense"
    elif tense == "can":
        found += [(close(main.open, FINAL_R), label), ("수", "tense")]
        main, label, negated = (BE_ABSENT if negated else BE_THERE), "tense", False
    elif tense == "want":
        found.append((main.plain + "고", label))
        main, label = WISH, "want"
        if manner != "own":
            found.append(("싶어", label))
            main = DO.honored if honored and not negated else DO
    if negated:
        found.append((main.plain + "지", label))
        polite = NOT.honored if honored and tense != "progressive" else NOT
        main, label = polite._replace(adjectival=main.adjectival or tense == "progressive"), "not"
    if tense == "future":
        found.append((close(main.open, FINAL_R), label))
        main, label = THING, "tense"
    return piece(*found, (inflect(main, tense == "past", ending), label))


def inflect(stem: Stem, past: bool, ending: str) -> str:
    """A stem with one of the endings 다, 니, 고, 지만, 서."""
    if ending == "서":
        return stem.infinitive + ending
    if past:
        return stem.past + ending
    ends_in_r = final(stem.plain) == "ㄹ"
    if ending == "다" and not stem.adjectival:
        if has_final(stem.plain) and not ends_in_r:
            return stem.plain + "는다"
        return close(stem.open, FINAL_N) + "다"
    if ending == "니" and stem is THING:
        return "거니"
    return (stem.open if ending == "니" and ends_in_r else stem.plain) + ending


@cache
def copula(noun: Noun, past: bool, ending: str) -> Piece:
    """A noun as predicate: 의사다, 학생이다, 의사였다, 학생이었다."""
    closed = has_final(noun.korean)
    middle = ("이었" if closed else "였") if past else "이" * closed
    return piece((noun.korean + middle + ending, "object.noun"))


@no_type_check
def english_clause(clause: Clause, again: str = "") -> Slots:
    """The phrases of a clause in English; `again` is the pronoun for a subject named before."""
    verb, tense, subject, thing, recipient, place, means, time, negated, question, fronted = clause
    slots: Slots = {}
    agreement = "one"
    if subject is None:
        slots["subject"] = simple(verb.dummy, "verb")
        if verb.dummy == "there" and thing is not None:
            agreement = thing.agreement
    else:
        slots["subject"] = simple(again, "subject.noun") if again else english_subject(verb, subject)
        agreement = "one" if aches(verb) else subject.agreement
    inverted = question and (subject is None or subject.noun is not WHO)
    slots |= group(verb, tense, negated, agreement, inverted)
    if thing is not None:
        if thing.noun is WHO or thing.noun is WHAT:
            slots["asked"] = simple(thing.noun.english, "object.noun")
        else:
            article = "no" if negated and verb.dummy else verb.article
            article = "all" if verb.shares_number and agreement == "many" else article
            slots["object"] = english_phrase(thing, "object", article)
    if recipient is not None:
        slots["recipient"] = english_phrase(recipient, "recipient", "a")
    if place is not None:
        where = place.to if verb.needs == "goal" else place.at
        slots["asked" if place is WHERE else "place"] = simple(where, "place")
    if means is not None:
        slots["means"] = simple("by " + means.english, "means.noun")
    if time is not None:
        slot = "asked" if time is WHEN else "frequency" if time.frequency else "early" if fronted else "time"
        slots[slot] = simple(time.english + "," * fronted, "time")
    return slots


@no_type_check
def aches(verb: Verb) -> bool:
    """Whether the English subject is a part of the body: Minsu's stomach hurts."""
    return verb.part_english != "" and verb.complement == ""


@cache
def english_subject(verb: Verb, subject: Phrase) -> Piece:
    """The subject, or the part of the body that hurts."""
    found = english_phrase(subject, "subject", "a")
    if not aches(verb):
        return found
    owner = Piece(subject.noun.possessive or found.text + "'s", found.labels)
    return Piece(f"{owner.text} {verb.part_english}", (*owner.labels, "part"))


@cache
def group(verb: Verb, tense: str, negated: bool, agreement: str, inverted: bool) -> Slots:
    """The English verb: its auxiliary, before the subject when `inverted`, `not`, and the rest."""
    base, past, ing = verb.english
    helper, refusal, head = "", "not" if negated else "", base
    label = "not" if negated else "verb"
    if base == "be":
        helper, head = BE[agreement][tense == "past"], verb.complement
        refusal = "no" if negated and verb.dummy else refusal
    elif tense == "progressive":
        helper, head, label = BE[agreement][0], ing, "tense"
    elif tense == "future":
        helper, label = "will", "tense"
    elif tense == "can":
        helper, refusal, label = "cannot" if negated else "can", "", "tense"
    elif negated or inverted:
        helper = "did" if tense == "past" else "does" if agreement == "one" else "do"
    wish = "want to" if tense == "want" else ""
    if not helper and tense == "past":
        head = past
    elif not helper and agreement == "one":
        wish, head = (third_person(wish), head) if wish else ("", third_person(head))
    if base == "have" and verb.complement:
        head = f"{head} {verb.complement}"
    part = verb.part_english if base == "have" else ""
    slots = {
        "helper" if inverted else "auxiliary": piece((helper, label)),
        "not": piece((refusal, "not")),
        "head": piece((wish, "want"), (head, "verb"), (part, "part")),
    }
    return {slot: found for slot, found in slots.items() if found.text}


@cache
def english_phrase(phrase: Phrase, role: str, article: str) -> Piece:
    """A noun with what belongs to it; `article` is a, the, no (nothing, singular) or all (nothing, plural)."""
    noun = phrase.noun
    if noun.group in SINGLE:
        parts = [(noun.english if role == "subject" else noun.object, f"{role}.noun")]
    else:
        parts = thing_parts(phrase, role, article)
    if role == "recipient":
        parts.insert(0, ("to", f"{role}.noun"))
    if phrase.partner:
        partner = english_phrase(Phrase(phrase.partner), role, article).text
        parts += [("and", f"{role}.noun"), (partner, f"{role}.partner")]
    return piece(*parts)


def thing_parts(phrase: Phrase, role: str, article: str) -> list[tuple[str, str]]:
    """The words for something that is not called by name."""
    noun, count = phrase.noun, phrase.number
    particular = bool(phrase.determiner or phrase.owner or count)
    many = phrase.plural or count > 1 or (article == "all" and not particular)
    name = noun.plural if many and noun.plural else noun.english
    several = many or noun.plural == noun.english
    quality = phrase.adjective.english if phrase.adjective else ""
    indefinite = "an" if (quality or name)[0] in "aeiou" else "a"
    before = [("", "")]
    if count:
        before = [(NUMBERS[count][1] if count > 1 or noun.unit else indefinite, f"{role}.number")]
        if noun.unit:
            unit = noun.unit + ("es" if noun.unit.endswith("s") else "s") * (count > 1)
            before.append((f"{unit} of", f"{role}.counter"))
    elif phrase.determiner:
        before = [(DETERMINERS[phrase.determiner][1 + several], f"{role}.determiner")]
    elif phrase.owner:
        before = [(phrase.owner.possessive, f"{role}.owner")]
    elif article == "the":
        before = [("the", f"{role}.noun")]
    elif article == "a" and not several and noun.plural:
        before = [(indefinite, f"{role}.noun")]
    return [*before, (quality, f"{role}.adjective"), (name, f"{role}.noun")]
