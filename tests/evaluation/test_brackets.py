from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.data import miniworld
from mallang.errors import UserError
from mallang.evaluation.brackets import brackets, count_brackets, is_tree, read_tree
from mallang.evaluation.quality import are_trees, quality
from mallang.evaluation.significance import paired_bootstrap

GOLD = "(S (NP XX )NP (VP XX (NP XX XX )NP )VP )S"


def every_tree(words: int, labels: str, depth: int = 3) -> Iterator[str]:
    """Every linear tree over so many words with phrases of two or more parts, or a single word."""
    for label in labels:
        for inside in every_inside(words, labels, depth):
            yield f"({label} {inside} ){label}"


def every_inside(words: int, labels: str, depth: int) -> Iterator[str]:
    """Every way to fill a phrase with leaves and phrases."""
    if words == 0:
        return
    for first in range(1, words + 1):
        heads = ["XX"] if first == 1 else []
        if depth > 1 and first < words:
            heads += every_tree(first, labels, depth - 1)
        rests = [""] if first == words else [f" {rest}" for rest in every_inside(words - first, labels, depth)]
        yield from (head + rest for head in heads for rest in rests)


def spans(text: str) -> list[tuple[str, int, int]]:
    """The brackets of a tree, found by cutting the text: for every opening bracket, where its counterpart is."""
    tokens = text.split()
    found = []
    for start, token in enumerate(tokens):
        if token.startswith("("):
            depth = 0
            for end in range(start, len(tokens)):
                depth += tokens[end].startswith("(") - tokens[end].startswith(")")
                if depth == 0:
                    break
            before = sum(leaf == "XX" for leaf in tokens[:start])
            found.append((token[1:], before, before + sum(leaf == "XX" for leaf in tokens[start:end])))
    return found


def test_brackets_by_enumeration() -> None:
    """All trees over three words with the labels A and B, each against each."""
    trees = list(every_tree(3, "AB", depth=2))
    assert len(trees) == len(set(trees)) > 20
    for ours, gold in itertools.product(trees, repeat=2):
        left, right = spans(gold), 0
        for bracket in spans(ours):
            if bracket in left:
                left.remove(bracket)
                right += 1
        expected = [right, len(spans(ours)), len(spans(gold)), 1, 1]
        assert count_brackets([ours], [gold]).tolist() == [expected]


def test_precision_recall_and_f1_by_hand() -> None:
    """The second noun phrase is missed, the verb phrase has another label: S and the first NP are right."""
    scores = brackets(["(S (NP XX )NP (PP XX XX XX )PP )S"], [GOLD])
    assert scores["precision"].value == pytest.approx(100 * 2 / 3)
    assert scores["recall"].value == pytest.approx(100 * 2 / 4)
    assert scores["F1"].value == pytest.approx(100 * 4 / 7)
    assert scores["whole"].value == 100
    assert scores["F1"].signature == "bs:1000|seed:12345|brackets:labelled|root:counted|malformed:mended"
    perfect = brackets([GOLD, GOLD], [GOLD, GOLD])
    assert [score.value for score in perfect.values()] == [100] * 4 and perfect["F1"].name == "bracket F1"


def test_brackets_of_all_sentences_are_counted_together() -> None:
    scores = brackets([GOLD, "(S XX )S"], [GOLD, "(A (B (C XX )C )B )A"])
    assert scores["precision"].value == pytest.approx(100 * 4 / 5)
    assert scores["recall"].value == pytest.approx(100 * 4 / 7)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(S (NP XX )NP (VP XX", [("NP", 0, 1), ("S", 0, 2), ("VP", 1, 2)]),  # closed at the end
        ("XX )NP (VP XX )VP )S", [("NP", 0, 1), ("S", 0, 2), ("VP", 1, 2)]),  # opened at the beginning
        ("(S (NP XX )VP XX )S", [("NP", 0, 1), ("S", 0, 2)]),  # another label closes the innermost all the same
        ("(S XX )S (S XX )S", [("S", 0, 1), ("S", 1, 2)]),  # two trees
        ("(S XX )S XX", [("S", 0, 1)]),  # a word beside the tree
        ("(S (NP )NP XX )S", [("NP", 0, 0), ("S", 0, 1)]),  # a phrase without a word
        ("XX XX", []),
        ("", []),
    ],
)
def test_what_is_no_tree_is_mended(text: str, expected: list[tuple[str, int, int]]) -> None:
    read = read_tree(text)
    assert sorted(read.brackets.elements()) == expected
    assert not is_tree(text)
    gold = "(S (NP XX )NP (VP XX )VP )S"
    right = sum(bracket in expected for bracket in (("S", 0, 2), ("NP", 0, 1), ("VP", 1, 2)))
    assert count_brackets([text], [gold]).tolist() == [[right, len(expected), 3, 0, 1]]


