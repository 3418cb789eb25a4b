"""Sparse rows of n-gram counts: a counter and scikit-learn's CountVectorizer, and C against numpy."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer

from mallang.kernels import c_bag, ngram_rows
from mallang.kernels.ngram_rows import LONGEST, Counted, NgramIndex, Texts

ROWS = st.lists(st.lists(st.integers(0, 5), max_size=12), max_size=8)
ORDERS = st.sets(st.integers(1, 5), min_size=1, max_size=4).map(sorted)


def texts_of(rows) -> Texts:
    ids = np.array([token for row in rows for token in row], np.int32)
    return Texts(ids, np.cumsum([0, *map(len, rows)]).astype(np.int64))


def cells(counted: Counted, name) -> list[dict]:
    """The counts of each row by the name of their column."""
    bounds = zip(counted.indptr[:-1], counted.indptr[1:], strict=True)
    found = []
    for begin, end in bounds:
        names = [name(feature) for feature in counted.indices[begin:end].tolist()]
        assert len(set(names)) == len(names)
        found.append(dict(zip(names, counted.counts[begin:end].tolist(), strict=True)))
    return found


def ngrams(row, orders) -> Counter:
    return Counter(tuple(row[i : i + n]) for n in orders for i in range(len(row) - n + 1))


@settings(deadline=None, max_examples=100)
@given(rows=ROWS, others=ROWS, orders=ORDERS)
def test_counts_are_those_of_a_counter(rows, others, orders):
    for library in {c_bag.library(), None}:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(c_bag, "library", lambda found=library: found)
            patch.setattr(ngram_rows, "FIRST_BITS", 2)  # so that the table grows
            index = NgramIndex(6, orders)
            learned = index.learn(texts_of(rows))
            names = [tuple(index.tokens(feature)) for feature in range(len(index.keys))]
            assert cells(learned, names.__getitem__) == [ngrams(row, orders) for row in rows]
            known = set().union(*(ngrams(row, orders) for row in rows))
            expected = [{key: n for key, n in ngrams(row, orders).items() if key in known} for row in others]
            for _ in range(2):  # marks of the first call must not be mistaken for those of the second
                assert cells(index.count(texts_of(others)), names.__getitem__) == expected


@settings(deadline=None, max_examples=60)
@given(rows=ROWS, orders=ORDERS, bits=st.integers(1, 20))
def test_buckets_hold_all_ngrams_and_are_the_same_in_numpy(rows, orders, bits):
    texts = texts_of(rows)
    index = NgramIndex(6, orders, buckets=2**bits)
    twice = [index.count(texts) for _ in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(c_bag, "library", lambda: None)
        plain = NgramIndex(6, orders, buckets=2**bits).learn(texts)
    assert plain.features == 2**bits
    for found in twice:
        assert cells(found, int) == cells(plain, int)
    for row, counts in zip(rows, cells(plain, int), strict=True):
        assert sum(counts.values()) == ngrams(row, orders).total()
        assert all(0 <= bucket < 2**bits for bucket in counts)


@pytest.mark.usefixtures("bag_kernels")
def test_hashes_of_ngrams_hardly_collide():
    random = np.random.default_rng(1)
    texts = texts_of([random.integers(0, 0x10FFFF, 40).tolist() for _ in range(200)])
    exact = len({key for row in range(200) for key in ngrams(texts.ids[row * 40 : row * 40 + 40].tolist(), (1, 2, 3))})
    counted = NgramIndex(1, (1, 2, 3), buckets=2**24).count(texts)
    buckets = len(np.unique(counted.indices))
    assert exact - 3 * exact**2 / 2**25 - 10 <= buckets <= exact  # of n keys, about n² / 2m share one of m buckets


@pytest.mark.usefixtures("bag_kernels")
@pytest.mark.parametrize("shortest, longest", [(1, 1), (1, 2), (2, 3), (1, 5)])
@pytest.mark.parametrize("unit", ["word", "char"])
def test_counts_are_those_of_scikit_learn(unit, shortest, longest):
    texts = ["영화 가 참 재미 있다 있다", "the the film 🎬 is", "", "x", "가 가 가 가 가 가", "👨‍👩‍👧 ok ok"]
    words = {"token_pattern": r"\S+"} if unit == "word" else {}
    vectorizer = CountVectorizer(analyzer=unit, ngram_range=(shortest, longest), lowercase=False, **words)
    wanted = vectorizer.fit_transform(texts)
    names = vectorizer.get_feature_names_out()
    pieces = [text.split() if unit == "word" else list(text) for text in texts]
    numbers = {piece: number for number, piece in enumerate(sorted({piece for row in pieces for piece in row}))}
    spelled, between = list(numbers), " " if unit == "word" else ""
    index = NgramIndex(len(numbers), range(shortest, longest + 1))
    counted = index.learn(texts_of([[numbers[piece] for piece in row] for row in pieces]))
    found = cells(counted, lambda feature: between.join(spelled[token] for token in index.tokens(feature)))
    assert found == [
        {names[column]: int(wanted[row, column]) for column in wanted[row].indices} for row in range(len(texts))
    ]
    assert counted.document_counts().sum() == wanted.nnz


@pytest.mark.usefixtures("bag_kernels")
def test_chosen_columns_are_kept_in_their_order():
    rows = [[0, 1, 0], [1, 1], [2], []]
    index = NgramIndex(3, (1, 2))
    counted = index.learn(texts_of(rows))
    by_name = {tuple(index.tokens(feature)): feature for feature in range(len(index.keys))}
    kept = index.keep(np.array([by_name[1,], by_name[0, 1]]), counted)
    assert [index.tokens(0), index.tokens(1)] == [[1], [0, 1]]
    assert cells(kept, int) == [{0: 1, 1: 1}, {0: 2}, {}, {}]
    assert cells(index.count(texts_of(rows)), int) == [{0: 1, 1: 1}, {0: 2}, {}, {}]


@pytest.mark.usefixtures("bag_kernels")
def test_marks_are_reset_before_they_overflow(monkeypatch):
    monkeypatch.setattr(ngram_rows, "MOST_ENTRIES", 12)
    texts = texts_of([[0, 1, 0], [1, 1]])
    for index in (NgramIndex(2, (1, 2)), NgramIndex(2, (1, 2), buckets=64)):
        first = index.learn(texts)
        for _ in range(5):
            again = index.count(texts)
            assert cells(again, int) == cells(first, int)


def test_more_entries_than_marks_are_refused(monkeypatch):
    monkeypatch.setattr(ngram_rows, "MOST_ENTRIES", 3)
    if c_bag.library() is not None:
        with pytest.raises(ValueError, match="too many for one matrix"):
            NgramIndex(2, (1, 2)).learn(texts_of([[0, 1, 0]]))


@pytest.mark.parametrize(
    "orders, buckets, words, what",
    [
        ((), 0, 5, "between 1 and"),
        ((0, 1), 0, 5, "between 1 and"),
        ((LONGEST + 1,), 0, 1, "between 1 and"),
        ((1, 8), 0, 1000, "63 bits"),
        ((1,), 1000, 5, "power of two"),
        ((1,), 1, 5, "power of two"),
    ],
)
def test_impossible_indexes_are_refused(orders, buckets, words, what):
    with pytest.raises(ValueError, match=what):
        NgramIndex(words, orders, buckets=buckets)


def test_the_switch_counts_whenever_it_is_set(monkeypatch):
    monkeypatch.delenv("MALLANG_KERNELS", raising=False)
    compiled = c_bag.library()
    monkeypatch.setenv("MALLANG_KERNELS", "-c-bag")
    assert c_bag.library() is None
    monkeypatch.delenv("MALLANG_KERNELS")
    assert c_bag.library() is compiled
