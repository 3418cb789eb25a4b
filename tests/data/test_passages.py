"""Passages: nothing is lost, no passage crosses a document, neighbors are neighbors, and shares are halves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.data.batch import IGNORE
from mallang.data.passages import FOLLOWS, OTHER, Documents, Passages
from mallang.errors import UserError

SHAPES = st.lists(st.lists(st.integers(1, 9), min_size=0, max_size=8), min_size=2, max_size=6)
"""The lengths of the sentences of each document."""


def documents_of(shapes):
    """Documents of these shapes; every token has a number of its own."""
    rows, number = [], 0
    for shape in shapes:
        total = sum(shape)
        rows.append((np.arange(number, number + total), np.cumsum([0, *shape])[:-1] if total else np.zeros(0, int)))
        number += total
    return Documents.from_rows(rows)


def owner(shapes):
    """The number of the document of each token."""
    return np.repeat(np.arange(len(shapes)), [sum(shape) for shape in shapes])


def edges(shapes):
    """Where sentences begin and end."""
    return {0, *np.cumsum([length for shape in shapes for length in shape]).tolist()}


def test_documents_and_sentences_are_what_was_given():
    found = documents_of([[2, 3], [], [4]])
    assert len(found) == 2 and found.bounds.tolist() == [0, 2, 3]
    assert found.begins.tolist() == [0, 2, 5] and found.ends.tolist() == [2, 5, 9]
    again = found.chosen(np.array([1, 0, 1]))
    assert again.begins.tolist() == [5, 0, 2, 5] and again.bounds.tolist() == [0, 1, 3, 4]


def test_a_long_sentence_is_cut_into_parts_of_nearly_equal_length():
    found = documents_of([[10, 3]]).cut(4)
    assert (found.ends - found.begins).tolist() == [3, 3, 4, 3] and found.bounds.tolist() == [0, 4]


@settings(deadline=None)
@given(shapes=SHAPES, most=st.integers(3, 20))
def test_single_passages_hold_every_token_once_and_as_many_sentences_as_fit(shapes, most):
    if not any(map(sum, shapes)):
        return
    found = Passages.of(documents_of(shapes), most, "none", 1, 0)
    tokens = np.concatenate([found[number][0] for number in range(len(found))])
    assert tokens.tolist() == list(range(sum(map(sum, shapes))))
    assert found.lengths.max() <= most and found.lengths.min() > 0
    of_token = owner(shapes)
    for first, second, label in found:
        assert len({*of_token[first]}) == 1 and not len(second) and label == IGNORE


@settings(deadline=None)
@given(shapes=SHAPES, most=st.integers(3, 20), kind=st.sampled_from(["next", "order"]), epoch=st.integers(0, 3))
def test_pairs_are_neighbors_or_of_another_document(shapes, most, kind, epoch):
    if sum(map(bool, shapes)) < 2:
        return
    found, of_token, borders = Passages.of(documents_of(shapes), most, kind, 1, epoch), owner(shapes), edges(shapes)
    again = Passages.of(documents_of(shapes), most, kind, 1, epoch)
    assert (found.spans == again.spans).all(), "the same seed and epoch draw the same pairs"
    first_read = []
    for first, second, label in found:
        assert 0 < len(first) + len(second) <= most
        assert len({*of_token[first]}) == 1 and len({*of_token[second]}) <= 1
        if label == FOLLOWS:
            assert second[0] == first[-1] + 1 and of_token[second[0]] == of_token[first[0]]
        elif label == OTHER and kind == "order":
            assert first[0] == second[-1] + 1 and of_token[second[0]] == of_token[first[0]]
        elif label == OTHER:
            assert of_token[second[0]] != of_token[first[0]]
        else:
            assert not len(second)
        first_read += [*first, *([] if kind == "next" and label == OTHER else second)]
        if max(max(shape, default=0) for shape in shapes) <= most:
            assert {first[0], first[-1] + 1} <= borders, "segments are whole sentences"
    assert sorted(first_read) == list(range(sum(map(sum, shapes)))), "every token is read once"


@pytest.mark.parametrize("kind", ["next", "order"])
def test_half_of_the_pairs_follow_each_other(kind):
    shapes = np.random.default_rng(0).integers(3, 12, (200, 60)).tolist()
    found = Passages.of(documents_of(shapes), 60, kind, 1, 0)
    labels = found.spans[found.is_pair, 4]
    assert len(labels) > 1000
    assert abs((labels == FOLLOWS).mean() - 0.5) <= 3 * np.sqrt(0.25 / len(labels))
    other = Passages.of(documents_of(shapes), 60, kind, 1, 1)
    assert other.spans.shape != found.spans.shape or (other.spans != found.spans).any(), "another epoch, other pairs"


def test_negatives_come_from_all_other_documents():
    found = Passages.of(documents_of([[4] * 200] * 6), 24, "next", 1, 0)
    sources = {(first[0] // 800, second[0] // 800) for first, second, label in found if label == OTHER}
    assert all(one != other for one, other in sources) and len(sources) > 20


def test_each_other_document_is_as_likely_as_its_length():
    """Documents of one length: of the negatives of all pairs, each other document gives a fifth."""
    counts = np.zeros((6, 6))
    for epoch in range(40):
        found = Passages.of(documents_of([[4] * 200] * 6), 24, "next", 1, epoch)
        for first, second, label in found:
            if label == OTHER:
                counts[first[0] // 800, second[0] // 800] += 1
    assert (np.diag(counts) == 0).all()
    total = counts.sum(axis=1, keepdims=True)
    apart = np.abs(counts / total - 0.2) / np.sqrt(0.2 * 0.8 / total)
    assert apart[~np.eye(6, dtype=bool)].max() <= 3.5, "30 shares, so one may be beyond three standard errors"
    assert (apart[~np.eye(6, dtype=bool)] <= 3).mean() >= 29 / 30


def test_one_document_has_no_other():
    with pytest.raises(UserError, match="only one"):
        Passages.of(documents_of([[3, 3]]), 10, "next", 1, 0)
    assert len(Passages.of(documents_of([[3, 3]]), 10, "order", 1, 0)) == 1


def test_no_text_is_an_error():
    with pytest.raises(UserError, match="empty"):
        Passages.of(documents_of([[], []]), 10, "none", 1, 0)