def test_another_number_of_words_is_no_whole_tree() -> None:
    ((right, ours, gold, whole, _),) = count_brackets(["(S (NP XX )NP (VP XX (NP XX )NP )VP )S"], [GOLD]).tolist()
    assert (right, ours, gold, whole) == (1, 4, 4, 0)


def test_what_a_tree_has_twice_must_be_there_twice() -> None:
    assert count_brackets(["(A (A XX )A )A"], ["(A XX )A"]).tolist() == [[1, 2, 1, 1, 1]]
    assert count_brackets(["(A XX )A"], ["(A (A XX )A )A"]).tolist() == [[1, 1, 2, 1, 1]]


def test_trees_with_words_and_plain_closing_brackets_are_read_alike() -> None:
    penn = read_tree("(S (NP Minsu) (VP ate (NP an apple.)))")
    assert penn == read_tree(GOLD) and penn.whole and penn.words == 4


@given(st.lists(st.sampled_from(["(S", "(NP", ")S", ")NP", ")", "XX"]), max_size=12).map(" ".join))
@settings(deadline=None, max_examples=150)
def test_any_output_can_be_scored(text: str) -> None:
    read = read_tree(text)
    tokens = text.split()
    assert read.words == tokens.count("XX")
    assert read.brackets.total() >= sum(token.startswith("(") for token in tokens)
    assert all(0 <= start <= end <= read.words for _, start, end in read.brackets)
    balanced = [*["(S"] * 2, text, *[")S"] * 2]
    assert read_tree(" ".join(balanced)).words == read.words
    if is_tree(text):
        assert sorted(read.brackets.elements()) == sorted(
            (label, start, end) for label, start, end in spans(" ".join(tokens))
        )


@pytest.mark.parametrize("language", ["ko", "en"])
def test_the_trees_of_miniworld_are_trees(language: str) -> None:
    golds = miniworld.trees("test", language)[:200]
    assert are_trees(golds) and not are_trees(miniworld.text("test", language)[:200])
    table = count_brackets(golds, golds)
    assert (table[:, 0] == table[:, 2]).all() and table[:, 3].all()


def test_the_scores_that_suit() -> None:
    assert [score.name for score in quality([GOLD], [GOLD])] == [
        "bracket precision",
        "bracket recall",
        "bracket F1",
        "whole trees",
        "exact match",
    ]
    assert [score.name for score in quality(["a b"], ["a b"])] == ["BLEU", "chrF2", "word F", "exact match"]


def test_two_parsers_can_be_compared() -> None:
    found = paired_bootstrap([GOLD] * 20, ["(S XX XX XX XX )S"] * 20, [GOLD] * 20, "brackets")
    assert (found.metric, found.first, found.second) == ("bracket F1", 100, 40)


def test_what_cannot_be_counted_is_named() -> None:
    with pytest.raises(UserError, match="sentence 2 is not a parse tree: 'hello'"):
        brackets([GOLD, GOLD], [GOLD, "hello"])
    with pytest.raises(UserError, match="sentence 1 has 2 gold trees"):
        brackets([GOLD], [[GOLD, GOLD]])
    with pytest.raises(UserError, match="2 hypotheses but 1 references"):
        brackets([GOLD, GOLD], [GOLD])
