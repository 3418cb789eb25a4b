"""Sentences by the length of their source."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallang.errors import UserError
from mallang.evaluation.lengths import FEWEST, MOST, buckets_of


def texts(lengths):
    return [" ".join(["말"] * length) for length in lengths]


LENGTHS = st.lists(st.integers(0, 120), min_size=1, max_size=80)


@given(LENGTHS)
def test_every_sentence_is_in_one_bucket(lengths):
    buckets = buckets_of(texts(lengths))
    assert sorted(place for bucket in buckets for place in bucket.places) == list(range(len(lengths)))
    assert 1 <= len(buckets) <= MOST + 2
    for bucket in buckets:
        inside = bucket.take(lengths)
        assert min(inside) >= bucket.low and max(inside) <= (bucket.high or max(lengths))
    assert [bucket.low for bucket in buckets] == sorted(bucket.low for bucket in buckets)
    if len(buckets) > 1:
        assert len(buckets[0]) >= FEWEST and len(buckets[-1]) >= FEWEST


@given(LENGTHS, st.sets(st.integers(1, 100), min_size=1, max_size=6))
def test_ends_that_were_asked_for(lengths, ends):
    buckets = buckets_of(texts(lengths), sorted(ends))
    assert sum(map(len, buckets)) == len(lengths)
    for bucket in buckets:
        # No end lies inside a bucket: the words of all its sentences are on one side of it.
        for end in ends:
            assert len({length <= end for length in bucket.take(lengths)}) == 1


def test_names_and_order():
    buckets = buckets_of(texts([12, 3, 4, 25, 3]), [3, 10, 20])
    assert [(bucket.name, bucket.places) for bucket in buckets] == [
        ("3", (1, 4)),
        ("4-10", (2,)),
        ("11-20", (0,)),
        ("21+", (3,)),
    ]
    assert buckets[0].take(["a", "b", "c", "d", "e"]) == ["b", "e"]


@pytest.mark.parametrize(("few", "joined"), [(FEWEST - 1, True), (FEWEST, False)])
def test_the_fewest_sentences_that_stand_alone(few, joined):
    """At either end: as many as that are enough."""
    short = buckets_of(texts([*[2] * few, *[12] * 40]))
    long = buckets_of(texts([*[2] * 40, *[12] * few]))
    assert [len(bucket) for bucket in short] == ([few + 40] if joined else [few, 40])
    assert [len(bucket) for bucket in long] == ([few + 40] if joined else [40, few])


def test_widths_are_round_and_thin_ends_are_joined():
    lengths = [*[5] * 30, *[12] * 30, *[18] * 30, *[27] * 30, 90]
    assert [(bucket.name, len(bucket)) for bucket in buckets_of(texts(lengths))] == [
        ("5-6", 30),
        ("10-12", 30),
        ("16-18", 30),
        ("25+", 31),
    ]


def test_text_without_blanks_is_measured_in_characters():
    buckets = buckets_of(["我喜欢在早上喝一杯热咖啡然后去上班"[:number] for number in (11, 12, 17)] * 10)
    assert buckets[0].unit == "characters" and buckets[0].low == 11
    assert buckets_of(["사과를 먹는다."] * 3)[0].unit == "words"


@pytest.mark.parametrize("ends", [[], [0, 5], [5, 5], [10, 5], [-1]])
def test_ends_that_do_not_rise(ends):
    with pytest.raises(UserError, match="do not rise"):
        buckets_of(texts([3, 4]), ends)


def test_no_sentences():
    with pytest.raises(UserError, match="no sentence"):
        buckets_of([])
