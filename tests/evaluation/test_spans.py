"""Spans against the tables of conlleval by enumeration, against seqeval and nervaluate, and against tags by hand."""

from __future__ import annotations

import itertools
import re
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nervaluate.evaluator import Evaluator

from mallang.errors import UserError
from mallang.evaluation.significance import paired_bootstrap
from mallang.evaluation.spans import (
    Span,
    convert_tags,
    count_spans,
    detect_scheme,
    read_spans,
    span_scores,
    span_scores_by_type,
    span_statistics,
    tag_set,
    violations,
    write_spans,
)

SCHEMES = ["iob1", "iob2", "bioes"]
every_scheme = pytest.mark.parametrize("scheme", SCHEMES)
some = settings(deadline=None, max_examples=60)
ANY = tag_set(["A", "C", "D-E"], "bioes")
BIO = tag_set(["A", "C"], "iob2")

ENDS = set("BB BS BO IB IS IO EB EI EE ES EO SB SI SE SS SO".split())  # noqa: SIM905
STARTS = set("OB OI OE OS BB BS IB IS EB EI EE ES SB SI SE SS".split())  # noqa: SIM905
"""Between which prefixes a chunk ends or starts in conlleval, whatever their types; others do if the types differ."""


def sentences(tags: list[str]) -> st.SearchStrategy[list[list[str]]]:
    return st.lists(st.lists(st.sampled_from(tags), max_size=7), min_size=1, max_size=5)


def chunks(tags: list[str]) -> list[tuple[str, int, int]]:
    """The chunks of conlleval: every pair of ends is tried."""
    padded = ["O", *tags, "O"]
    between = [(one[0] + two[0], one[2:] != two[2:]) for one, two in itertools.pairwise(padded)]
    starts = [pair in STARTS or (differ and pair[1] != "O") for pair, differ in between]
    ends = [pair in ENDS or (differ and pair[0] != "O") for pair, differ in between]
    return [
        (tags[start][2:], start, end)
        for start, end in itertools.combinations(range(len(tags) + 1), 2)
        if starts[start] and ends[end] and not any(starts[start + 1 : end]) and not any(ends[start + 1 : end])
        and "O" not in tags[start:end]
    ]  # fmt: skip


@given(st.lists(st.sampled_from(ANY), max_size=8))
@some
def test_the_lenient_reading_is_that_of_conlleval(tags):
    assert read_spans(tags) == chunks(tags)
    assert read_spans(" ".join(tags)) == chunks(tags)


def test_the_lenient_reading_by_enumeration():
    for tags in itertools.product(["O", "B-A", "I-A", "E-A", "S-A", "I-C"], repeat=4):
        assert read_spans(tags) == chunks(list(tags)), tags


@every_scheme
def test_the_strict_reading_finds_what_a_pattern_finds(scheme):
    """A letter per tag: a, i, e, s for those of type A, o for O."""
    letters = {"O": "o", "B-A": "b", "I-A": "i"} | ({"E-A": "e", "S-A": "s"} if scheme == "bioes" else {})
    pattern = {"iob1": r"(?<![bi])ii*|(?<=[bi])bi*", "iob2": "bi*", "bioes": "bi*e|s"}[scheme]
    for tags in itertools.product(letters, repeat=5):
        text = "".join(letters[tag] for tag in tags)
        expected = [Span("A", *found.span()) for found in re.finditer(pattern, text)]
        assert read_spans(tags, strict=scheme) == expected, tags
    assert read_spans(["B-A", "I-C"], "iob2") == [Span("A", 0, 1)]
    assert read_spans(["B-A", "E-C"], "bioes") == []
    assert read_spans(["I-A", "B-C", "I-C"], "iob1") == [Span("A", 0, 1)]


def test_all_schemes_spell_the_same_spans():
    spans = [Span("A", 0, 1), Span("A", 1, 3), Span("C", 3, 4), Span("A", 5, 8)]
    spelled = {
        "iob1": "I-A B-A I-A I-C O I-A I-A I-A O",
        "iob2": "B-A B-A I-A B-C O B-A I-A I-A O",
        "bioes": "S-A B-A E-A S-C O B-A I-A E-A O",
    }
    for scheme, tags in spelled.items():
        assert write_spans(spans, 9, scheme) == tags.split()
        assert read_spans(tags) == read_spans(tags, strict=scheme) == spans
        assert detect_scheme([tags]) == scheme
        for other in SCHEMES:
            assert convert_tags(tags, other) == spelled[other].split()
            assert (violations(tags, other) == []) == (other == scheme)


