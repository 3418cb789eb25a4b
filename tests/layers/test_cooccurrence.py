"""Co-occurrence counts against explicit loops."""

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layers.test_word_windows import lines_of_words, text_from
from mallang.layers import cooccurrence
from mallang.layers.cooccurrence import cooccurrences


def by_loops(lines, window):
    """Every pair of words of a line, in both directions, a pair at distance d as 1 / d."""
    found = defaultdict(float)
    for line in lines:
        for at, word in enumerate(line):
            for other in range(max(0, at - window), min(len(line), at + window + 1)):
                if other != at:
                    found[word, line[other]] += 1 / abs(other - at)
    return dict(found)


def as_dict(found):
    pairs = list(zip(found.rows.tolist(), found.columns.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    assert found.rows.tolist() == sorted(found.rows.tolist())
    return dict(zip(pairs, found.counts.tolist(), strict=True))


@given(lines_of_words, st.integers(1, 5))
@settings(deadline=None, max_examples=60)
def test_they_are_those_of_a_loop(lines, window):
    found = as_dict(cooccurrences(text_from(lines), window, 12))
    assert found == pytest.approx(by_loops(lines, window))


@pytest.mark.parametrize("pending", [1, 8, 30])
def test_counting_in_parts_changes_nothing(pending, monkeypatch):
    monkeypatch.setattr(cooccurrence, "PENDING", pending)
    lines = [[4, 5, 4, 6, 7, 5, 4], [], [6, 6, 6], [9, 4, 5, 8, 4, 5, 9, 10, 11, 4]]
    assert as_dict(cooccurrences(text_from(lines), 3, 12)) == pytest.approx(by_loops(lines, 3))
