"""The longest matches of a text in a corpus, against looking everywhere."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.evaluation.matching import Matches

IDS = st.lists(st.integers(-1, 2), max_size=24)
LONG = st.lists(st.integers(0, 1), max_size=6).map(lambda part: part * 4)
"""Much that repeats itself."""


@settings(deadline=None)
@given(corpus=IDS | LONG, text=IDS | LONG)
def test_lengths_and_places_are_those_of_looking_everywhere(corpus: list[int], text: list[int]) -> None:
    found = Matches(np.array(corpus, dtype=np.int64), np.array(text, dtype=np.int64))
    assert len(found.lengths) == len(text)
    for start in range(len(text)):
        length = 0
        while start + length < len(text) and places(corpus, text[start : start + length + 1]):
            length += 1
        assert found.lengths[start] == length
        for part in range(1, length + 1):
            assert found.places(start, part).tolist() == places(corpus, text[start : start + part])


def test_a_text_that_is_the_corpus() -> None:
    ids = np.random.default_rng(1).integers(0, 50, 3000)
    found = Matches(ids, ids)
    assert found.lengths.tolist() == list(range(3000, 0, -1))
    assert found.places(0, 3000).tolist() == [0]


def places(corpus: list[int], part: list[int]) -> list[int]:
    """Where a part stands; a negative id is nowhere."""
    if min(part) < 0:
        return []
    return [place for place in range(len(corpus)) if corpus[place : place + len(part)] == part]
