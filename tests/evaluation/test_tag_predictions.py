"""Errors of taggers: every span in one pair, kinds by example and by counting, and confusion of types."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.evaluation.spans import Span, count_spans, read_spans
from mallang.evaluation.tag_predictions import (
    NOTHING,
    TagPredictions,
    error_counts,
    kind_of,
    pair_spans,
    tag_errors,
    type_confusion,
)

some = settings(deadline=None, max_examples=60)
TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
both = st.integers(1, 8).flatmap(
    lambda size: st.tuples(*[st.lists(st.sampled_from(TAGS), min_size=size, max_size=size)] * 2)
)


def predictions(pairs, scheme="iob2"):
    outputs, golds = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    words = [[f"w{place}" for place in range(len(gold))] for gold in golds]
    return TagPredictions(words, golds, outputs, [[0.5] * len(each) for each in golds], [{} for _ in golds], scheme)


@given(both)
@some
def test_every_span_is_in_one_pair(tags):
    outputs, golds = read_spans(tags[0]), read_spans(tags[1])
    pairs = pair_spans(outputs, golds)
    assert sorted(gold for gold, _ in pairs if gold) == sorted(golds)
    assert sorted(output for _, output in pairs if output) == sorted(outputs)
    assert {pair[0] for pair in pairs if pair[0] == pair[1]} == set(golds) & set(outputs)
    missing = [gold for gold, output in pairs if output is None]
    spurious = [output for gold, output in pairs if gold is None]
    for gold in missing:  # nothing that overlaps is left to be paired with
        assert not any(one.start < gold.end and gold.start < one.end for one in spurious)


@given(st.lists(both, min_size=1, max_size=5))
@some
def test_counts_follow_from_right_spans(sentences):
    found = predictions(sentences)
    right, ours, golds = count_spans(found.outputs, found.golds).table.sum(axis=(0, 1)).tolist()
    kinds = error_counts(tag_errors(found))
    wrong = sum(count for kind, count in kinds.items() if kind.startswith("wrong"))
    assert golds == right + wrong + kinds.get("missing", 0) and ours == right + wrong + kinds.get("spurious", 0)
    confusion = type_confusion(found)
    table = dict(zip(confusion.classes, confusion.table, strict=True))
    assert confusion.table.sum() == right + sum(kinds.values())
    if NOTHING in table:
        assert table[NOTHING].sum() == kinds.get("spurious", 0) and table[NOTHING][-1] == 0
        assert confusion.table[:, -1].sum() == kinds.get("missing", 0)


@pytest.mark.parametrize(
    ("output", "gold", "kind"),
    [
        (Span("LOC", 0, 2), Span("LOC", 0, 2), None),
        (Span("PER", 0, 2), Span("LOC", 0, 2), "wrong type"),
        (Span("LOC", 1, 2), Span("LOC", 0, 2), "wrong boundary"),
        (Span("PER", 1, 4), Span("LOC", 0, 2), "wrong type and boundary"),
        (None, Span("LOC", 0, 2), "missing"),
        (Span("LOC", 0, 2), None, "spurious"),
    ],
)
def test_kinds(output, gold, kind):
    assert kind_of((gold, output)) == kind
    assert pair_spans([each for each in [output] if each], [each for each in [gold] if each]) == [(gold, output)]


def test_the_best_pair_is_taken_first():
    gold = [Span("LOC", 0, 4), Span("PER", 4, 5)]
    outputs = [Span("LOC", 0, 1), Span("LOC", 1, 4), Span("PER", 4, 5)]
    assert set(pair_spans(outputs, gold)) == {(None, outputs[0]), (gold[0], outputs[1]), (gold[1], outputs[2])}
    mixed = [Span("PER", 0, 2), Span("LOC", 2, 3)]
    assert set(pair_spans(mixed, [Span("LOC", 0, 3)])) == {(None, mixed[0]), (Span("LOC", 0, 3), mixed[1])}


def test_errors_are_sorted_by_confidence():
    golds, outputs = [["B-PER", "O", "B-LOC"], ["O", "O"]], [["B-LOC", "O", "O"], ["B-PER", "I-PER"]]
    shares = [[0.9, 0.8, 0.7], [0.6, 0.5]]
    sure = [{Span("LOC", 0, 1): 0.55}, {Span("PER", 0, 2): 0.95}]
    found = TagPredictions([["a", "b", "c"], ["d", "e"]], golds, outputs, shares, sure, "iob2")
    assert [(each.sentence, each.kind, each.confidence) for each in tag_errors(found)] == [
        (1, "spurious", 0.95), (0, "missing", 0.7), (0, "wrong type", 0.55),
    ]  # fmt: skip
    only = found.take(np.array([False, True]))
    assert [each.kind for each in tag_errors(only)] == ["spurious"] and only.words == [["d", "e"]]


def test_tags_without_spans_are_words():
    found = predictions([(["NN", "VB"], ["NN", "NN"]), (["DT"], ["DT"])], None)
    (error,) = tag_errors(found)
    assert (error.kind, error.gold, error.output) == ("wrong tag", Span("NN", 1, 2), Span("VB", 1, 2))
    confusion = type_confusion(found)
    assert confusion.classes == ("DT", "NN", "VB") and confusion.table.tolist() == [[1, 0, 0], [0, 1, 1], [0, 0, 0]]
