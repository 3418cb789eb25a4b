"""Checks of a corpus before training: leakage between splits, duplicates, broken characters, suspicious lengths.

Everything is found in one pass over the rows; only hashes and lengths are kept. Rows are counted from 1.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Integer, Shaped

from mallang.data.corpus import Corpus, Rows
from mallang.data.held_out import HeldOut
from mallang.data.prepared import row_sum
from mallang.data.readers import Files, Row
from mallang.data.seen import text_sum

ODD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufffd\ud800-\udfff]")
PERCENTILES = (50, 95, 99)
UNLIKE = 4.0
"""A pair is suspicious if its length ratio is this many times above or below the usual one of the corpus."""
IDS = ("id", "guid")
"""Columns that name rows: equal ones mean nothing."""
LONG_ENOUGH = 20
"""Minimum number of characters to judge the length ratio of a pair."""
TROUBLES = {
    "empty": "nothing but white space",
    "invalid": "bytes that are not UTF-8",
    "replacement": "the replacement character U+FFFD: text lost in an earlier conversion",
    "control": "control characters or line separators",
    "not_nfc": "text that is not in NFC (Hangul may be in separate jamo)",
}


@dataclass(frozen=True)
class Trouble:
    """The number of rows with a problem, and the first of them."""

    count: int
    first: int


@dataclass(frozen=True)
class ColumnReport:
    """One column of a split."""

    name: str
    troubles: Mapping[str, Trouble]
    words: Mapping[str, int]
    characters: Mapping[str, int]
    longest: int
    """The row with the most characters."""
    repeated: int | None
    """Rows whose text is in an earlier row; none for columns of few values, such as labels."""


@dataclass(frozen=True)
class SplitReport:
    """One split."""

    name: str
    rows: int
    columns: tuple[ColumnReport, ...]
    repeated: int
    """Rows that equal an earlier one in every column."""
    identical: Trouble | None
    """Pairs whose two sides are equal; none where columns are not translations of each other."""
    ratio: Trouble | None
    """Pairs with a suspicious length ratio."""


@dataclass(frozen=True)
class Leak:
    """Rows of one split that are in another split too."""

    split: str
    other: str
    column: str | None
    """The column in which they are equal; none: all columns."""
    count: int
    first: int
    rows: int
    relabeled: int | None = None
    """How many of them have another label there only; none where there are no labels."""


@dataclass(frozen=True)
class Report:
    """The report on all splits."""

    name: str
    splits: tuple[SplitReport, ...]
    leaks: tuple[Leak, ...]

    @property
    def findings(self) -> list[str]:
        """Problems to look at, one sentence each; empty if all is well."""
        found = [sentence for split in self.splits for sentence in _split_findings(split)]
        for leak in self.leaks:
            share = f"{leak.count:,} of {leak.rows:,} rows ({leak.count / leak.rows:.1%})"
            where = (
                f"in the column {leak.column} of {leak.other} as well" if leak.column else f"in {leak.other} as well"
            )
            where += f", {leak.relabeled:,} of them with another label" if leak.relabeled else ""
            found.append(f"{leak.split}: {share} are {where}; the first is row {leak.first}")
        return found

    def to_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return {**asdict(self), "findings": self.findings}


def check(corpus: Corpus, are_pairs: bool) -> Report:
    """Read every split once and report; `are_pairs`: the first two columns are translations of each other."""
    seen = {name: _read(rows, are_pairs) for name, rows in corpus.splits.items()}
    reports = tuple(_report(name, rows.columns, seen[name]) for name, rows in corpus.splits.items())
    leaks = [
        leak for other, split in itertools.combinations(corpus.splits, 2) for leak in _leaks(split, other, corpus, seen)
    ]
    return Report(corpus.name, reports, tuple(leaks))


@dataclass
class Column:
    """Running statistics of one column."""

    troubles: dict[str, Trouble] = field(default_factory=dict)
    words: array[int] = field(default_factory=lambda: array("i"))
    characters: array[int] = field(default_factory=lambda: array("i"))
    sums: array[int] = field(default_factory=lambda: array("Q"))
    folded: array[int] = field(default_factory=lambda: array("Q"))
    """The sums of the texts in lower case and with single spaces."""

    def add(self, text: str, number: int) -> None:
        """Add one text."""
        self.words.append(len(text.split()))
        self.characters.append(len(text))
        self.sums.append(row_sum((text,)))
        self.folded.append(text_sum(text))
        for trouble in troubles_of(text):
            known = self.troubles.get(trouble, Trouble(0, number))
            self.troubles[trouble] = replace(known, count=known.count + 1)


@dataclass
class Seen:
    """Running statistics of one split."""

    columns: list[Column]
    sums: array[int] = field(default_factory=lambda: array("Q"))
    identical: array[int] = field(default_factory=lambda: array("q"))
    are_pairs: bool = False
    are_tags: bool = False
    """All columns but the first are tags of its tokens."""


def troubles_of(text: str) -> list[str]:
    """The problems of the characters of a text."""
    found = []
    if not text or text.isspace():
        found.append("empty")
    odd = set(ODD.findall(text))
    if odd:
        is_invalid = any("\ud800" <= mark <= "\udfff" for mark in odd)
        is_lost = "\ufffd" in odd
        found += ["invalid"] if is_invalid else []
        found += ["replacement"] if is_lost else []
        found += ["control"] if any(mark < "\ud800" for mark in odd) else []
    if not unicodedata.is_normalized("NFC", text):
        found.append("not_nfc")
    return found


def _read(rows: Rows, are_pairs: bool) -> Seen:
    """One pass over a split; bytes that are not UTF-8 are counted, not refused."""
    source = rows.source
    if isinstance(source, Files):
        rows = replace(rows, source=replace(source, strict=False))
    elif isinstance(source, HeldOut) and isinstance(source.files, Files):
        rows = replace(rows, source=replace(source, files=replace(source.files, strict=False)))
    are_tags = isinstance(source, Files) and source.read in ("conll", "srl")
    seen = Seen([Column() for _ in rows.columns], are_pairs=are_pairs, are_tags=are_tags)
    for number, row in enumerate(rows, 1):
        for column, text in zip(seen.columns, row, strict=True):
            column.add(text, number)
        seen.sums.append(row_sum(row))
        if are_pairs and _are_identical(row):
            seen.identical.append(number)
    return seen


def _are_identical(row: Row) -> bool:
    # Numbers and names of one word are often the same in both languages.
    return row[0] == row[1] and len(row[0].split()) > 1


def _report(name: str, columns: Sequence[str], seen: Seen) -> SplitReport:
    reports = []
    for column, kept in zip(columns, seen.columns, strict=True):
        lengths = np.array(kept.characters)
        repeated = _repeats(kept.sums) if _tells_rows_apart(kept.sums) else None
        longest = int(lengths.argmax()) + 1
        troubles = {key: kept.troubles[key] for key in TROUBLES if key in kept.troubles}
        reports.append(
            ColumnReport(column, troubles, _percentiles(kept.words), _percentiles(lengths), longest, repeated)
        )
    return SplitReport(
        name,
        len(seen.sums),
        tuple(reports),
        _repeats(seen.sums),
        Trouble(len(seen.identical), seen.identical[0]) if seen.identical else None,
        _unlike(seen) if seen.are_pairs and all(_tells_rows_apart(kept.sums) for kept in seen.columns[:2]) else None,
    )


def _unlike(seen: Seen) -> Trouble | None:
    """Pairs whose lengths, in characters, are far from the usual ratio of the two languages."""
    first, second = (np.array(column.characters, np.float64) for column in seen.columns[:2])
    ratio = np.log((first + 1) / (second + 1))
    far = np.abs(ratio - np.median(ratio)) > np.log(UNLIKE)
    far &= (np.maximum(first, second) >= LONG_ENOUGH) & (np.minimum(first, second) > 0)
    places = np.flatnonzero(far)
    return Trouble(len(places), int(places[0]) + 1) if len(places) else None


def _leaks(split: str, other: str, corpus: Corpus, seen: Mapping[str, Seen]) -> list[Leak]:
    """Rows of `split` that are in `other`, as a whole and by each column of text."""
    mine, theirs = corpus.splits[split].columns, corpus.splits[other].columns
    one, two = seen[split], seen[other]
    found = [_leak(split, other, None, one.sums, two.sums)] if mine == theirs else []
    shared = [column for column in mine if column in theirs] if len(mine) > 1 else []
    both = {column: (one.columns[mine.index(column)], two.columns[theirs.index(column)]) for column in shared}
    texts = [name for name, columns in both.items() if all(_tells_rows_apart(column.sums) for column in columns)]
    labels = [name for name, columns in both.items() if not any(_tells_rows_apart(column.sums) for column in columns)]
    for name in [name for name in texts if name not in IDS][: 1 if one.are_tags else None]:
        found.append(leak := _leak(split, other, name, *(column.folded for column in both[name])))
        if leak.count and labels and not one.are_tags:
            label = "label" if "label" in labels else labels[0]
            relabeled = _relabeled(*both[name], *both[label])
            found[-1] = replace(leak, relabeled=relabeled)
    return [leak for leak in found if leak.count]


def _leak(split: str, other: str, name: str | None, sums: array[int], others: array[int]) -> Leak:
    places = np.flatnonzero(np.isin(np.array(sums, np.uint64), np.array(others, np.uint64)))
    return Leak(split, other, name, len(places), int(places[0]) + 1 if len(places) else 0, len(sums))


def _relabeled(text: Column, other_text: Column, label: Column, other_label: Column) -> int:
    """How many texts of a split are in the other one, and never with their label."""
    known: dict[int, set[int]] = {}
    for place, found in zip(other_text.folded, other_label.sums, strict=True):
        known.setdefault(place, set()).add(found)
    own = zip(text.folded, label.sums, strict=True)
    return sum(place in known and found not in known[place] for place, found in own)


def _tells_rows_apart(sums: array[int]) -> bool:
    """Whether a column mostly differs from row to row: text does, a label does not."""
    return len(np.unique(np.array(sums, np.uint64))) * 2 > len(sums)


def _repeats(sums: array[int]) -> int:
    return len(sums) - len(np.unique(np.array(sums, np.uint64)))


def _percentiles(lengths: array[int] | Integer[np.ndarray, " rows"]) -> dict[str, int]:
    values: Shaped[np.ndarray, " rows"] = np.array(lengths)
    found = np.percentile(values, PERCENTILES, method="lower")
    return {**{f"{p}%": int(v) for p, v in zip(PERCENTILES, found, strict=True)}, "longest": int(values.max())}


def _split_findings(split: SplitReport) -> list[str]:
    found = []
    for column in split.columns:
        for key, trouble in column.troubles.items():
            rows = f"{trouble.count:,} rows" if trouble.count != 1 else "1 row"
            found.append(f"{split.name} {column.name}: {rows} with {TROUBLES[key]}; the first is row {trouble.first}")
    if split.repeated:
        found.append(f"{split.name}: {split.repeated:,} of {split.rows:,} rows repeat an earlier row")
    if split.identical:
        what = f"{split.identical.count:,} pairs have the same text on both sides"
        found.append(f"{split.name}: {what}; the first is row {split.identical.first}")
    if split.ratio:
        what = f"{split.ratio.count:,} pairs are over {UNLIKE:g} times further apart in length than is usual"
        found.append(f"{split.name}: {what}; the first is row {split.ratio.first}")
    return found
