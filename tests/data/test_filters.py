import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.data.filters import REASONS, Account, Filters

LENGTHS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=20)


def fates(filters, lengths, start=None):
    fate = np.zeros(len(lengths), np.int8) if start is None else start
    return [REASONS[place] for place in filters.judge(np.array(lengths), fate)]


def told(filters, row):
    """The rule of one row, written out."""
    if min(row) < filters.min_length:
        return "short"
    if filters.max_length and max(row) > filters.max_length:
        return "long"
    if filters.max_ratio and min(row) and max(row) / min(row) > filters.max_ratio:
        return "ratio"
    return "kept"


@settings(deadline=None)
@given(LENGTHS, st.integers(0, 4), st.integers(0, 12), st.sampled_from([0.0, 1.0, 1.5, 3.0]))
def test_rows_are_judged_as_the_rule_says(lengths, shortest, longest, ratio):
    filters = Filters(min_length=shortest, max_length=longest, max_ratio=ratio)
    assert fates(filters, lengths) == [told(filters, row) for row in lengths]


def test_bounds_themselves_are_kept():
    assert fates(Filters(min_length=2, max_length=6, max_ratio=3.0), [(2, 6), (1, 3), (7, 6), (2, 2)]) == [
        "kept", "short", "long", "kept",
    ]  # fmt: skip
    assert fates(Filters(max_ratio=3.0), [(2, 6), (2, 7)]) == ["kept", "ratio"]


def test_what_was_dropped_before_keeps_its_reason():
    start = np.array([REASONS.index("duplicate"), 0], np.int8)
    assert fates(Filters(max_length=3), [(9,), (9,)], start) == ["duplicate", "long"]
    assert fates(Filters(), np.empty((0, 2), int)) == []


def test_an_account_adds_up_and_reads_well():
    account = Account(Filters(max_length=50), "train")
    account.add(np.array([0, 0, 1, 2, 2, 3, 4, 4, 4, 5], np.int8))
    account.add(np.array([0] * 990, np.int8))
    assert account.read == 1000 and account.kept == 992
    assert account.to_json()["dropped"] == {"empty": 1, "duplicate": 2, "short": 1, "long": 3, "ratio": 1}
    lines = str(account).splitlines()
    assert lines == [
        "train: 1,000 read, 992 kept (99.2%)",
        "  dropped: 1 empty, 2 repeated, 1 shorter than 1 tokens",
        "  dropped: 3 longer than 50 tokens, 1 one side over 9 times the other",
    ]


@pytest.mark.parametrize("fate", [[], [0, 0]])
def test_an_account_without_losses_is_one_line(fate):
    account = Account(Filters())
    account.add(np.array(fate, np.int8))
    assert len(str(account).splitlines()) == 1 and account.kept == len(fate)
