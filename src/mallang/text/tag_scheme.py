"""Tag schemes: how tags of single words spell spans, and which tag may follow which.

            Sofia   met    Juan   Carlos   in   New    York   City
    IOB1    I-PER   O      I-PER  I-PER    O    I-LOC  I-LOC  I-LOC      B- only where two spans of one type touch
    IOB2    B-PER   O      B-PER  I-PER    O    B-LOC  I-LOC  I-LOC      every span starts with B-; also called BIO
    BIOES   S-PER   O      B-PER  E-PER    O    B-LOC  I-LOC  E-LOC      E- ends a span, S- is a span of one word

IOB1 is that of Ramshaw and Marcus (1995, arXiv:cmp-lg/9505040) and CoNLL-2003, IOB2 that of Ratnaparkhi (1998).
"""

from __future__ import annotations

from typing import Literal

Scheme = Literal["iob1", "iob2", "bioes"]
OUTSIDE = "O"
PREFIXES: dict[Scheme, str] = {"iob1": "BIO", "iob2": "BIO", "bioes": "BIOES"}
"""The prefixes of every scheme."""


def split_tag(tag: str) -> tuple[str, str]:
    """The prefix and the type of a tag: "B-PER" is ("B", "PER"), "O" is ("O", ""), and "B" has an empty type."""
    prefix, _, kind = tag.partition("-")
    return prefix, kind


def is_span_tag(tag: str) -> bool:
    """Whether a tag belongs to any scheme: O, or one of B, I, E, S alone or before a hyphen."""
    return split_tag(tag)[0] in tuple("BIES") or tag == OUTSIDE


def continues(before: str, after: str) -> bool:
    """Whether the second of two adjacent tags is in the span of the first, in any scheme."""
    (first, kind), (second, other) = split_tag(before), split_tag(after)
    return first in ("B", "I") and second in ("I", "E") and kind == other


def may_follow(before: str, after: str, scheme: Scheme) -> bool:
    """Whether one tag may follow another."""
    (first, kind), (second, other) = split_tag(before), split_tag(after)
    if scheme == "iob1":
        return second != "B" or (first in ("B", "I") and kind == other)
    if scheme == "iob2":
        return second != "I" or continues(before, after)
    return continues(before, after) if first in ("B", "I") else second not in ("I", "E")


def may_start(tag: str, scheme: Scheme) -> bool:
    """Whether a sentence may start with a tag: as after O."""
    return may_follow(OUTSIDE, tag, scheme)


def may_end(tag: str, scheme: Scheme) -> bool:
    """Whether a sentence may end with a tag: as before O."""
    return may_follow(tag, OUTSIDE, scheme)
