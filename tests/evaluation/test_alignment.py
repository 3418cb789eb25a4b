from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallang.errors import UserError
from mallang.evaluation.alignment import alignment_scores, error_rate, link_counts, rates, read_links

PLACES = list(itertools.product(range(2), range(2)))
SUBSETS = [frozenset(chosen) for size in range(5) for chosen in itertools.combinations(PLACES, size)]
LINKS = st.sampled_from(SUBSETS)


def by_counting(found, sure, possible):
    """The formulas of Och and Ney, link by link over every place of every sentence."""
    hits = sures = both = links = 0
    for a, s, p in zip(found, sure, possible, strict=True):
        for place in PLACES:
            links += place in a
            sures += place in s
            both += place in a and place in s
            hits += place in a and (place in p or place in s)
    error = 1 - (both + hits) / (links + sures) if links + sures else 0.0
    precision = hits / links if links else float(sures == 0)
    recall = both / sures if sures else 1.0
    f = 2 / (1 / precision + 1 / recall) if precision and recall else 0.0
    return [100 * error, 100 * precision, 100 * recall, 100 * f]


def values(found, sure, possible=None):
    return list(rates(link_counts(found, sure, possible).sum(axis=0).astype(np.float64)))


def test_every_alignment_of_two_by_two_words():
    for found, sure in itertools.product(SUBSETS, SUBSETS):
        scores = values([found], [sure])
        assert scores == pytest.approx(by_counting([found], [sure], [sure]))
        assert scores[0] == pytest.approx(100 - scores[3]) or not sure  # without possible links AER is 1 − F


@given(st.lists(st.tuples(LINKS, LINKS, LINKS), min_size=1, max_size=4))
def test_sure_and_possible_links_of_many_sentences(rows):
    found, sure, possible = (list(column) for column in zip(*rows, strict=True))
    expected = by_counting(found, sure, possible)
    assert values(found, sure, possible) == pytest.approx(expected)
    assert error_rate(found, sure, possible) == pytest.approx(expected[0])
    assert 0 <= expected[0] <= 100


def test_what_it_is_worth_at_the_ends():
    gold = [{(0, 0), (1, 1)}]
    assert values(gold, gold) == [0.0, 100.0, 100.0, 100.0]
    assert values([{(0, 1)}], gold) == [100.0, 0.0, 0.0, 0.0]
    assert values([set()], gold) == [100.0, 0.0, 0.0, 0.0]


def test_a_possible_link_costs_nothing_whether_it_is_found_or_not():
    sure, possible = [{(0, 0)}], [{(0, 0), (1, 1)}]
    assert error_rate([{(0, 0)}], sure, possible) == error_rate([{(0, 0), (1, 1)}], sure, possible) == 0.0
    assert error_rate([{(0, 0), (1, 0)}], sure, possible) == pytest.approx(100 / 3)


def test_the_interval_surrounds_the_value_and_the_signature_says_how():
    found = [{(0, 0), (1, place % 2)} for place in range(50)]
    gold = [{(0, 0), (1, 1)}] * 50
    error, *others = alignment_scores(found, gold, how="argmax")
    assert [error.value, *(score.value for score in others)] == values(found, gold)
    assert error.name == "AER" and error.value == pytest.approx(25.0)
    assert error.low < error.value < error.high and error.count == 50
    assert error.signature == "links:sure|argmax"


def test_sentences_must_be_as_many_on_both_sides():
    with pytest.raises(ValueError, match="every sentence"):
        alignment_scores([set()], [])


def test_links_are_read_from_a_file(tmp_path):
    path = tmp_path / "links.txt"
    path.write_text("0-0 2-1 1?2\n\n3p4\n")
    assert read_links(path) == ([{(0, 0), (2, 1)}, set(), set()], [{(0, 0), (2, 1), (1, 2)}, set(), {(3, 4)}])
    path.write_text("0-0\n1:2\n")
    with pytest.raises(UserError, match="'1:2' is no link") as caught:
        read_links(path)
    assert caught.value.where == f"{path}, line 2"
