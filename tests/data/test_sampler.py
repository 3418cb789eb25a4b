"""Every plan reads each example just once an epoch, within its budget, and depends on (seed, epoch) alone."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.data.sampler import Buckets, Packed, Streams, cut
from mallang.errors import UserError

lengths_1d = st.lists(st.integers(1, 40), min_size=1, max_size=200).map(lambda xs: np.array(xs, dtype=np.int32))
lengths_2d = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=200).map(
    lambda xs: np.array(xs, dtype=np.int32)
)


@settings(deadline=None)
@given(lengths_2d, st.integers(40, 400), st.none() | st.integers(1, 9), st.integers(0, 3), st.integers(0, 3))
def test_buckets_read_everything_once_within_the_budget(lengths, tokens, sentences, seed, epoch):
    plan = Buckets(lengths, tokens=tokens, sentences=sentences, seed=seed, epoch=epoch)
    batches = [plan[k] for k in range(len(plan))]
    assert sorted(i for batch in batches for (i,) in batch) == list(range(len(lengths)))
    for batch in batches:
        rows = [i for (i,) in batch]
        assert len(rows) * lengths[rows].max() <= tokens
        assert sentences is None or len(rows) <= sentences
    again = Buckets(lengths, tokens=tokens, sentences=sentences, seed=seed, epoch=epoch)
    assert [again[k] for k in range(len(again))] == batches


def test_buckets_pad_less_than_random_batches_and_differ_by_epoch():
    lengths = np.random.default_rng(0).integers(1, 60, size=(2000, 2)).astype(np.int32)
    first, second = (Buckets(lengths, tokens=1000, seed=1, epoch=epoch) for epoch in (0, 1))
    assert [first[k] for k in range(len(first))] != [second[k] for k in range(len(second))]
    padded = sum(len(first[k]) * lengths[[i for (i,) in first[k]]].max(axis=0).sum() for k in range(len(first)))
    real = lengths.sum()
    assert real / padded > 0.75
    assert len(first) == len(second), "the number of batches must not change, or steps would not be arithmetic"


@given(lengths_1d, st.integers(40, 200))
def test_cuts_are_within_the_budget_and_lose_nothing(widths, tokens):
    widths = np.sort(widths)
    bounds = cut(widths, tokens, None)
    assert bounds[0] == 0 and bounds[-1] == len(widths)
    for start, stop in pairwise(bounds):
        assert stop > start and (stop - start) * widths[stop - 1] <= tokens


@given(st.integers(1, 8), st.integers(1, 50))
def test_streams_go_on_where_they_ended(rows, steps):
    plan = Streams(rows * steps + rows // 2, rows=rows)
    for row in range(rows):
        read = [plan[k][row][0] for k in range(len(plan))]
        assert read == list(range(row * steps, row * steps + steps))


@settings(deadline=None)
@given(lengths_1d, st.integers(1, 5), st.integers(40, 120))
def test_packed_rows_fit_and_hold_everything_once(lengths, rows, width):
    plan = Packed(lengths, width=width, rows=rows, seed=1, epoch=0)
    packed = [row for k in range(len(plan)) for row in plan[k]]
    assert sorted(i for row in packed for i in row) == list(range(len(lengths)))
    assert all(lengths[list(row)].sum() <= width for row in packed)
    assert all(len(plan[k]) == rows for k in range(len(plan) - 1))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Buckets(np.array([[50, 3]]), tokens=40, seed=1, epoch=0), "50 tokens"),
        (lambda: Packed(np.array([50]), width=40, rows=2, seed=1, epoch=0), "50 tokens"),
        (lambda: Streams(3, rows=4), "3 windows"),
        (lambda: Buckets(np.zeros((0, 2), dtype=np.int32), tokens=40, seed=1, epoch=0), "empty"),
    ],
)
def test_what_cannot_be_batched_is_said(make, words):
    with pytest.raises(UserError, match=words):
        make()
