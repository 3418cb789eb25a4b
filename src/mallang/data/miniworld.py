"""miniworld, the built-in corpus: a generated small world in parallel Korean and English sentences.

    for korean, english in miniworld.rows("train"): ...
    miniworld.scene("test", 0).alignment        # pairs (Korean word, English word)
    miniworld.trees("test", "en")               # (S (NP XX )NP (VP XX (NP XX XX )NP )VP )S
    miniworld.is_grammatical("Minsu ate an apple.", "en")

A scene is drawn by arithmetic on (version, split, number), so the corpus is the same on every machine and Python. The
combination of agent, action and object decides the split, so no such combination of the test set is seen in training.
Each Korean sentence has one English translation and vice versa: the context disambiguates words with two meanings.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from functools import cache

from mallang.data.miniworld_draw import Draw, draw_scene
from mallang.data.miniworld_grammar import Scene
from mallang.data.miniworld_parser import parse
from mallang.data.miniworld_trees import tree_of
from mallang.data.miniworld_words import no_type_check
from mallang.errors import UserError, nearest

__all__ = ["EXAMPLES", "SPLITS", "VERSION", "Scene", "parse"]

VERSION = 1
"""Changes whenever any sentence does."""
SPLITS = {"train": 20_000, "valid": 1_000, "test": 1_000}
EXAMPLES: tuple[str, ...] = (
    "수진은 지난주에 학교에서 배를 먹지 않았다.",
    "유나는 지난주에 배를 탔다.",
    "그 농부는 배가 아프다.",
    "그는 내일 내 사과를 받아들일 것이다.",
    "나는 목이 말라서 차 한 잔을 마셨다.",
)
"""Korean sentences of the test set, for a demonstration: 배 is a pear, a ship and a stomach."""
OFTEN = 5
"""How many times training must show a word in a role for valid and test to use it there."""


def rows(split: str) -> list[tuple[str, str]]:
    """The pairs (Korean, English) of a split."""
    return list(_rows(split))


def text(split: str, language: str) -> list[str]:
    """The sentences of a split in one language, for language models."""
    if language not in ("ko", "en"):
        raise UserError(f"miniworld does not speak {language!r}", todo=nearest(language, ("ko", "en")))
    return [row[language == "en"] for row in _rows(split)]


def trees(split: str, language: str, words: bool = False) -> list[str]:
    """The parse trees of the sentences of a split in one language, each on a line, with the words or with XX."""
    if language not in ("ko", "en"):
        raise UserError(f"miniworld does not speak {language!r}", todo=nearest(language, ("ko", "en")))
    found = [tree_of(each, language) for each in scenes(split)]
    return [tree.linear_with_words if words else tree.linear for tree in found]


def scene(split: str, number: int) -> Scene:
    """One scene of a split: its sentences, their alignment, and all that is known about them."""
    return scenes(split)[number]


@cache
def scenes(split: str) -> tuple[Scene, ...]:
    """All scenes of a split, no two with the same Korean sentence."""
    if split not in SPLITS:
        raise UserError(f"miniworld has no split {split!r}", todo=nearest(split, SPLITS))
    known = None if split == "train" else familiar()
    found: dict[str, Scene] = {}
    number = Draw(VERSION, list(SPLITS).index(split)).next()
    while len(found) < SPLITS[split]:
        drawn = draw_scene(Draw(number), split)
        if known is None or known.issuperset(forms(drawn)):
            found.setdefault(drawn.korean, drawn)
        number += 1
    return tuple(found.values())


@cache
def familiar() -> frozenset[tuple[str, str]]:
    """The words that are frequent in a role in training, so that only their combinations are new in valid and test."""
    counts = Counter(form for scene in scenes("train") for form in forms(scene))
    return frozenset(form for form, count in counts.items() if count >= OFTEN)


@no_type_check
def forms(scene: Scene) -> Iterator[tuple[str, str]]:
    """Every word of a scene in both languages with its role."""
    for language in ("ko", "en"):
        for words in scene.words(language):
            yield from words


def generate(seed: int, count: int) -> Iterator[tuple[str, str]]:
    """`count` pairs beyond the corpus, possibly repeated; none has a combination reserved for valid or test."""
    key = Draw(VERSION, len(SPLITS), seed).next()
    for number in range(key, key + count):
        drawn = draw_scene(Draw(number), "train")
        yield drawn.korean, drawn.english


def is_grammatical(text: str, language: str) -> bool:
    """Whether a text is a sentence of miniworld: all its words known, in their forms, in order, and sensible."""
    return parse(text, language) is not None


@cache
def fingerprint() -> str:
    """The sha256 of all pairs of all splits."""
    digest = hashlib.sha256()
    for split in SPLITS:
        for korean, english in _rows(split):
            digest.update(f"{split}\t{korean}\t{english}\n".encode())
    return digest.hexdigest()


@cache
def _rows(split: str) -> tuple[tuple[str, str], ...]:
    return tuple((scene.korean, scene.english) for scene in scenes(split))
