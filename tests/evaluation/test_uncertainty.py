"""What to label next: margins and entropies against explicit loops, and no two texts that are alike."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.evaluation.label_predictions import LabelPredictions
from mallang.evaluation.uncertainty import ALIKE, certainty, choose_diverse, trigrams

PROBABILITIES = np.array([[0.9, 0.05, 0.05], [0.4, 0.35, 0.25], [0.5, 0.49, 0.01], [0.34, 0.33, 0.33]])


def test_the_closest_decisions_are_the_least_sure():
    found = LabelPredictions("single", ("a", "b", "c"), np.log(PROBABILITIES))
    assert certainty(found) == pytest.approx([0.85, 0.05, 0.01, 0.01])
    expected = [1 + sum(share * math.log(share) for share in row) / math.log(3) for row in PROBABILITIES]
    assert certainty(found, "entropy") == pytest.approx(expected)


def test_the_closest_of_several_decisions_counts():
    shares = np.array([[0.9, 0.6], [0.2, 0.95]])
    found = LabelPredictions("multi", ("a", "b"), np.log(shares / (1 - shares)))
    assert certainty(found) == pytest.approx([0.2, 0.6])
    entropy = [-sum(p * math.log2(p) + (1 - p) * math.log2(1 - p) for p in row) / 2 for row in shares]
    assert certainty(found, "entropy") == pytest.approx([1 - each for each in entropy])


def jaccard(one: str, two: str) -> float:
    first, second = trigrams(one), trigrams(two)
    return len(first & second) / len(first | second) if first | second else 1.0


@given(st.lists(st.text("ab 가", max_size=12), max_size=12), st.integers(1, 8))
@settings(deadline=None, max_examples=60)
def test_no_two_chosen_texts_are_alike(texts, count):
    chosen = choose_diverse(texts, range(len(texts)), count)
    expected: list[int] = []
    left_out = 0
    for item, text in enumerate(texts):
        if len(expected) == count:
            break
        if not text.strip():
            continue
        if any(jaccard(text, texts[other]) >= ALIKE for other in expected):
            left_out += 1
        else:
            expected.append(item)
    assert (chosen.items, chosen.alike) == (expected, left_out)


def test_copies_in_other_case_and_spacing_are_alike():
    texts = ["Great film", "great  FILM!", "정말 재미있는 영화", "정말 재미있는 영화다", "bad", ""]
    assert choose_diverse(texts, [1, 0, 2, 3, 4, 5], 9).items == [1, 2, 4]