@every_scheme
@given(st.lists(st.sampled_from(ANY), max_size=8))
@some
def test_converted_tags_are_well_formed_and_spell_the_same_spans(scheme, tags):
    converted = convert_tags(tags, scheme)
    assert violations(converted, scheme) == []
    assert read_spans(converted) == read_spans(converted, strict=scheme) == read_spans(tags)
    assert convert_tags(converted, scheme) == converted


@every_scheme
@given(sentences(BIO))
@some
def test_the_scheme_of_well_formed_tags_is_found(scheme, rows):
    converted = [convert_tags(row, scheme) for row in rows]
    assert detect_scheme(converted) == (scheme if any(read_spans(row) for row in rows) else None)


def test_the_scheme_of_other_tags():
    assert detect_scheme([["DT", "NN"], ["O"]]) is None
    assert detect_scheme([["O", "O"], []]) is None
    assert detect_scheme([["B-A"], ["B-A", "I-A"], ["I-A"]]) == "iob2"  # one mistake
    assert detect_scheme([["I-A"], ["I-A", "I-A"], ["B-A"]]) == "iob1"
    assert detect_scheme([["B-A", "E-A"], ["B-A", "I-A"]]) == "bioes"
    assert detect_scheme([["B", "I", "O"]]) == "iob2"


def test_the_words_with_tags_that_are_not_allowed():
    assert violations("O I-A B-A I-C", "iob2") == [1, 3]
    assert violations("B-A I-A B-C", "iob1") == [0, 2]
    assert violations("B-A O S-A I-A", "bioes") == [1, 3, 4]
    assert violations("S-A", "iob2") == [0]
    assert violations("", "iob2") == []


def test_tags_without_types():
    assert read_spans(["B", "I", "O", "I"]) == [Span("", 0, 2), Span("", 3, 4)]
    assert convert_tags(["B", "I", "O"], "bioes") == ["B", "E", "O"]
    assert tag_set([""], "iob2") == ["O", "B", "I"]
    assert tag_set(["A", "C"], "bioes") == ["O", "B-A", "I-A", "E-A", "S-A", "B-C", "I-C", "E-C", "S-C"]


@pytest.mark.parametrize("spans", [[Span("A", 0, 2), Span("C", 1, 3)], [Span("A", 2, 2)], [Span("A", 3, 5)]])
def test_spans_that_cannot_be_written(spans):
    with pytest.raises(UserError, match="overlaps"):
        write_spans(spans, 4, "iob2")


# ---- scores ----


@st.composite
def tagged(draw: st.DrawFn, tags: list[str] = ANY) -> tuple[list[list[str]], list[list[str]]]:
    """Gold tags, and outputs in which some of them are others."""
    golds = draw(sentences(tags))
    change = st.one_of(st.none(), st.none(), st.sampled_from(tags))
    return [[draw(change) or tag for tag in row] for row in golds], golds


def shares(right: float, ours: float, gold: float) -> list[float]:
    precision, recall = right / ours if ours else 0.0, right / gold if gold else 0.0
    return [100 * precision, 100 * recall, 200 * right / (ours + gold) if ours + gold else 0.0]


