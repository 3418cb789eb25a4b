"""Which tags may follow which, against lists written by hand."""

import itertools

import pytest

from mallang.text.tag_scheme import continues, is_span_tag, may_end, may_follow, may_start, split_tag

TAGS = ["O", "B-A", "I-A", "E-A", "S-A", "B-C", "I-C", "E-C", "S-C"]
FOLLOW = {
    "iob1": "O>O O>I-A O>I-C B-A>O B-A>B-A B-A>I-A B-A>I-C I-A>O I-A>B-A I-A>I-A I-A>I-C "
    "B-C>O B-C>B-C B-C>I-C B-C>I-A I-C>O I-C>B-C I-C>I-C I-C>I-A",
    "iob2": "O>O O>B-A O>B-C B-A>O B-A>B-A B-A>B-C B-A>I-A I-A>O I-A>B-A I-A>B-C I-A>I-A "
    "B-C>O B-C>B-A B-C>B-C B-C>I-C I-C>O I-C>B-A I-C>B-C I-C>I-C",
    "bioes": "O>O O>B-A O>S-A O>B-C O>S-C B-A>I-A B-A>E-A I-A>I-A I-A>E-A "
    "E-A>O E-A>B-A E-A>S-A E-A>B-C E-A>S-C S-A>O S-A>B-A S-A>S-A S-A>B-C S-A>S-C "
    "B-C>I-C B-C>E-C I-C>I-C I-C>E-C "
    "E-C>O E-C>B-A E-C>S-A E-C>B-C E-C>S-C S-C>O S-C>B-A S-C>S-A S-C>B-C S-C>S-C",
}


@pytest.mark.parametrize("scheme", FOLLOW)
def test_what_may_follow(scheme):
    tags = [tag for tag in TAGS if scheme == "bioes" or tag[0] in "BIO"]
    found = {f"{one}>{two}" for one, two in itertools.product(tags, repeat=2) if may_follow(one, two, scheme)}
    assert found == set(FOLLOW[scheme].split())
    starts = {"iob1": "O I-A I-C", "iob2": "O B-A B-C", "bioes": "O B-A S-A B-C S-C"}[scheme]
    assert {tag for tag in tags if may_start(tag, scheme)} == set(starts.split())
    ends = ["O", "E-A", "S-A", "E-C", "S-C"] if scheme == "bioes" else tags
    assert {tag for tag in tags if may_end(tag, scheme)} == set(ends)


def test_parts_of_a_tag():
    assert [split_tag(tag) for tag in ("O", "B-PER", "I-WORK-OF-ART", "B")] == [
        ("O", ""), ("B", "PER"), ("I", "WORK-OF-ART"), ("B", ""),
    ]  # fmt: skip
    assert [is_span_tag(tag) for tag in ("O", "S-A", "B", "NNP", "IN", "O-A", "")] == [True] * 3 + [False] * 4
    pairs = {f"{one}>{two}" for one, two in itertools.product(TAGS, repeat=2) if continues(one, two)}
    assert pairs == {"B-A>I-A", "B-A>E-A", "I-A>I-A", "I-A>E-A", "B-C>I-C", "B-C>E-C", "I-C>I-C", "I-C>E-C"}
