"""Similarity pairs of miniworld: the number follows from the sentences, and every part of the scale is used."""

from __future__ import annotations

import hashlib
from collections import Counter

import numpy as np
import pytest

from mallang.data import miniworld
from mallang.data import miniworld_similarity as made
from mallang.data.corpus import Config, open_corpus
from mallang.data.miniworld_views import VIEWS

NAME = "miniworld-similarity"
BY_HAND = {
    ("민수는 어제 빵을 먹었다.", "어제 민수는 빵을 먹었다."): 5.0,
    ("민수는 어제 빵을 먹었다.", "민수는 어제 빵을 먹지 않았다."): 5 * 5 / 6,
    ("민수는 어제 빵을 먹었다.", "민수는 어제 우유를 마셨다."): 5 * 4 / 6,
    ("민수는 어제 빵을 먹었다.", "그 새는 자고 있다."): 5 * 1 / 6,
    ("민수는 어제 빵을 먹었다.", "나는 수영하고 싶지 않다."): 0.0,
}


def pairs(split: str) -> list[tuple[str, ...]]:
    return list(open_corpus(Config(corpus=NAME, columns=list(VIEWS[NAME].columns)), ()).split(split))


def read_score(one: str, other: str, language: str) -> float:
    scenes = [miniworld.parse(text, language) for text in (one, other)]
    (first,), (second,) = (scene.clauses for scene in scenes if scene is not None)
    return made.similarity(first, second)


@pytest.mark.parametrize("texts", BY_HAND)
def test_scores_by_hand(texts: tuple[str, str]) -> None:
    assert read_score(*texts, "ko") == pytest.approx(BY_HAND[texts])
    assert read_score(*texts[::-1], "ko") == pytest.approx(BY_HAND[texts])


@pytest.mark.parametrize("language", ["ko", "en"])
def test_the_number_follows_from_the_text(language: str) -> None:
    place = VIEWS[NAME].columns.index(f"{language}-sentence1")
    for row in pairs("test")[::2]:
        assert f"{read_score(row[place], row[place + 1], language):.1f}" == row[4]


@pytest.mark.parametrize("split", VIEWS[NAME].rows)
def test_the_whole_scale_is_used(split: str) -> None:
    scores = np.array([float(row[4]) for row in pairs(split)])
    assert scores.min() == 0.0 and scores.max() == 5.0
    assert (np.histogram(scores, 5, (0, 5))[0] > 0.05 * len(scores)).all() and scores.std() > 1.2
    assert Counter(row[4] for row in pairs(split)).most_common(1)[0][1] < 0.2 * len(scores)


def test_word_overlap_tells_much_but_not_all() -> None:
    rows = pairs("test")
    for first in (0, 2):
        overlap = [
            len(a & b) / len(a | b) for a, b in ((set(r[first].split()), set(r[first + 1].split())) for r in rows)
        ]
        correlation = np.corrcoef(overlap, [float(row[4]) for row in rows])[0, 1]
        assert 0.5 < correlation < 0.95


def test_pairs_are_different_and_held_out() -> None:
    rows = {split: pairs(split) for split in VIEWS[NAME].rows}
    for split, found in rows.items():
        assert len({row[:2] for row in found}) == len(found) == VIEWS[NAME].rows[split]
        assert all(row[0] != row[1] and row[2] != row[3] for row in found)
    seen = {text for row in rows["train"] for text in row[:2]}
    assert seen.isdisjoint(text for split in ("valid", "test") for row in rows[split] for text in row[:2])


def test_pairs_are_frozen() -> None:
    """Whoever changes a pair changes VERSION, by which prepared data is told apart, and then this sum."""
    lines = "\n".join(cell for row in pairs("test") for cell in row)
    assert (made.VERSION, hashlib.sha256(lines.encode()).hexdigest()[:16]) == (1, "3dc75002c33ade89")
