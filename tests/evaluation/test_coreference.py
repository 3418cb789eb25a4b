"""Scores of coreference: worked cases of the papers and the reference scorer, and definitions written out again."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from mallang.errors import UserError
from mallang.evaluation.coreference import (
    best_matching,
    conll_f1,
    coreference_scores,
    counts,
    renamed,
    shares,
    without_singletons,
)


def of(text):
    """Clusters out of `ab c`: one letter per mention."""
    return [list(cluster) for cluster in text.split()]


def recall_and_precision(output, gold, measure):
    sums = counts(of(output), of(gold))
    recall, precision, _ = shares(sums, ("mention", "MUC", "B3", "CEAFe").index(measure))
    return pytest.approx((recall, precision), abs=1e-9)


# Response, key, recall and precision of each measure.
@pytest.mark.parametrize(
    ("output", "gold", "expected"),
    [
        # The cases of the reference scorer (Pradhan et al. 2014), with the values that its tests give for CEAFe.
        ("a bc def", "a bc def", {"MUC": (1, 1), "B3": (1, 1), "CEAFe": (1, 1)}),
        ("a de", "a bc def", {"MUC": (1 / 3, 1), "B3": ((1 + 4 / 3) / 6, 1), "CEAFe": (0.6, 0.9)}),
        (
            "a bcx defy z", "a bc def",
            {"MUC": (1, 3 / 5), "B3": (1, (1 + 4 / 3 + 9 / 4) / 9), "CEAFe": (0.8857142857, 0.6642857143)},
        ),
        (
            "a bcx dy z", "a bc def",
            {"MUC": (1 / 3, 1 / 3), "B3": ((3 + 1 / 3) / 6, (1 + 4 / 3 + 1 / 2) / 7), "CEAFe": (0.7333333333, 0.55)},
        ),
        ("a bcxB dy z", "a bc def", {"CEAFe": (0.6888888889, 0.5166666667)}),
        ("a bcx dy Bz", "a bc def", {"CEAFe": (0.7333333333, 0.55)}),
        # Figure 1 of Luo 2005: a key of 5, 2 and 5, and responses that merge, split or join all of it.
        (
            "12345 6789ABC", "12345 67 89ABC",
            {"MUC": (1, 9 / 10), "B3": (1, (5 + (4 + 25) / 7) / 12), "CEAFe": ((1 + 10 / 12) / 3, (1 + 10 / 12) / 2)},
        ),
        (
            "1234589ABC 67", "12345 67 89ABC",
            {"MUC": (1, 9 / 10), "B3": (1, (2 + 50 / 10) / 12), "CEAFe": ((1 + 10 / 15) / 3, (1 + 10 / 15) / 2)},
        ),
        (
            "123456789ABC", "12345 67 89ABC",
            {"MUC": (1, 9 / 11), "B3": (1, (25 + 4 + 25) / 12 / 12), "CEAFe": (10 / 17 / 3, 10 / 17)},
        ),
        (
            "1 2 3 4 5 6 7 8 9 A B C", "12345 67 89ABC",
            {"MUC": (0, 0), "B3": (3 / 12, 1), "CEAFe": ((1 / 3 + 2 / 3 + 1 / 3) / 3, (1 / 3 + 2 / 3 + 1 / 3) / 12)},
        ),
        # Vilain et al. 1995, table 1: a link too many, and a cluster in two parts.
        ("ab cd", "abcd", {"MUC": (2 / 3, 1)}),
        ("abcd", "ab cd", {"MUC": (1, 2 / 3)}),
        # Moosavi and Strube 2016 (LEA), the running example: key {a b c} {d e f g}, response {a b} {c d} {f g h i}.
        (
            "ab cd fghi", "abc defg",
            {"MUC": (2 / 5, 2 / 5), "B3": (((4 + 1) / 3 + (1 + 4) / 4) / 7, (4 / 2 + 2 / 2 + 4 / 4) / 8),
             "CEAFe": ((4 / 5 + 4 / 8) / 2, (4 / 5 + 4 / 8) / 3)},
        ),
        # Nothing in common, and nothing at all.
        ("ab", "cd", {"MUC": (0, 0), "B3": (0, 0), "CEAFe": (0, 0), "mention": (0, 0)}),
        ("", "ab", {"MUC": (0, 0), "B3": (0, 0), "CEAFe": (0, 0)}),
    ],
)  # fmt: skip
def test_worked_cases(output, gold, expected):
    for measure, values in expected.items():
        assert recall_and_precision(output, gold, measure) == values, measure


def test_what_is_told_of_documents():
    outputs, golds = [of("ab c"), of("xy")], [of("abc"), of("xy z")]
    scores = coreference_scores(outputs, golds)
    # Two links of the three in the gold clusters, pooled; a mean over documents would be 3/4.
    assert scores["MUC recall"].value == pytest.approx(100 * 2 / 3) and scores["MUC precision"].value == 100
    assert scores["mention F1"].value == pytest.approx(100 * 2 * 5 / (5 + 6))
    mean = np.mean([scores[f"{name} F1"].value for name in ("MUC", "B3", "CEAFe")])
    assert scores["CoNLL F1"].value == pytest.approx(mean)
    assert scores["CoNLL F1"].low <= scores["CoNLL F1"].value <= scores["CoNLL F1"].high
    assert "CEAF:phi4" in scores["CoNLL F1"].signature and scores["CoNLL F1"].count == 2
    assert without_singletons(of("ab c")) == [["a", "b"]]
    (told,) = renamed([scores["MUC F1"]], "without singletons")
    assert told.name == "MUC F1, without singletons" and told.signature.endswith("|without singletons")


def test_wrong_input_is_refused():
    with pytest.raises(UserError, match="1 documents with clusters, but 2"):
        coreference_scores([[]], [[], []])
    with pytest.raises(UserError, match="no documents"):
        coreference_scores([], [])
    with pytest.raises(ValueError, match="two clusters"):
        counts(of("ab bc"), of("a"))


def clusterings():
    """Random clusters of some of nine mentions: each mention in one of them, or in none."""
    return st.lists(st.integers(0, 4), min_size=9, max_size=9).map(
        lambda owners: [
            [mention for mention, owner in enumerate(owners) if owner == cluster] for cluster in sorted({*owners} - {0})
        ]
    )


def by_definition(output, gold):
    """MUC by links of spanning chains, B³ mention by mention, CEAFe by all matchings: no code of the scorer's."""

    def muc(key, response):
        missing, links = 0, 0
        for cluster in key:
            parts = {frozenset(r) & frozenset(cluster) for r in response} - {frozenset()}
            covered = frozenset().union(*parts) if parts else frozenset()
            missing += len(parts) + len(set(cluster) - covered) - 1
            links += len(cluster) - 1
        return (links - missing) / links if links else 0.0

    def b3(key, response):
        shares = []
        for cluster in key:
            for mention in cluster:
                other = next((set(r) for r in response if mention in r), set())
                shares.append(len(other & set(cluster)) / len(cluster))
        return sum(shares) / len(shares) if shares else 0.0

    phi = np.array([[2 * len({*k} & {*r}) / (len(k) + len(r)) for r in output] for k in gold]).reshape(
        len(gold), len(output)
    )
    rows, columns = linear_sum_assignment(-phi)
    similarity = float(phi[rows, columns].sum())
    values = []
    for recall, precision in (
        (muc(gold, output), muc(output, gold)),
        (b3(gold, output), b3(output, gold)),
        (similarity / len(gold) if gold else 0.0, similarity / len(output) if output else 0.0),
    ):
        values.append(2 * recall * precision / (recall + precision) if recall + precision else 0.0)
    return values


