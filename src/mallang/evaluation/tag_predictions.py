"""The predictions of a tagger for some sentences: every error by its kind, and which type was taken for which.

    pair_spans([Span("LOC", 0, 2)], [Span("LOC", 0, 3)])     # one pair: the boundary is wrong
    tag_errors(found)                                        # the most confident first

Wrong spans are paired before they are called missing or spurious, so that each mistake counts once: a name with the
right words and the wrong type is one error, not two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool

from mallang.evaluation.classification import Confusion
from mallang.evaluation.spans import Span, read_spans
from mallang.text.tag_scheme import Scheme

ErrorKind = Literal["missing", "spurious", "wrong type", "wrong boundary", "wrong type and boundary", "wrong tag"]
Pair = tuple[Span | None, Span | None]
"""A gold span and the span of the output that was given for it; none where one is missing."""
NOTHING = "–"
"""What a missing span was taken for, and what a spurious one should have been."""


@dataclass(frozen=True)
class TagPredictions:
    """Sentences with gold tags, predicted tags, and how sure the tagger is of them."""

    words: Sequence[Sequence[str]]
    golds: Sequence[Sequence[str]]
    outputs: Sequence[Sequence[str]]
    probabilities: Sequence[Sequence[float]]
    """The probability of every predicted tag."""
    confidences: Sequence[Mapping[Span, float]]
    """The probability of the predicted spans."""
    scheme: Scheme | None
    """The scheme of the tags; none if they spell no spans."""

    def __len__(self) -> int:
        return len(self.words)

    def take(self, chosen: Bool[np.ndarray, " sentences"]) -> TagPredictions:
        """The predictions of some of the sentences."""
        places = np.flatnonzero(chosen).tolist()
        return TagPredictions(
            [self.words[place] for place in places],
            [self.golds[place] for place in places],
            [self.outputs[place] for place in places],
            [self.probabilities[place] for place in places],
            [self.confidences[place] for place in places],
            self.scheme,
        )

    def pairs(self, sentence: int) -> list[Pair]:
        """The gold spans of a sentence beside those of the output; of tags without spans one pair per word."""
        if self.scheme is not None:
            return pair_spans(read_spans(self.outputs[sentence]), read_spans(self.golds[sentence]))
        both = zip(self.golds[sentence], self.outputs[sentence], strict=True)
        return [(Span(gold, place, place + 1), Span(tag, place, place + 1)) for place, (gold, tag) in enumerate(both)]

    def confidence(self, sentence: int, pair: Pair) -> float:
        """How sure the tagger is of the span that it gives, or where it gives none, of its tags for these words."""
        gold, output = pair
        if output is not None and (known := self.confidences[sentence].get(output)) is not None:
            return known
        span = output or gold
        assert span is not None
        return float(np.prod(self.probabilities[sentence][span.start : span.end]))


@dataclass(frozen=True)
class TagError:
    """One mistake in a sentence."""

    sentence: int
    """The number of the sentence, from 0."""
    kind: ErrorKind
    gold: Span | None
    output: Span | None
    confidence: float


def tag_errors(found: TagPredictions) -> list[TagError]:
    """All mistakes, the most confident first."""
    errors = [
        TagError(sentence, kind, *pair, found.confidence(sentence, pair))
        for sentence in range(len(found))
        for pair in found.pairs(sentence)
        if (kind := kind_of(pair, is_span=found.scheme is not None)) is not None
    ]
    return sorted(errors, key=lambda error: -error.confidence)


def kind_of(pair: Pair, *, is_span: bool = True) -> ErrorKind | None:
    """What is wrong with a pair; None if nothing is."""
    gold, output = pair
    if gold == output:
        return None
    if gold is None:
        return "spurious"
    if output is None:
        return "missing"
    if not is_span:
        return "wrong tag"
    is_placed = gold[1:] == output[1:]
    if gold.type == output.type:
        return "wrong boundary"
    return "wrong type" if is_placed else "wrong type and boundary"


def pair_spans(outputs: Iterable[Span], golds: Iterable[Span]) -> list[Pair]:
    """Every span in exactly one pair, in the order of the text.

    Equal spans first, then those with the same words, then overlapping ones of the same type, then any overlapping
    ones; each time those that share most words, and of equal ones the first.
    """
    theirs, ours = dict.fromkeys(golds), dict.fromkeys(outputs)
    pairs: list[Pair] = []
    candidates = [(rank(gold, output), gold, output) for gold in theirs for output in ours]
    for (place, _), gold, output in sorted(candidates, key=lambda each: (each[0], each[1].start, each[2].start)):
        if place < NEVER and gold in theirs and output in ours:
            pairs.append((gold, output))
            del theirs[gold], ours[output]
    pairs += [(gold, None) for gold in theirs]
    pairs += [(None, output) for output in ours]
    return sorted(pairs, key=lambda pair: min(span.start for span in pair if span is not None))


NEVER = 4


def rank(gold: Span, output: Span) -> tuple[int, int]:
    """How readily two spans are paired, the lowest first: how they agree, and minus the number of common words."""
    common = min(gold.end, output.end) - max(gold.start, output.start)
    if common <= 0:
        return NEVER, 0
    if gold[1:] == output[1:]:
        return int(gold.type != output.type), -common
    return (2 if gold.type == output.type else 3), -common


def type_confusion(found: TagPredictions) -> Confusion:
    """How often each type was given for each; missing and spurious spans are in a row and a column of their own."""
    cells = Counter(named for sentence in range(len(found)) for named in map(types_of, found.pairs(sentence)))
    types = sorted({name for pair in cells for name in pair} - {NOTHING})
    names = (*types, NOTHING) if any(NOTHING in pair for pair in cells) else tuple(types)
    places = {name: place for place, name in enumerate(names)}
    table = np.zeros((len(names), len(names)), dtype=np.int64)
    for (gold, output), count in cells.items():
        table[places[gold], places[output]] += count
    return Confusion(names, table)


def types_of(pair: Pair) -> tuple[str, str]:
    """The types of a pair."""
    gold, output = (NOTHING if span is None else span.type for span in pair)
    return gold, output


def error_counts(errors: Iterable[TagError]) -> dict[str, int]:
    """How many errors there are of each kind, the most frequent first."""
    return dict(Counter(error.kind for error in errors).most_common())


def span_text(words: Sequence[str], span: Span | None) -> str:
    """The words of a span."""
    return "" if span is None else " ".join(words[span.start : span.end])


def flat_tags(found: TagPredictions) -> Iterator[tuple[str, str]]:
    """The gold tag and the predicted tag of every word."""
    for gold, output in zip(found.golds, found.outputs, strict=True):
        yield from zip(gold, output, strict=True)
