"""What the labels of a classifier or tagger say about it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallang.inspection.label_health import Labels, examine_labels

GOLDS = ["a"] * 10 + ["b"] * 7 + ["c"] * 3


def names(outputs: list[str], golds: list[str] = GOLDS) -> list[str]:
    return [
        finding.name for finding in examine_labels(Labels([f"text {n}" for n in range(len(golds))], outputs, golds))
    ]


@pytest.mark.parametrize(
    ("outputs", "found"),
    [
        (GOLDS, []),
        (["a"] * 20, ["one output"]),
        (["c"] * 20, ["one output"]),
        (["a"] * 19 + ["b"], ["missing labels", "hardly learned"]),
        (["a"] * 10 + ["b"] * 10, ["missing labels"]),
        (["b"] * 10 + ["a"] * 7 + ["c"] * 3, ["hardly learned"]),
        (["c"] * 7 + ["a"] * 3 + ["b"] * 10, ["hardly learned"]),
    ],
)
def test_findings(outputs: list[str], found: list[str]) -> None:
    assert names(outputs) == found


def test_serious_findings_have_an_example_and_numbers() -> None:
    (found,) = examine_labels(Labels([f"text {n}" for n in range(20)], ["a"] * 20, GOLDS))
    assert found.serious and (found.count, found.of) == (20, 20) and found.example == "text 10 → a, and should be b"
    assert "of the gold labels at most 10" in found.what and "label-errors" in found.remedy


@given(st.lists(st.sampled_from("abc"), max_size=30))
def test_right_labels_are_well_and_few_or_equal_ones_are_not_judged(golds: list[str]) -> None:
    assert names(golds, golds) == []
    if len(golds) < 10 or len(set(golds)) < 2:
        assert names(["z"] * len(golds), golds) == []


def test_a_rare_label_may_be_missing() -> None:
    golds = ["a"] * 60 + ["b"] * 58 + ["c"] * 2
    assert names(["a" if gold == "c" else gold for gold in golds], golds) == []


def test_tags_are_those_of_words() -> None:
    rows = [("New\tYork\twon", "B\tI\tO"), ("he\twon", "O\tO")]
    found = Labels.of(rows, ["B I O", "O B"], tags=True)
    assert found == Labels(["New", "York", "won", "he", "won"], ["B", "I", "O", "O", "B"], ["B", "I", "O", "O", "O"])
    assert found.facts() == {"outputs": "3 different labels; the gold labels have 3", "right": "4 of 5 labels"}


def test_the_label_of_a_pair_is_its_last_column() -> None:
    rows = [("a", "b", "same"), ("c", "d", "other")]
    assert Labels.of(rows, ["same", "same"], tags=False).golds == ["same", "other"]
