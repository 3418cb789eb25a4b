from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.errors import UserError
from mallang.evaluation.bag_of_words import (
    arithmetic,
    bag_of_words,
    count_words,
    geometric,
    harmonic,
    word_f_statistics,
)
from mallang.evaluation.significance import paired_bootstrap

SHARES = st.floats(0, 1)
TEXTS = st.lists(st.lists(st.sampled_from("abcd"), max_size=7).map(" ".join), min_size=1, max_size=5)


def test_the_words_of_a_song() -> None:
    """I love you, against: Oh I love you. All three words are right, of four; word by word none would be."""
    scores = bag_of_words(["I love you"], ["Oh I love you"])
    assert scores["precision"].value == pytest.approx(100)
    assert scores["recall"].value == pytest.approx(75)
    assert scores["F"].value == pytest.approx(100 * 2 * 0.75 / 1.75)
    song = bag_of_words(["나는 이 노래를 많이 사랑한다"], ["나는 이 영화를 많이 사랑한다"])
    assert [score.value for score in song.values()] == pytest.approx([80, 80, 80])


@given(hypotheses=TEXTS, references=TEXTS)
@settings(deadline=None, max_examples=40)
def test_right_words_are_those_that_can_be_paired(hypotheses: list[str], references: list[str]) -> None:
    """Words are crossed out in the reference one by one; no order of doing so finds more."""
    pairs = list(zip(hypotheses, references, strict=False))
    expected = []
    for hypothesis, reference in pairs:
        left, right = reference.split(), 0
        for word in hypothesis.split():
            if word in left:
                left.remove(word)
                right += 1
        expected.append([right, len(hypothesis.split()), len(reference.split())])
    table = count_words([pair[0] for pair in pairs], [pair[1] for pair in pairs], "none")
    assert table.tolist() == expected


@given(hypotheses=TEXTS)
@settings(deadline=None, max_examples=10)
def test_precision_is_the_first_one_of_bleu(hypotheses: list[str]) -> None:
    references = ["a b c d a"] * len(hypotheses)
    theirs = sacrebleu.BLEU(tokenize="none", smooth_method="none").corpus_score(hypotheses, [references])
    table = count_words(hypotheses, references, "none").sum(axis=0)
    assert table.tolist() == [theirs.counts[0], theirs.sys_len, 5 * len(hypotheses)]


def test_words_of_all_sentences_are_counted_together() -> None:
    scores = bag_of_words(["a b c d", "x"], ["a b c d", "y z w"])
    assert scores["precision"].value == pytest.approx(100 * 4 / 5)
    assert scores["recall"].value == pytest.approx(100 * 4 / 7)
    assert scores["F"].value == pytest.approx(100 * 2 * 4 / (5 + 7))
    assert scores["F"].count == 2 and scores["F"].low is not None and scores["F"].high is not None
    assert scores["F"].low <= scores["F"].value <= scores["F"].high


def test_the_best_of_several_references_counts() -> None:
    scores = bag_of_words(["the cat sat"], [["a dog ran far away", "the cat sat down", "the cat"]])
    assert scores["precision"].value == pytest.approx(100) and scores["recall"].value == pytest.approx(75)
    assert scores["F"].signature.startswith("nrefs:3|")


def test_the_signature_names_the_tokenization() -> None:
    scores = bag_of_words(["Hello, you."], ["hello , you ."], lowercase=True)
    assert scores["F"].value == pytest.approx(100)
    assert scores["F"].signature == "nrefs:1|bs:1000|seed:12345|case:lc|tok:13a|count:clipped"
    assert bag_of_words(["Hello, you."], ["hello , you ."], "none")["F"].value == 0
    assert "tok:none" in bag_of_words(["a"], ["a"], "none")["F"].signature


def test_nothing_is_right_where_there_is_nothing() -> None:
    for pair in (("", "a"), ("a", ""), ("", ""), ("a", "b")):
        assert [score.value for score in bag_of_words([pair[0]], [pair[1]]).values()] == [0, 0, 0]
    with pytest.raises(UserError, match="no sentence"):
        bag_of_words([], [])
    with pytest.raises(UserError, match="cannot tokenize"):
        bag_of_words(["a"], ["a"], "13")


@given(precision=SHARES, recall=SHARES)
def test_arithmetic_geometric_harmonic(precision: float, recall: float) -> None:
    means = [mean(precision, recall) for mean in (arithmetic, geometric, harmonic)]
    assert means[0] >= means[1] - 1e-12 and means[1] >= means[2] - 1e-12
    assert min(precision, recall) - 1e-12 <= means[2] and means[0] <= max(precision, recall) + 1e-12


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_means_of_equal_numbers_are_that_number(share: float) -> None:
    assert [mean(share, share) for mean in (arithmetic, geometric, harmonic)] == [share] * 3


def test_two_systems_can_be_compared_by_it() -> None:
    references = ["a b c d"] * 30
    found = paired_bootstrap(["a b c d"] * 30, ["a b x d"] * 30, references, word_f_statistics)
    assert (found.metric, found.first, found.second) == ("word F", 100, 75) and found.low == 25


def test_clipping_by_enumeration() -> None:
    """Every pair of short texts over two letters: right words = the smaller of both counts, letter by letter."""
    texts = ["".join(letters) for size in range(4) for letters in itertools.product("ab", repeat=size)]
    pairs = [(first, second) for first in texts for second in texts]
    table = count_words([" ".join(first) for first, _ in pairs], [" ".join(second) for _, second in pairs], "none")
    expected = [sum(min(first.count(letter), second.count(letter)) for letter in "ab") for first, second in pairs]
    assert np.array_equal(table[:, 0], expected)
    assert Counter(table[:, 1].tolist()) == Counter(len(first) for first, _ in pairs)
