"""EM and F1 of answers by hand, and the rules of both data sets on their edge cases."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.errors import UserError
from mallang.evaluation.answers import (
    Rules,
    answer_f1,
    answer_scores,
    best_threshold,
    exact_match,
    korquad_words,
    squad_words,
    units,
)

SQUAD = {
    ("The Denver Broncos", "denver broncos"): (1.0, 1.0),
    ("Denver", "Denver Broncos"): (0.0, 2 / 3),
    ("a cat, and a dog!", "cat and dog"): (1.0, 1.0),
    ("theatre", "the atre"): (0.0, 0.0),  # articles are whole words
    ("10–20", "10-20"): (0.0, 0.0),  # a dash beyond ASCII is a letter, a hyphen is removed
    ("U.S.A.", "usa"): (1.0, 1.0),
    ("cat cat", "cat"): (0.0, 2 / 3),  # words are counted
    ("the", "a"): (1.0, 0.0),  # nothing is left of both
    ("!", "..."): (1.0, 0.0),
    ("", "cat"): (0.0, 0.0),
    ("  New\u00a0York ", "New York"): (1.0, 1.0),
}
KORQUAD = {
    ("서울특별시", "서울"): (0.0, 4 / 7),  # two of five characters, two of two
    ("서울에서", "서울"): (0.0, 4 / 6),  # particles stay
    ("《토지》", "토지"): (1.0, 1.0),
    ("‘토지’(소설)", "토지 소설"): (1.0, 1.0),
    ("토지(소설)", "토지소설"): (0.0, 1.0),  # a bracket is a space, which F1 does not see
    ("1,000명", "1000명"): (1.0, 1.0),
    ("KBS", "kbs"): (1.0, 1.0),
    ("the Beatles", "Beatles"): (0.0, 2 * 7 / (10 + 7)),  # articles are words as others
    ("대한 민국", "대한민국"): (0.0, 1.0),
    ("《》", "."): (1.0, 0.0),  # nothing is left of both
}


@pytest.mark.parametrize("pair", SQUAD)
def test_squad_by_hand(pair: tuple[str, str]) -> None:
    assert (exact_match(pair[0], [pair[1]]), answer_f1(pair[0], [pair[1]])) == pytest.approx(SQUAD[pair])


@pytest.mark.parametrize("pair", KORQUAD)
def test_korquad_by_hand(pair: tuple[str, str]) -> None:
    found = exact_match(pair[0], [pair[1]], "korquad"), answer_f1(pair[0], [pair[1]], "korquad")
    assert found == pytest.approx(KORQUAD[pair])


def test_the_best_of_several_golds_counts() -> None:
    assert answer_f1("Denver Broncos", ["Carolina Panthers", "Broncos", "the Denver Broncos"]) == 1.0
    assert exact_match("Broncos", ["Denver Broncos", "Broncos"]) == 1.0


def test_a_question_without_an_answer_asks_for_none() -> None:
    assert (exact_match("", []), answer_f1("", [])) == (1.0, 1.0)
    assert (exact_match("cat", []), answer_f1("cat", [])) == (0.0, 0.0)


def test_squad2_leaves_out_gold_answers_of_which_nothing_is_left() -> None:
    assert (exact_match("the", ["a"], "squad2"), answer_f1("the", ["a"], "squad2")) == (1.0, 1.0)
    assert answer_f1("the", ["a", "cat"], "squad2") == exact_match("", ["a", "cat"], "squad2") == 0.0
    assert answer_f1("the cat", ["a", "cat"], "squad2") == 1.0


def official_f1(output: str, gold: str) -> float:
    """F1 as the official script of SQuAD 1.1 computes it."""
    prediction_tokens, ground_truth_tokens = squad_words(output), squad_words(gold)
    num_same = sum((Counter(prediction_tokens) & Counter(ground_truth_tokens)).values())
    if num_same == 0:
        return 0.0
    precision, recall = num_same / len(prediction_tokens), num_same / len(ground_truth_tokens)
    return 2 * precision * recall / (precision + recall)


def official_f1_of_squad2(output: str, golds: list[str]) -> float:
    """F1 as the official script of SQuAD 2 computes it, the best of the gold answers."""
    kept = [gold for gold in golds if squad_words(gold)] or [""]
    found = []
    for gold in kept:
        gold_toks, pred_toks = squad_words(gold), squad_words(output)
        empty = not gold_toks or not pred_toks
        found.append(float(gold_toks == pred_toks) if empty else official_f1(output, gold))
    return max(found)


SOME = st.lists(st.sampled_from(["a", "the", "cat", "Dog", "!", "U.S."]), max_size=3).map(" ".join)


@settings(max_examples=200, deadline=None)
@given(SOME, st.lists(SOME, min_size=1, max_size=3))
def test_f1_is_that_of_the_official_scripts(output: str, golds: list[str]) -> None:
    assert answer_f1(output, golds) == pytest.approx(max(official_f1(output, gold) for gold in golds))
    assert answer_f1(output, golds, "squad2") == pytest.approx(official_f1_of_squad2(output, golds))
    assert answer_f1(output, []) == answer_f1(output, [], "squad2") == official_f1_of_squad2(output, [])


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=20), st.text(max_size=20))
def test_f1_is_symmetric_bounded_and_1_for_equals(one: str, other: str) -> None:
    rules: Rules
    for rules in ("squad", "korquad"):
        found = answer_f1(one, [other], rules)
        assert found == answer_f1(other, [one], rules) and 0.0 <= found <= 1.0
        assert exact_match(one, [other], rules) <= found or not units(one, rules)
        assert answer_f1(one, [one], rules) == float(bool(units(one, rules)))


def test_white_space_is_folded() -> None:
    assert squad_words(" A  cat\n sat. ") == ["cat", "sat"]
    assert korquad_words(" 서울  (수도)\n") == ["서울", "수도"]


def test_scores_have_intervals_and_parts() -> None:
    scores = {each.name: each for each in answer_scores(["cat", "dog", ""], [["cat"], ["big dog"], []])}
    assert scores["EM"].value == pytest.approx(200 / 3) and scores["F1"].value == pytest.approx(
        100 * (1 + 2 / 3 + 1) / 3
    )
    assert scores["EM unanswerable"].value == 100.0 and scores["F1 answerable"].count == 2
    assert scores["EM"].low is not None and scores["EM"].signature.startswith("rules:squad|golds:best|bs:")
    assert [each.name for each in answer_scores(["cat"], [["cat"]])] == ["EM", "F1"]


def test_answers_and_questions_belong_together() -> None:
    with pytest.raises(UserError, match="2 answers to 1 questions"):
        answer_scores(["a", "b"], [["a"]])


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans(), st.booleans()), min_size=1, max_size=8))
def test_the_threshold_is_the_best_of_all(rows: list[tuple[int, bool, bool]]) -> None:
    margins, answered, silent = (np.array(column, dtype=float) for column in zip(*rows, strict=True))

    def worth(threshold: float) -> float:
        return float(np.where(margins > threshold, silent, answered).sum())

    found = best_threshold(margins, answered, silent)
    assert worth(found) == max(map(worth, [-10.0, *np.arange(-3.0, 3.5, 0.5), 10.0]))
