"""Minimal pairs: one sentence of miniworld, and one that is none for a single word."""

from __future__ import annotations

from collections import Counter

import pytest

from mallang.data import miniworld
from mallang.data.miniworld_pairs import KINDS, minimal_pairs
from mallang.errors import UserError
from mallang.text.hangul import has_final


@pytest.mark.parametrize("language", ["ko", "en"])
def test_one_is_grammatical_and_differs_in_one_word(language: str) -> None:
    pairs = minimal_pairs("test", language)
    sentences = set(miniworld.text("test", language))
    counts = Counter(pair.kind for pair in pairs)
    assert set(counts) == set(KINDS[language]) and min(counts.values()) > 80
    assert len({pair.better for pair in pairs}) == len(pairs) > 500
    for pair in pairs:
        assert pair.better in sentences
        assert not miniworld.is_grammatical(pair.worse, language)
        words = list(zip(pair.better.split(" "), pair.worse.split(" "), strict=True))
        assert len([1 for better, worse in words if better != worse]) == 1


def test_particles_follow_the_last_sound() -> None:
    for better, worse, kind in minimal_pairs("test", "ko"):
        right, wrong = next(pair for pair in zip(better.split(), worse.split(), strict=True) if pair[0] != pair[1])
        place = next(place for place, (here, there) in enumerate(zip(right, wrong, strict=True)) if here != there)
        assert {right[place], wrong[place]} == set(kind)
        assert has_final(right[:place]) == (right[place] == kind[0])


def test_english_forms_that_differ() -> None:
    said = {pair[:2] for split in ("valid", "test") for pair in minimal_pairs(split, "en")}
    changed = {
        next(pair for pair in zip(better.split(), worse.split(), strict=True) if pair[0] != pair[1])
        for better, worse in said
    }
    assert {("is", "are"), ("Are", "Is"), ("likes", "like"), ("like", "likes"), ("a", "an"), ("does", "do")} <= changed
    assert not {("read", "reads"), ("reads", "read"), ("to", "tos")} & changed


def test_other_languages_are_refused() -> None:
    with pytest.raises(UserError, match="known: en, ko"):
        minimal_pairs("test", "xyz")
