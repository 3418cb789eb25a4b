"""Every plan reads each example just once an epoch, within its budget, and depends on (seed, epoch) alone."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.data.sampler import Buckets, Packed, Shuffled, Streams, by_length, cut
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


def test_an_example_over_the_budget_is_refused_or_alone_in_its_batch():
    lengths = np.array([[3], [50], [4], [30], [5]], dtype=np.int32)
    with pytest.raises(UserError, match="50 tokens does not fit into a batch of 20"):
        Buckets(lengths, tokens=20, seed=1, epoch=0)
    plan = Buckets(lengths, tokens=20, long_alone=True, seed=1, epoch=0)
    batches = [sorted(i for (i,) in plan[k]) for k in range(len(plan))]
    assert [1] in batches and [3] in batches and sorted(i for batch in batches for i in batch) == [0, 1, 2, 3, 4]


def test_buckets_pad_less_than_random_batches_and_differ_by_epoch():
    lengths = np.random.default_rng(0).integers(1, 60, size=(2000, 2)).astype(np.int32)
    first, second = (Buckets(lengths, tokens=1000, seed=1, epoch=epoch) for epoch in (0, 1))
    assert [first[k] for k in range(len(first))] != [second[k] for k in range(len(second))]
    padded = sum(len(first[k]) * lengths[[i for (i,) in first[k]]].max(axis=0).sum() for k in range(len(first)))
    real = lengths.sum()
    assert real / padded > 0.75
    assert len(first) == len(second), "the number of batches must not change, or steps would not be arithmetic"


def listed(plan):
    return [plan[k] for k in range(len(plan))]


def test_buckets_are_shuffled_within_equal_lengths_and_among_each_other():
    """Short texts first would be a curriculum nobody asked for, and companions that never change a lesser shuffle."""
    lengths = np.repeat(np.arange(1, 21), 30)[:, None].astype(np.int32)
    first, second = (listed(Buckets(lengths, tokens=100, seed=1, epoch=epoch)) for epoch in (0, 1))
    widths = np.array([lengths[batch[0][0], 0] for batch in first])
    upwards = np.mean(np.diff(widths) >= 0)
    assert 0.35 < upwards < 0.65, "batches come in random order of length"
    assert {frozenset(batch) for batch in first}.isdisjoint(
        frozenset(batch) for batch in second if 1 < len(batch) < 30
    ), "other examples meet in another epoch"
    together = sum(abs(a - b) == 1 for batch in first for (a,), (b,) in pairwise(batch))
    assert together < 0.2 * len(lengths), "neighbors of the file are not neighbors in batches"
    other = listed(Buckets(lengths, tokens=100, seed=2, epoch=0))
    assert first != other, "the seed matters too"


def test_windows_are_shuffled_and_cut_elsewhere_in_every_epoch():
    plans = [listed(Shuffled(5000, rows=4, width=20, seed=1, epoch=epoch)) for epoch in range(30)]
    begins = [[begin for batch in plan for begin, _ in batch] for plan in plans]
    for each in begins:
        assert 0.35 < np.mean(np.diff(each) > 0) < 0.65, "windows come in random order"
    first_cuts = {min(begin for begin in each if begin > 0) for each in begins}
    assert len(first_cuts) > 10 and first_cuts <= set(range(1, 21)), "the first window is of any width"


def test_packed_examples_come_in_random_order():
    lengths = np.full(400, 10, dtype=np.int32)
    orders = [
        [i for batch in listed(Packed(lengths, width=35, rows=2, seed=1, epoch=epoch)) for row in batch for i in row]
        for epoch in (0, 1)
    ]
    assert orders[0] != orders[1]
    for order in orders:
        assert 0.35 < np.mean(np.diff(order) > 0) < 0.65


@given(lengths_1d, st.integers(40, 200))
def test_cuts_are_within_the_budget_and_lose_nothing(widths, tokens):
    widths = np.sort(widths)
    bounds = cut(widths, tokens, None)
    assert bounds[0] == 0 and bounds[-1] == len(widths)
    for start, stop in pairwise(bounds):
        assert stop > start and (stop - start) * widths[stop - 1] <= tokens


@settings(deadline=None)
@given(
    st.integers(1, 6),
    st.integers(1, 3),
    st.integers(0, 200),
    st.integers(1, 30),
    st.none() | st.tuples(st.just(1), st.integers(0, 3)),
)
def test_streams_go_on_where_they_ended_and_ask_for_every_label_once(rows, streams, more, width, jitter):
    labels = rows * streams + more
    plan = Streams(labels, rows=rows, width=width, streams=streams, jitter=jitter)
    batches = [plan[k] for k in range(len(plan))]
    assert len(batches) % streams == 0
    asked = [place for batch in batches for begin, end in batch for place in range(begin, end)]
    assert sorted(asked) == list(range(labels))
    for stream in range(streams):
        mine = batches[stream::streams]
        for before, after in pairwise(mine):
            assert [end for _, end in before] == [begin for begin, _ in after]
            assert len({end - begin for begin, end in before}) == 1, "a window that is followed by another is full"
        widths = [end - begin for begin, end in mine[-1]]
        assert max(widths) - min(widths) <= 1


def test_jittered_windows_are_of_about_the_width_and_change_with_the_epoch():
    first, again, other = (Streams(200_000, rows=1, width=70, jitter=key).edges for key in ((1, 0), (1, 0), (1, 1)))
    assert (first == again).all() and len(first) != len(other)
    widths = np.diff(first)[:-1]
    assert widths.min() >= 5
    short = widths < 52
    assert 0.02 < short.mean() < 0.09
    assert abs(widths[~short].mean() - 69.5) < 1 and abs(widths[short].mean() - 34.5) < 2


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(1, 6), st.integers(1, 40), st.integers(0, 3))
def test_shuffled_windows_ask_for_every_label_once(labels, rows, width, epoch):
    plan = Shuffled(labels, rows=rows, width=width, seed=1, epoch=epoch)
    windows = [window for k in range(len(plan)) for window in plan[k]]
    assert sorted(place for begin, end in windows for place in range(begin, end)) == list(range(labels))
    assert all(0 < end - begin <= width for begin, end in windows)
    assert all(len(plan[k]) == rows for k in range(len(plan) - 1))


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
        (lambda: Streams(3, rows=4, width=2), "3 tokens"),
        (lambda: Buckets(np.zeros((0, 2), dtype=np.int32), tokens=40, seed=1, epoch=0), "empty"),
    ],
)
def test_what_cannot_be_batched_is_said(make, words):
    with pytest.raises(UserError, match=words):
        make()


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 400), st.integers(1, 5))
def test_groups_of_like_length_hold_every_text_once_within_the_bound(lengths, tokens, parts):
    groups = by_length(lengths, tokens, parts)
    assert sorted(place for group in groups for place in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) == 1 or len(group) * max(lengths[place] for place in group) <= tokens
    longest = [max(lengths[place] for place in group) for group in groups]
    assert longest == sorted(longest, reverse=True)
    if len(lengths) > parts * (parts - 1):
        assert len(groups) >= parts


def test_one_example_that_is_too_long_for_a_row_is_refused():
    with pytest.raises(UserError, match="an example of 9 tokens does not fit into a row of 8"):
        Packed(np.array([3, 9, 2]), width=8, rows=2, seed=1, epoch=0)


def test_lengths_are_not_rounded_up_unless_that_is_asked_for():
    lengths = np.array([[5], [5]])
    assert len(Buckets(lengths, tokens=10, seed=1, epoch=0)) == 1  # 2 × 5 fill the batch
    assert len(Buckets(lengths, tokens=10, multiple=2, seed=1, epoch=0)) == 2  # 2 × 6 do not fit
