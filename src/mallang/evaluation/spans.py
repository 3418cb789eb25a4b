"""Spans of tagged words: reading them from tags, converting tag schemes, and their precision, recall and F1.

    read_spans(["B-PER", "I-PER", "O", "B-LOC"])       # [Span("PER", 0, 2), Span("LOC", 3, 4)]
    span_scores(outputs, golds)["F1"]                  # micro F1 over all spans, with its interval

A span is right if the gold tags have one of the same type with the same ends. Tags that no scheme allows can be read in
two ways. The lenient reading is that of the script conlleval (Tjong Kim Sang and De Meulder 2003) and the default of
seqeval: a tag that continues nothing starts a span, so that `O I-PER` is a span of one word. It needs no scheme. The
strict reading, for IOB2 and BIOES that of seqeval's strict mode, leaves out every span whose tags do not spell it
completely in a given scheme.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from mallang.errors import UserError
from mallang.evaluation.bag_of_words import harmonic, precision_and_recall
from mallang.evaluation.score import RESAMPLES, SEED, Score, Statistics
from mallang.text import scheme_detection
from mallang.text.tag_scheme import OUTSIDE, PREFIXES, Scheme, continues, may_end, may_follow, split_tag

Tags = Sequence[str]
"""The tags of a sentence: a list of them, or a string with spaces between them."""
SHARES = ("precision", "recall", "F1")


class Span(NamedTuple):
    """Some adjacent words with a type."""

    type: str
    start: int
    """The first word."""
    end: int
    """The first word after it."""


# ---- tags ----


def detect_scheme(sentences: Iterable[Tags]) -> Scheme | None:
    """The scheme of a data set, from its tags; None if they spell no spans, as part-of-speech tags.

    E- or S- is found in BIOES alone. Otherwise the tags that start a span without touching another of its type decide,
    by majority: B- in IOB2, I- in IOB1.
    """
    return scheme_detection.detect_scheme(map(as_list, sentences))


def violations(tags: Tags, scheme: Scheme) -> list[int]:
    """The words whose tag the scheme does not allow after the one before; the number of words if the end is wrong."""
    tags = as_list(tags)
    wrong = [
        place
        for place, (before, tag) in enumerate(pairwise([OUTSIDE, *tags]))
        if split_tag(tag)[0] not in PREFIXES[scheme] or not may_follow(before, tag, scheme)
    ]
    return [*wrong, len(tags)] if tags and not may_end(tags[-1], scheme) else wrong


def convert_tags(tags: Tags, scheme: Scheme) -> list[str]:
    """Tags of any scheme, read leniently, in another one."""
    tags = as_list(tags)
    return write_spans(read_spans(tags), len(tags), scheme)


def tag_set(types: Iterable[str], scheme: Scheme) -> list[str]:
    """All tags of some types: O first, then those of every type."""
    prefixes = [prefix for prefix in PREFIXES[scheme] if prefix != OUTSIDE]
    return [OUTSIDE, *(join_tag(prefix, kind) for kind in types for prefix in prefixes)]


def join_tag(prefix: str, kind: str) -> str:
    """The tag of a prefix and a type; an empty type leaves the prefix."""
    return f"{prefix}-{kind}" if kind else prefix


def as_list(tags: Tags) -> list[str]:
    """The tags of a sentence."""
    return tags.split() if isinstance(tags, str) else list(tags)


# ---- spans ----


def read_spans(tags: Tags, strict: Scheme | None = None) -> list[Span]:
    """The spans of a sentence, read leniently, or with `strict` only those whose tags spell them in that scheme."""
    tags = as_list(tags)
    spans: list[Span] = []
    start = 0
    for place, (tag, after) in enumerate(pairwise([*tags, OUTSIDE])):
        if continues(tag, after):
            continue
        if tag != OUTSIDE and (strict is None or is_spelled(tags, start, place + 1, strict)):
            spans.append(Span(split_tag(tag)[1], start, place + 1))
        start = place + 1
    return spans


def is_spelled(tags: list[str], start: int, end: int, scheme: Scheme) -> bool:
    """Whether these words, a span in the lenient reading, are one in the strict reading."""
    prefixes = "".join(split_tag(tag)[0] for tag in tags[start:end])
    if scheme == "iob2":
        return prefixes[0] == "B"
    if scheme == "iob1":  # B- starts a span only beside another of its type
        return may_follow(tags[start - 1] if start else OUTSIDE, tags[start], scheme)
    return prefixes == "S" or (prefixes[0] == "B" and prefixes[-1] == "E")


def write_spans(spans: Iterable[Span], words: int, scheme: Scheme) -> list[str]:
    """The tags of a sentence with these spans, which must not overlap."""
    tags = [OUTSIDE] * words
    last: Span | None = None
    for span in sorted(spans, key=lambda each: each.start):
        if not (last.end if last else 0) <= span.start < span.end <= words:
            raise UserError(f"{span} overlaps {last}, is empty, or is not in a sentence of {words} words")
        touches = last is not None and last.end == span.start and last.type == span.type
        length = span.end - span.start
        prefixes = {
            "iob1": "BI"[not touches] + "I" * (length - 1),
            "iob2": "B" + "I" * (length - 1),
            "bioes": "S" if length == 1 else "B" + "I" * (length - 2) + "E",
        }[scheme]
        tags[span.start : span.end] = [join_tag(prefix, span.type) for prefix in prefixes]
        last = span
    return tags


# ---- scores ----


@dataclass(frozen=True)
class SpanCounts:
    """The spans of a corpus, counted."""

    types: list[str]
    """All types of the outputs and the gold tags, sorted."""
    table: Int[np.ndarray, "sentences types 3"]
    """Right spans, spans of the output, spans of the gold tags."""
    words: Int[np.ndarray, "sentences 2"]
    """Words with the right tag, and all words."""
    signature: str


class TypeScores(NamedTuple):
    """The scores of one type."""

    precision: Score
    recall: Score
    f1: Score
    support: int
    """How many spans the gold tags have."""


def span_scores(outputs: Sequence[Tags], golds: Sequence[Tags], strict: Scheme | None = None) -> dict[str, Score]:
    """The scores "precision", "recall" and "F1" of all spans, "macro F1" over types, and "accuracy" of tags; 0 to 100.

    Macro F1 is the mean over the types of the outputs and the gold tags; a type that is in neither counts for nothing.
    """
    counts = count_spans(outputs, golds, strict)
    scores = {name: _micro(counts, name).score() for name in SHARES}
    flat = counts.table.reshape(len(counts.table), -1)
    scores["macro F1"] = Statistics("span macro F1", flat, _macro_f1, f"{counts.signature}|average:macro").score()
    accuracy = Statistics("tag accuracy", counts.words, lambda sums: 100 * float(sums[0] / sums[1]) if sums[1] else 0.0,
                          f"bs:{RESAMPLES}|seed:{SEED}|tags:equal")  # fmt: skip
    return {**scores, "accuracy": accuracy.score()}


def span_scores_by_type(
    outputs: Sequence[Tags], golds: Sequence[Tags], strict: Scheme | None = None
) -> dict[str, TypeScores]:
    """The scores of every type, sorted by name; only F1 has an interval."""
    counts = count_spans(outputs, golds, strict)
    found = {}
    for number, kind in enumerate(counts.types):
        table, signature = counts.table[:, number], f"{counts.signature}|type:{kind}"
        parts = {name: _share(name, table, signature) for name in SHARES}
        precision, recall = (
            Score(parts[name].name, parts[name].value, signature, count=len(table)) for name in SHARES[:2]
        )
        found[kind] = TypeScores(precision, recall, parts["F1"].score(), int(table[:, 2].sum()))
    return found


def span_statistics(outputs: Sequence[Tags], golds: Sequence[Tags], strict: Scheme | None = None) -> Statistics:
    """The statistics of micro F1: right spans, spans of the output, spans of the gold tags."""
    return _micro(count_spans(outputs, golds, strict), "F1")


def count_spans(outputs: Sequence[Tags], golds: Sequence[Tags], strict: Scheme | None = None) -> SpanCounts:
    """Count the spans of every sentence by type; the gold tags must be as many as those of the output."""
    if len(outputs) != len(golds):
        raise UserError(f"there are {len(outputs)} tagged sentences, but {len(golds)} with gold tags")
    if not golds:
        raise UserError("there are no sentences, so that their spans have no score")
    pairs, words = [], []
    for number, (output, gold) in enumerate(zip(map(as_list, outputs), map(as_list, golds), strict=True), start=1):
        if len(output) != len(gold):
            raise UserError(f"sentence {number} has {len(output)} tags, but {len(gold)} gold tags")
        pairs.append((set(read_spans(output, strict)), set(read_spans(gold, strict))))
        words.append((sum(map(str.__eq__, output, gold)), len(gold)))
    types = sorted({span.type for pair in pairs for spans in pair for span in spans})
    places = {kind: place for place, kind in enumerate(types)}
    table = np.zeros((len(pairs), len(types), 3), dtype=np.int64)
    for row, (ours, theirs) in enumerate(pairs):
        for column, found in enumerate((ours & theirs, ours, theirs)):
            for span in found:
                table[row, places[span.type], column] += 1
    reading = f"strict|scheme:{strict}" if strict else "conlleval"
    signature = f"bs:{RESAMPLES}|seed:{SEED}|spans:exact|reading:{reading}"
    return SpanCounts(types, table, np.array(words, dtype=np.int64).reshape(-1, 2), signature)


def _micro(counts: SpanCounts, name: str) -> Statistics:
    return _share(name, counts.table.sum(axis=1), f"{counts.signature}|average:micro")


def _share(name: str, table: np.ndarray, signature: str) -> Statistics:
    def measure(sums: np.ndarray) -> float:
        precision, recall = precision_and_recall(*sums.tolist())
        return 100 * {"precision": precision, "recall": recall, "F1": harmonic(precision, recall)}[name]

    return Statistics(f"span {name}", table, measure, signature)


def _macro_f1(sums: np.ndarray) -> float:
    values = [harmonic(*precision_and_recall(*row)) for row in sums.reshape(-1, 3).tolist()]
    return 100 * sum(values) / len(values) if values else 0.0
