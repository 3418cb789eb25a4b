"""Semantic roles of miniworld's sentences: the predicate of every clause, and who does what to whom, where and when.

    Grandma  gave    that flower  to them    yesterday  .        predicate: gave, lemma give
    AGENT            PATIENT      RECIPIENT  TIME

A clause has one predicate and the roles of its own words; in Korean a subject that the second clause leaves out has
none there. Roles are spans, in IOB2, or stand on the last word of each span. Words are the tokens of miniworld_tags.py.

- AGENT who does it. EXPERIENCER who feels or likes it. THEME who or what is so, or is there. ATTRIBUTE what someone is.
- PATIENT what it is done to, or what someone has or likes. RECIPIENT to whom. MEANS by what.
- GOAL where someone goes. PLACE where it is. TIME when, or how often.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import NamedTuple

from mallang.data import miniworld
from mallang.data.miniworld_grammar import BE, Scene
from mallang.data.miniworld_scene import Clause
from mallang.data.miniworld_tags import MARKS, PREDICATE, tagged
from mallang.data.miniworld_verbs import ACHES, ACTIONS, FEELINGS, IDENTITY, TASTES
from mallang.data.miniworld_words import Verb, no_type_check
from mallang.data.role_files import NONE
from mallang.text.tag_scheme import OUTSIDE, split_tag

VERSION = 1
"""Changes whenever any role does."""
ROLES = (
    "AGENT", "EXPERIENCER", "THEME", "ATTRIBUTE", "PATIENT", "RECIPIENT", "MEANS", "GOAL", "PLACE", "TIME",
)  # fmt: skip
AUXILIARIES = frozenset(("do", "does", "did", *(form for forms in BE.values() for form in forms)))
COLUMNS = ("predicates", "roles", "head-roles")


@no_type_check
class Proposition(NamedTuple):
    """A predicate with the roles of all tokens."""

    place: int
    """The token that is the predicate."""
    lemma: str
    roles: tuple[str, ...]
    """A tag for every token of the sentence, in IOB2."""


@cache
def column(split: str, language: str, view: str) -> tuple[str, ...]:
    """A column of all sentences of a split: predicates, roles as spans, or roles on head words."""
    return tuple(cell(scene, language, view) for scene in miniworld.scenes(split))


def cell(scene: Scene, language: str, view: str) -> str:
    """What a column says of a sentence."""
    found = propositions(scene, language)
    if view == "predicates":
        lemmas = [NONE] * len(tagged(scene, language))
        for each in found:
            lemmas[each.place] = each.lemma
        return "\t".join(lemmas)
    rows = [each.roles if view == "roles" else on_heads(each.roles) for each in found]
    return "\t".join(role for row in rows for role in row)


@no_type_check
def propositions(scene: Scene, language: str) -> list[Proposition]:
    """The predicates of a scene's sentence in Korean (`ko`) or English (`en`), with their roles."""
    written = (scene.korean if language == "ko" else scene.english).split(" ")
    sizes = [token_count(word, language) for word in written]
    count, start, found = sum(size for size, _ in sizes), 0, []
    for clause, words in zip(scene.clauses, scene.words(language), strict=True):
        own = sizes[: len(words)]
        sizes = sizes[len(words) :]
        place = predicate_place(clause, words, language)
        tags, before = [OUTSIDE] * start, ""
        for number, ((_, label), (size, named)) in enumerate(zip(words, own, strict=True)):
            role = "" if number == place else role_of(clause, label)
            # A mark at the end of a word belongs to no role; the 's of an owner belongs to that of the owner.
            tags += (
                [f"{'I' if role == before else 'B'}-{role}", *[f"I-{role}"] * (named - 1)]
                if role
                else ([OUTSIDE] * named)
            )
            tags += [OUTSIDE] * (size - named)
            before = role if size == named else ""
        tags += [OUTSIDE] * (count - len(tags))
        at = start + sum(size for size, _ in own[:place])
        found.append(Proposition(at, lemma_of(clause.verb, language), tuple(tags)))
        start += sum(size for size, _ in own)
    return found


def token_count(word: str, language: str) -> tuple[int, int]:
    """How many tokens a word is, and how many without the mark at its end."""
    bare = word.rstrip(MARKS)
    named = 1 + (language == "en" and bare.endswith("'s"))
    return named + (bare != word), named


@no_type_check
def predicate_place(clause: Clause, words: list[tuple[str, str]], language: str) -> int:
    """Which word of a clause is its predicate: the verb without its auxiliaries, or what someone is."""
    if language == "ko":
        places = [place for place, (_, label) in enumerate(words) if label in PREDICATE]
        if not places:  # 의사다: a noun as predicate
            return len(words) - 1
        return places[min(len(clause.verb.part.split()), len(places) - 1)]
    places = [place for place, (word, label) in enumerate(words) if label == "verb" and word != clause.verb.dummy]
    if not places:  # 'is not there': the form of be has the label of its negation
        places = [place for place, (word, _) in enumerate(words) if word in AUXILIARIES]
    full = [place for place in places if words[place][0] not in AUXILIARIES]
    return (full or places)[0]


@no_type_check
def role_of(clause: Clause, label: str) -> str:
    """The role of a word by the label of what it stands for; empty if it has none."""
    verb, kind = clause.verb, label.partition(".")[0]
    is_change = verb.english[0] == "become"
    if kind == "subject":
        if verb in ACTIONS and not is_change:
            return "AGENT"
        return "EXPERIENCER" if verb in TASTES + FEELINGS + ACHES else "THEME"
    if kind == "object":
        if verb is IDENTITY or is_change:
            return "ATTRIBUTE"
        return "THEME" if verb.dummy == "there" else "PATIENT"
    if kind == "place":
        return "GOAL" if verb.needs == "goal" else "PLACE"
    return {"recipient": "RECIPIENT", "means": "MEANS", "time": "TIME"}.get(kind, "")


@no_type_check
def lemma_of(verb: Verb, language: str) -> str:
    """The dictionary form of a predicate."""
    if language == "ko":
        return verb.stem.plain.replace(" ", "") + "다"
    if verb.english[0] == "be" and verb.complement:
        return verb.complement
    return verb.english[0].split()[0]


def on_heads(roles: tuple[str, ...]) -> list[str]:
    """Tags of spans as roles on the last word of each span."""
    return [
        split_tag(tag)[1] if tag != OUTSIDE and split_tag(after)[0] != "I" else NONE
        for tag, after in pairwise((*roles, OUTSIDE))
    ]
