"""Prompts of miniworld: episodes of examples in a line, each with rules of its own, for learning in context.

    민수는 빵을 먹었다. → 푸비 음식 / 유나는 배를 탔다. → 다카 탈것 / 그는 물을 마셨다. → 푸비 음식 / …

A sentence is about food, clothes, a vehicle or an animal. In three episodes of four the label of each topic is a
nonsense word that is drawn again, so that no model can know it before it has seen an example: what the first
sentence's label is can only be guessed, what the ninth's is follows from the eight before it. In the others a topic's
label is its own name. The topic's name follows every label, as an explanation: without it a small model takes far
longer to see what an example is about while it reads the label, and that is what it must know to learn from it.

Everything is drawn by arithmetic on (version, split, number), as all of miniworld is, and who does what to what
decides the split: no such combination of the test set is ever seen in training.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, TypeVar

from mallang.data.miniworld_draw import Draw, draw_clause
from mallang.data.miniworld_grammar import Scene
from mallang.data.miniworld_parser import parse
from mallang.data.miniworld_verbs import ACTIONS, TASTES
from mallang.data.miniworld_words import no_type_check, nouns
from mallang.errors import UserError, nearest

VERSION = 1
"""Changes whenever any line does."""
EPISODES = {"train": 20_000, "valid": 500, "test": 500}
EXAMPLES = 10
"""Sentences in an episode."""
ARROW, SEPARATOR = " → ", " / "
SENTENCES = {"train": 120, "valid": 12, "test": 12}
"""Sentences about each topic."""
LENGTH = 3
"""Words of a Korean sentence: who, what, does. That all are alike helps a small model to find what they are about."""
GROUPS = {"food": "food drink", "clothes": "wear", "vehicle": "vehicle", "animal": "animal"}
NAMES = {"ko": ("음식", "옷", "탈것", "동물"), "en": tuple(GROUPS)}
"""The name of each topic."""
NONSENSE = {
    "ko": ("푸비", "다카", "미뉴", "로젠", "부가", "헤루", "노마", "키포"),
    "en": ("wug", "dax", "blick", "fep", "toma", "zib", "gorp", "lerm"),
}
LANGUAGES = ("ko", "en")
OWN_NAMES = 4
"""One episode in so many calls every topic by its name."""


COLUMNS = {"miniworld-prompts": LANGUAGES, "miniworld-topics": (*LANGUAGES, "ko-topic", "en-topic")}
"""The corpora that are made here, and what a row of each has."""
Item = TypeVar("Item")


@dataclass(frozen=True)
class View:
    """A split of one of the corpora, as rows."""

    corpus: str
    split: str

    def rows(self, picks: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """Episodes in these languages, or sentences and their topics."""
        if self.corpus == "miniworld-prompts":
            return zip(*(episodes(self.split, pick) for pick in picks), strict=True)
        places = [COLUMNS[self.corpus].index(pick) for pick in picks]
        return (tuple(row[place] for place in places) for row in topics(self.split))

    def fingerprint(self, picks: Sequence[str]) -> str:
        """A sum over the sentences and over how episodes are made of them."""
        told = [self.corpus, VERSION, self.split, list(picks), EXAMPLES, NONSENSE, sentences(self.split)]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()


class About(NamedTuple):
    """A sentence in both languages, and the number of its topic."""

    korean: str
    english: str
    topic: int


def episodes(split: str, language: str) -> Iterator[str]:
    """The episodes of a split in one language, a line each; both languages tell the same ones."""
    place = _language(language)
    pool = sentences(split)
    by_topic = [[one for one in pool if one.topic == topic] for topic in range(len(GROUPS))]
    for number in range(EPISODES[split]):
        draw = Draw(VERSION, _split(split), number)
        names = NAMES[language]
        labels = list(names) if draw.below(OWN_NAMES) == 0 else shuffled(draw, NONSENSE[language])[: len(names)]
        examples = []
        for _ in range(EXAMPLES):
            chosen = draw.choose(by_topic[draw.below(len(by_topic))])
            examples.append(f"{chosen[place]}{ARROW}{labels[chosen.topic]} {names[chosen.topic]}")
        yield SEPARATOR.join(examples)


def topics(split: str) -> Iterator[tuple[str, str, str, str]]:
    """The sentences of a split and their topic: Korean, English, the topic's name in Korean and in English."""
    for korean, english, topic in sentences(split):
        yield korean, english, NAMES["ko"][topic], NAMES["en"][topic]


@cache
def sentences(split: str) -> tuple[About, ...]:
    """Short sentences, as many about each topic, the topics mixed; held-out ones use words that training knows."""
    place = _split(split)
    known = None if split == "train" else {word for one in sentences("train") for word in words(one)}
    members = [frozenset(nouns(groups)) for groups in GROUPS.values()]
    verbs = tuple(verb for verb in ACTIONS + TASTES if any(not one.isdisjoint(verb.objects) for one in members))
    found: dict[str, About] = {}
    counts, wanted, number = [0] * len(members), SENTENCES[split], Draw(VERSION, place).next()
    while min(counts) < wanted:
        clause, number = draw_clause(Draw(number), split, verbs, simple=True), number + 1
        if clause is None or clause.object is None or clause.object.partner is not None:
            continue
        topic = next((which for which, one in enumerate(members) if clause.object.noun in one), None)
        if topic is None or counts[topic] == wanted:
            continue
        scene = Scene((clause,))
        one = About(scene.korean, scene.english, topic)
        if len(one.korean.split()) != LENGTH or one.korean in found or not parse(one.korean, "ko"):
            continue  # some clauses need a time or a place to be what people say
        if known is None or known.issuperset(words(one)):
            found[one.korean] = one
            counts[topic] += 1
    return tuple(shuffled(Draw(VERSION, place, len(found)), tuple(found.values())))


@no_type_check
def words(one: About) -> list[str]:
    """The words of a sentence in both languages."""
    return [*one.korean.split(), *one.english.split()]


@no_type_check
def shuffled(draw: Draw, items: Sequence[Item]) -> list[Item]:
    """The same items in another order."""
    left = list(items)
    return [left.pop(draw.below(len(left))) for _ in range(len(left))]


def _language(language: str) -> int:
    if language not in LANGUAGES:
        raise UserError(f"miniworld does not speak {language!r}", todo=nearest(language, LANGUAGES))
    return LANGUAGES.index(language)


def _split(split: str) -> int:
    if split not in EPISODES:
        raise UserError(f"miniworld-prompts has no split {split!r}", todo=nearest(split, EPISODES))
    return list(EPISODES).index(split)
