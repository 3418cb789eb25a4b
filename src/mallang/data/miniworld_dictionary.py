"""A dictionary of miniworld: pairs of a Korean and an English word, as one would look them up.

Nouns, names, places, times, numbers and adjectives, and verbs in their dictionary form, which ends in -다. Words that
need a phrase in the other language are left out, and so are particles and endings, which English does not have.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from mallang.data.miniworld_verbs import ACTIONS
from mallang.data.miniworld_words import ADJECTIVES, DETERMINERS, NOUNS, NUMBERS, PLACES, TIMES, WHAT, WHEN, WHERE, WHO

VERSION = 1
"""Changes whenever any pair does."""


@cache
def rows(split: str, count: int) -> tuple[tuple[str, ...], ...]:
    """The pairs of words, each once."""
    single = (pair for pair in pairs() if not any(" " in word or not word for word in pair))
    return tuple(dict.fromkeys(single))[:count]


def pairs() -> Iterator[tuple[str, str]]:
    """All pairs, phrases too."""
    for noun in (*NOUNS.values(), WHO, WHAT):
        yield noun.korean, noun.english.removeprefix("the ")
        if noun.plural not in ("", "-"):
            yield noun.korean, noun.plural
    for place in PLACES.values():
        yield place.korean, place.at.split()[-1]
    yield WHERE.korean, WHERE.at
    for time in (*(time for times in TIMES.values() for time in times), WHEN):
        yield time.korean, time.english
    for korean, *english in (*NUMBERS.values(), *DETERMINERS.values()):
        yield from ((korean, word) for word in english)
    for adjective in ADJECTIVES:
        yield adjective.attribute, adjective.english
        if adjective.stem is not None:
            yield f"{adjective.stem.plain}다", adjective.english
    for verb in ACTIONS:
        base, past, ing = (form.split()[0] for form in verb.english)
        yield from ((f"{verb.stem.plain}다", form) for form in (base, f"{base}s", past, ing))
        yield f"{verb.stem.infinitive}다", base
