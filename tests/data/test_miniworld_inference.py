"""Inference pairs of miniworld: the labels follow from both sentences, and from neither alone."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest

from mallang.data import miniworld
from mallang.data import miniworld_inference as made
from mallang.data.corpus import Config, open_corpus
from mallang.data.miniworld_scene import Clause
from mallang.data.miniworld_views import VIEWS

NAME = "miniworld-pairs"
COLUMNS = VIEWS[NAME].columns


def pairs(split: str) -> list[tuple[str, ...]]:
    return list(open_corpus(Config(corpus=NAME, columns=list(COLUMNS)), ()).split(split))


def read(text: str, language: str) -> tuple[tuple[object, ...], set[object], bool]:
    """What a sentence states, its modifiers, and whether it is denied."""
    scene = miniworld.parse(text, language)
    assert scene is not None
    (clause,) = scene.clauses
    needed = clause.place if clause.verb.needs in ("goal", "place") else None
    thing = clause.object.noun if clause.object else None
    stated = (clause.verb, clause.tense, clause.subject, thing, clause.recipient, needed)
    return stated, modifiers(clause), clause.negated


def modifiers(clause: Clause) -> set[object]:
    place = None if clause.verb.needs in ("goal", "place") else clause.place
    adjective = clause.object.adjective if clause.object else None
    return {found for found in (clause.time, clause.means, place, adjective) if found}


def oracle(premise: str, hypothesis: str, language: str) -> str:
    """The label by logic: a statement with more modifiers implies the one with fewer, denied the other way around."""
    (one, more, denied), (other, fewer, other_denied) = read(premise, language), read(hypothesis, language)
    if one != other:
        return "neutral"
    if not denied and fewer <= more:  # the hypothesis, affirmed, is certain
        return "contradiction" if other_denied else "entailment"
    if denied and more <= fewer:  # the hypothesis, affirmed, is impossible
        return "entailment" if other_denied else "contradiction"
    return "neutral"


@pytest.mark.parametrize("language", ["ko", "en"])
def test_logic_finds_every_label(language: str) -> None:
    place = COLUMNS.index(f"{language}-premise")
    for row in pairs("test")[:: 1 if language == "ko" else 3]:
        assert oracle(row[place], row[place + 1], language) == row[4], row


def test_a_hypothesis_alone_tells_nothing() -> None:
    for split in VIEWS[NAME].rows:
        for column in (1, 3):
            counts = Counter((is_denied(row[column]), row[4]) for row in pairs(split))
            for denied in (False, True):
                total = sum(counts[denied, label] for label in made.LABELS)
                assert all(0.24 < counts[denied, label] / total < 0.43 for label in made.LABELS), (split, counts)
        lengths = Counter((len(row[1].split()), row[4]) for row in pairs("train"))
        best = sum(max(lengths[n, label] for label in made.LABELS) for n in {n for n, _ in lengths})
        assert best / len(pairs("train")) < 0.4


def is_denied(text: str) -> bool:
    if text.isascii():
        return bool({"not", "cannot"} & set(text.split()))
    return any(word.startswith(("않", "없")) for word in text.split())


@pytest.mark.parametrize("split", VIEWS[NAME].rows)
def test_labels_are_balanced_and_pairs_are_different(split: str) -> None:
    rows = pairs(split)
    counts = Counter(row[4] for row in rows)
    assert set(counts) == set(made.LABELS) and max(counts.values()) - min(counts.values()) <= 1
    assert len({row[:2] for row in rows}) == len(rows) == VIEWS[NAME].rows[split]
    assert all(row[0] != row[1] and row[2] != row[3] for row in rows)


def test_some_neutral_pairs_are_about_something_else() -> None:
    neutral = [row for row in pairs("valid") if row[4] == "neutral"]
    unlike = sum(read(row[2], "en")[0] != read(row[3], "en")[0] for row in neutral[::2])
    assert 0.15 < unlike / len(neutral[::2]) < 0.6


def test_nothing_of_the_test_set_is_stated_in_training() -> None:
    seen = {text for row in pairs("train") for text in row[:2]}
    assert seen.isdisjoint(text for split in ("valid", "test") for row in pairs(split) for text in row[:2])


def test_pairs_are_frozen() -> None:
    """Whoever changes a pair changes VERSION, by which prepared data is told apart, and then this sum."""
    lines = "\n".join(cell for row in pairs("test") for cell in row)
    assert (made.VERSION, hashlib.sha256(lines.encode()).hexdigest()[:16]) == (1, "b230cdf3ab55667a")