@settings(deadline=None, max_examples=200)
@given(output=clusterings(), gold=clusterings())
def test_scores_equal_their_definitions(output, gold):
    sums = counts(output, gold)
    found = [shares(sums, place)[2] for place in (1, 2, 3)]
    assert found == pytest.approx(by_definition(output, gold), abs=1e-9)
    assert conll_f1(sums) == pytest.approx(100 * np.mean(found))
    assert all(0 <= value <= 1 + 1e-9 for value in found)


@settings(deadline=None, max_examples=50)
@given(gold=clusterings(), data=st.data())
def test_order_does_not_matter_and_equal_clusters_are_right(gold, data):
    order = [data.draw(st.permutations(cluster)) for cluster in data.draw(st.permutations(gold))]
    sums = counts(order, gold)
    right = shares(sums, 0)[0]
    assert right == (1.0 if gold else 0.0) and shares(sums, 2)[2] == pytest.approx(right)
    assert shares(sums, 3)[2] == pytest.approx(right)


@settings(deadline=None, max_examples=100)
@given(
    shape=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    values=st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), min_size=16, max_size=16),
)
def test_the_best_matching_is_that_of_all_matchings(shape, values):
    rows, columns = shape
    weights = np.array(values[: rows * columns]).reshape(shape)
    few, many = sorted(shape)
    wide = weights if rows <= columns else weights.T
    best = max(sum(wide[i, j] for i, j in enumerate(order)) for order in permutations(range(many), few))
    assert best_matching(weights) == pytest.approx(best)
    assert best_matching(weights) == pytest.approx(weights[linear_sum_assignment(-weights)].sum())


def test_muc_counts_links_of_any_chain():
    """A cluster of n has n − 1 links, whichever of its pairs they are."""
    sums = counts(of("abcd"), of("abcd"))
    assert sums[4:8].tolist() == [3, 3, 3, 3] and len([*combinations("abcd", 2)]) == 6