@given(tagged())
@settings(deadline=None, max_examples=8)
def test_scores_are_those_of_spans_compared_one_by_one(both):
    outputs, golds = both
    found = {"ours": [], "gold": []}
    for name, rows in (("ours", outputs), ("gold", golds)):
        for number, row in enumerate(rows):
            found[name] += [(number, *chunk) for chunk in chunks(row)]
    types = sorted({chunk[1] for chunk in found["ours"] + found["gold"]})

    def compare(kinds):
        ours, gold = ([chunk for chunk in found[name] if chunk[1] in kinds] for name in ("ours", "gold"))
        return shares(sum(chunk in gold for chunk in ours), len(ours), len(gold)), len(gold)

    scores = span_scores(outputs, golds)
    assert [scores[name].value for name in ("precision", "recall", "F1")] == pytest.approx(compare(types)[0])
    by_type = span_scores_by_type(outputs, golds)
    assert list(by_type) == types
    for kind, own in by_type.items():
        values, support = compare([kind])
        assert [own.precision.value, own.recall.value, own.f1.value] == pytest.approx(values)
        assert own.support == support
    mean = sum(compare([kind])[0][2] for kind in types) / len(types) if types else 0
    assert scores["macro F1"].value == pytest.approx(mean)
    equal = [one == two for ours, gold in zip(outputs, golds, strict=True) for one, two in zip(ours, gold, strict=True)]
    assert scores["accuracy"].value == pytest.approx(100 * sum(equal) / len(equal) if equal else 0)


@given(tagged(BIO))
@some
def test_scores_are_those_of_nervaluate(both):
    outputs, golds = both
    theirs = Evaluator(golds, outputs, tags=["A", "C"], loader="list").evaluate()["overall"]["strict"]
    right, ours, gold = count_spans(outputs, golds).table.sum(axis=(0, 1)).tolist()
    assert right == theirs.correct
    assert shares(right, ours, gold) == pytest.approx([100 * theirs.precision, 100 * theirs.recall, 100 * theirs.f1])


@given(tagged())
@some
def test_scores_are_those_of_seqeval(both):
    metrics = pytest.importorskip("seqeval.metrics")
    outputs, golds = both
    with warnings.catch_warnings():  # it warns of tags in no scheme, and where there is no span
        warnings.simplefilter("ignore")
        names = (metrics.precision_score, metrics.recall_score, metrics.f1_score)
        theirs = [100 * float(score(golds, outputs, zero_division=0)) for score in names]
    right, ours, gold = count_spans(outputs, golds).table.sum(axis=(0, 1)).tolist()
    assert shares(right, ours, gold) == pytest.approx(theirs)


def test_a_known_report():
    """The example of seqeval's page, with the values that it prints."""
    golds = ["O O O B-MISC I-MISC I-MISC O", "B-PER I-PER O"]
    outputs = ["O O B-MISC I-MISC I-MISC I-MISC O", "B-PER I-PER O"]
    scores = span_scores(outputs, golds)
    assert scores["F1"].value == 50.0 and scores["macro F1"].value == 50.0 and scores["accuracy"].value == 80.0
    assert {kind: (own.f1.value, own.support) for kind, own in span_scores_by_type(outputs, golds).items()} == {
        "MISC": (0.0, 1), "PER": (100.0, 1),
    }  # fmt: skip
    assert scores["F1"].count == 2
    assert scores["F1"].signature == "bs:1000|seed:12345|spans:exact|reading:conlleval|average:micro"


def test_a_strict_score_says_so():
    golds, outputs = [["B-A", "O", "B-A"]], [["B-A", "O", "I-A"]]
    assert span_scores(outputs, golds)["F1"].value == 100.0
    strict = span_scores(outputs, golds, strict="iob2")["F1"]
    assert strict.value == pytest.approx(200 / 3) and "reading:strict|scheme:iob2" in strict.signature


def test_intervals_hold_the_value_and_two_systems_are_compared():
    random = np.random.default_rng(1)
    golds = [["B-A", "I-A", "O", "B-C"] for _ in range(60)]
    outputs = [["B-A", "I-A" if random.random() < 0.7 else "O", "O", "B-C"] for _ in range(60)]
    score = span_scores(outputs, golds)["F1"]
    assert score.low < score.value < score.high and score.high - score.low < 30
    joined = [" ".join(row) for row in outputs], [" ".join(row) for row in golds]
    compared = paired_bootstrap(joined[1], *joined, metric=span_statistics)
    assert compared.p_value < 0.05 and compared.second == score.value


def test_what_cannot_be_compared():
    with pytest.raises(UserError, match="sentence 2 has 1 tags, but 2 gold tags"):
        span_scores([["O"], ["O"]], [["O"], ["O", "O"]])
    with pytest.raises(UserError, match="1 tagged sentences, but 2"):
        span_scores([["O"]], [["O"], ["O"]])
    with pytest.raises(UserError, match="no sentences"):
        span_scores([], [])
