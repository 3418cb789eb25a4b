"""Which tag scheme a corpus has: the one whose rules its tags break least."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from mallang.text.tag_scheme import OUTSIDE, Scheme, is_span_tag, may_follow, split_tag

BIO_SCHEMES: tuple[Scheme, ...] = ("iob2", "iob1")
"""The schemes without E- and S-; in a draw the first."""


class SchemeDetector:
    """Counts which tag follows which; the ends of sentences count as O."""

    def __init__(self) -> None:
        self.pairs: Counter[tuple[str, str]] = Counter()

    def add(self, tags: Sequence[str]) -> None:
        """Count the tags of a sentence."""
        self.pairs.update(pairwise((OUTSIDE, *tags, OUTSIDE)))

    def scheme(self) -> Scheme | None:
        """The scheme of these tags; none if they spell no spans, as parts of speech do."""
        names = {tag for pair in self.pairs for tag in pair} - {OUTSIDE}
        if not names or not all(map(is_span_tag, names)):
            return None
        if any(split_tag(name)[0] in ("E", "S") for name in names):
            return "bioes"
        return min(BIO_SCHEMES, key=self.broken)

    def broken(self, scheme: Scheme) -> int:
        """How often one tag follows another that it may not follow."""
        return sum(times for pair, times in self.pairs.items() if not may_follow(*pair, scheme))


def detect_scheme(sentences: Iterable[Sequence[str]]) -> Scheme | None:
    """The scheme of the tags of some sentences; none if they spell no spans."""
    detector = SchemeDetector()
    for tags in sentences:
        detector.add(tags)
    return detector.scheme()
