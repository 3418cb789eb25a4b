"""Minimal pairs of miniworld: a sentence, and the same with one word that its neighbors do not allow.

    나는 사과를 먹었다.      나는 사과을 먹었다.      particle: 을 after a final consonant, 를 after a vowel
    He eats an apple.      He eat an apple.       agreement: the verb follows its subject
    He eats an apple.      He eats a apple.       article: an before a vowel

Whoever has learned from sentences that are right should find the first of each more probable. The second one is never a
sentence of miniworld: its grammar checker says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from mallang.data.miniworld import is_grammatical, scenes
from mallang.data.miniworld_grammar import BE, Scene
from mallang.data.miniworld_verbs import VERBS
from mallang.data.miniworld_words import no_type_check, third_person
from mallang.errors import UserError, nearest
from mallang.text.hangul import particle

KINDS = {"ko": ("은는", "이가", "을를"), "en": ("agreement", "article")}
"""What the pairs of each language are about."""
HELPERS = frozenset(("do", "does", "did", "will", "can", "cannot", "to"))
"""Words after which a verb stands as it is, whoever its subject is."""


class Pair(NamedTuple):
    """Two sentences that differ in one word."""

    better: str
    worse: str
    kind: str


def minimal_pairs(split: str, language: str) -> list[Pair]:
    """The pairs of a split: at most one a sentence, the kinds taking turns; `ko` or `en`."""
    if language not in KINDS:
        raise UserError(f"miniworld does not speak {language!r}", todo=nearest(language, KINDS))
    return list(_pairs(split, language))


@cache
def _pairs(split: str, language: str) -> tuple[Pair, ...]:
    made = dict.fromkeys(KINDS[language], 0)
    found = []
    for scene in scenes(split):
        # Of what a sentence offers, the kind that there are fewest of.
        for pair in sorted(candidates(scene, language), key=lambda pair: made[pair.kind]):
            if not is_grammatical(pair.worse, language):
                made[pair.kind] += 1
                found.append(pair)
                break
    return tuple(found)


@no_type_check
def candidates(scene: Scene, language: str) -> Iterator[Pair]:
    """Every way to spoil one word of a sentence."""
    sentence = scene.korean if language == "ko" else scene.english
    written = sentence.split(" ")
    place = -1
    for clause in scene.words(language):
        for number, (word, label) in enumerate(clause):
            place += 1
            finite = HELPERS.isdisjoint(earlier for earlier, _ in clause[:number])
            for worse, kind in wrong_particles(word, label) if language == "ko" else wrong_forms(word, label, finite):
                yield Pair(sentence, spoilt(written, place, word, worse), kind)


def spoilt(written: list[str], place: int, word: str, worse: str) -> str:
    """The sentence with one word replaced; its capital, its comma and the mark at the end stay."""
    there = written[place]
    worse = worse[0].upper() + worse[1:] if there[0].isupper() else worse
    return " ".join([*written[:place], worse + there[len(word) :], *written[place + 1 :]])


def wrong_particles(word: str, label: str) -> Iterator[tuple[str, str]]:
    """A noun with the particle that its last sound does not allow."""
    stem, last = word[:-1], word[-1]
    if not stem or not label.startswith(("subject", "object")):
        return
    for kind in KINDS["ko"]:
        if last == particle(stem, kind):
            yield stem + kind.replace(last, ""), kind


def wrong_forms(word: str, label: str, finite: bool) -> Iterator[tuple[str, str]]:
    """A verb that does not agree with its subject, or the article of the other sound."""
    if word in ("a", "an"):
        yield {"a": "an", "an": "a"}[word], "article"
    elif label in ("verb", "tense", "not", "want") and finite and word in other_forms():
        yield other_forms()[word], "agreement"


@cache
def other_forms() -> dict[str, str]:
    """Each finite form of a verb, and the one for another number; "read" may be past, and then agrees with all."""
    bases = {base for base, past, _ in (verb.english for verb in VERBS) if past != base != "be"} | {"want", "do"}
    both = {base: third_person(base) for base in bases}
    (_, past), (one, _), (many, were) = BE["I"], BE["one"], BE["many"]
    return (
        both | {third: base for base, third in both.items()} | {"am": one, one: many, many: one, past: were, were: past}
    )
