"""Text selected by quality: by a number that comes with it, or by a classifier that knows good text from other text.

GPT-2 (Radford et al. 2019) kept the pages that a link with at least 3 karma pointed to: `--minimum karma=3`. GPT-3
(Brown et al. 2020, appendix A) trained a logistic regression on hashed words to tell curated text from raw text, and
kept a raw document if a number drawn from a Pareto distribution exceeded 1 − its score, so that most of the good and
some of the other documents stay:

    score(text) = σ(w · x(text))        x: feature hashing of words, word bigrams and character trigrams

Character trigrams are in it for Korean, whose words have many forms. Lines, of text and of JSON, are written as they
were read; rows of a table with the cells that were read.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from mallang.data import readers
from mallang.data.records import MISSING, as_text, inside, keys
from mallang.errors import UserError, nearest

FEATURES = 1 << 18
"""Places that words are hashed to."""
EPOCHS, RATE, DECAY = 5, 0.5, 1e-6
SAMPLE = 20_000
"""Most documents of a file that a classifier learns from."""


@dataclass(frozen=True)
class Record:
    """One document: its text, its numbers, and the line that it is written as."""

    text: str
    numbers: Mapping[str, float]
    """NaN where there is none."""
    line: str


@dataclass
class Account:
    """How many documents were read, and dropped for which reason."""

    read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)
    """The first document that was dropped for a reason, from 1."""

    def drop(self, reason: str, number: int) -> None:
        """Count one more."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        self.first.setdefault(reason, number)

    @property
    def kept(self) -> int:
        """How many are left."""
        return self.read - sum(self.dropped.values())

    def to_json(self) -> dict[str, Any]:
        """The counts as plain values."""
        return {"read": self.read, "kept": self.kept, "dropped": dict(self.dropped), "first": dict(self.first)}

    def __str__(self) -> str:
        share = f" ({self.kept / self.read:.1%})" if self.read else ""
        lines = [f"{self.read:,} read, {self.kept:,} kept{share}"]
        lines += [f"  dropped: {n:,} {why}; the first is number {self.first[why]:,}" for why, n in self.dropped.items()]
        return "\n".join(lines)


def select(
    path: Path, column: str | None, minimum: Mapping[str, float], classifier: Classifier | None, rule: Rule | None
) -> tuple[list[str], Account]:
    """The lines that are kept, a table's first one among them, and what became of the others."""
    account, kept, scored, places = Account(), [], [], []
    for number, record in enumerate(records(path, column, tuple(minimum)), 1):
        account.read += 1
        reason = next((why for name, least in minimum.items() if (why := lacks(record, name, least))), None)
        if reason is None:
            places.append(number)
            kept.append(record.line)
            scored.append(classifier.score(record.text) if classifier else 0.0)
        else:
            account.drop(reason, number)
    if not account.read:
        raise UserError(f"{path} has no documents", todo="give a file with at least one line")
    if rule is not None:
        is_kept = rule.keeps(np.array(scored))
        for place, good in zip(places, is_kept, strict=True):
            if not good:
                account.drop(rule.reason(), place)
        kept = [line for line, good in zip(kept, is_kept, strict=True) if good]
    kind = readers.kind_of(path)
    head = [line_of(kind, next(readers.cells(path, kind))[1])] if kind in ("tsv", "csv") else []
    return head + kept, account


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Write a file as a whole or not at all."""
    draft = path.with_name(f".{path.name}.draft")
    try:
        draft.write_text("".join(lines), encoding="utf-8", newline="")
        draft.rename(path)
    except (OSError, ValueError) as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise UserError(f"{path} cannot be written: {error.strerror}", todo="give another place") from error
        raise UserError(f"{path} cannot be written: {error}", todo="mend the text: it is not UTF-8") from error


def lacks(record: Record, name: str, least: float) -> str | None:
    """Why a number does not suffice, if so."""
    value = record.numbers[name]
    if math.isnan(value):
        return f"without a number in {name}"
    return f"with {name} below {least:g}" if value < least else None


def learned(good: Path, other: Path, column: str | None) -> Classifier:
    """A classifier of the texts of two files; plain text has no columns."""
    texts = []
    for path in (good, other):
        named = column if readers.kind_of(path) else None
        found = [record.text for record in records(path, named, ()) if record.text.strip()]
        if not found:
            raise UserError(f"{path} has no text to learn from", todo="give a file with at least one line")
        stride = -(-len(found) // SAMPLE)
        texts.append(found[::stride])
    classifier = Classifier()
    classifier.fit(*texts)
    return classifier


def records(path: Path, column: str | None, wanted: Sequence[str]) -> Iterator[Record]:
    """The documents of a file: a line each, or a row; `column` holds the text, `wanted` the numbers."""
    kind = readers.kind_of(path)
    if not path.is_file():
        raise UserError(f"there is no file {path}")
    if kind in ("tsv", "csv"):
        yield from table_records(path, kind, column, wanted)
    elif kind == "jsonl":
        for number, line, record in readers.json_lines(path):
            values = [value_of(record, name, path, number) for name in (*wanted, column or "text")]
            numbers = dict(zip(wanted, map(as_number, values[:-1]), strict=True))
            yield Record(as_text(values[-1]), numbers, line + "\n")
    elif kind is None:
        if wanted or column:
            missing = (*wanted, *([column] if column else []))[0]
            raise UserError(
                f"{path} is plain text, without a column {missing!r}", todo="give a .tsv, .csv or .jsonl file"
            )
        for line in readers.lines(path):
            yield Record(line, {}, line + "\n")
    else:
        raise UserError(f"{path} cannot be filtered", todo="give a .txt, .tsv, .csv or .jsonl file")


def table_records(path: Path, kind: readers.Kind, column: str | None, wanted: Sequence[str]) -> Iterator[Record]:
    """The rows of a table whose first line names its columns."""
    rows = readers.cells(path, kind)
    number, head = next(rows, (0, []))
    if not head:
        raise UserError(f"{path} is empty", todo="give a file with at least one line")
    known = [cell.strip() for cell in head]
    names = (*wanted, column or (known[0] if len(known) == 1 else "text"))
    for name in names:
        if name not in known:
            raise UserError(f"{path} has no column {name!r}", where=readers.at(path, number), todo=nearest(name, known))
    places = [known.index(name) for name in names]
    for number, row in rows:
        if len(row) != len(known):
            found = readers.count(len(row), "cell")
            raise UserError(f"a row has {found}, but there are {len(known)} columns", where=readers.at(path, number))
        values = [row[place] for place in places]
        numbers = dict(zip(wanted, map(as_number, values[:-1]), strict=True))
        yield Record(values[-1], numbers, line_of(kind, row))


def value_of(record: Mapping[str, Any], name: str, path: Path, number: int) -> Any:
    """The value of a JSON object; one that has no such key at all is refused in the first record only."""
    value = inside(record, name)
    if value is not MISSING:
        return value
    if number == 1:
        raise UserError(
            f"{path} has no column {name!r}",
            where=readers.at(path, number),
            todo=nearest(name, keys(dict(record))),
        )
    return None


def as_number(value: Any) -> float:
    """A number, however it is written; NaN for anything else."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def line_of(kind: str, row: Sequence[str]) -> str:
    """One row of a table as it is written."""
    if kind == "tsv":
        return "\t".join(row) + "\n"
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(row)
    return line.getvalue()


def features_of(text: str) -> Int64[np.ndarray, " features"]:
    """Feature hashing of the words, word bigrams and character trigrams of a text, each once."""
    words = re.findall(r"\w+|[^\w\s]", text.lower())
    pieces = [f" {word} "[place : place + 3] for word in words for place in range(len(word))]
    named = [*words, *(f"{a} {b}" for a, b in itertools.pairwise(words)), *(f"#{piece}" for piece in pieces)]
    return np.unique(
        np.array([zlib.crc32(name.encode("utf-8", "surrogatepass")) % FEATURES for name in named], dtype=np.int64)
    )


class Classifier:
    """A logistic regression on hashed features, trained by AdaGrad: always the same for the same texts."""

    def __init__(self) -> None:
        self.weights: Float32[np.ndarray, " features"] = np.zeros(FEATURES, np.float32)
        self.bias = 0.0

    def fit(self, good: Sequence[str], other: Sequence[str]) -> None:
        """Learn to tell good texts from others; both count as much, however many there are of each."""
        examples = [(features_of(text), 1.0, len(other)) for text in good]
        examples += [(features_of(text), 0.0, len(good)) for text in other]
        weight_of = {count: 2 * count / (len(good) + len(other)) for count in {len(good), len(other)}}
        squares, random = np.full(FEATURES, 1e-8, np.float32), np.random.default_rng(0)
        bias_square = 1e-8
        for _ in range(EPOCHS):
            for place in random.permutation(len(examples)):
                found, label, count = examples[place]
                slope = weight_of[count] * (self.probability(found) - label)
                scaled = slope / math.sqrt(max(1, len(found))) + DECAY * self.weights[found]
                squares[found] += scaled**2
                self.weights[found] -= RATE * scaled / np.sqrt(squares[found])
                bias_square += slope**2
                self.bias -= RATE * slope / math.sqrt(bias_square)

    def probability(self, found: Int64[np.ndarray, " features"]) -> float:
        """How probably a text with these features is a good one."""
        logit = float(self.weights[found].sum()) / math.sqrt(max(1, len(found))) + self.bias
        return 1 / (1 + math.exp(-max(-30.0, min(30.0, logit))))

    def score(self, text: str) -> float:
        """How probably a text is a good one."""
        return self.probability(features_of(text))


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Which scores are kept: those from a threshold on, the best share of them, or GPT-3's draw."""

    threshold: float | None = None
    share: float | None = None
    alpha: float | None = None
    """Keep a document if a Pareto variate of this shape exceeds 1 − score; GPT-3 has 9."""
    seed: int = 1

    def __post_init__(self) -> None:
        if sum(value is not None for value in (self.threshold, self.share, self.alpha)) != 1:
            raise UserError("a score alone keeps nothing", todo="give one of --threshold 0.5, --keep 0.3 or --pareto 9")
        for name, value in (("--threshold", self.threshold), ("--keep", self.share)):
            if value is not None and not 0 <= value <= 1:
                raise UserError(f"{name} {value:g} does not lie between 0 and 1")
        if self.alpha is not None and self.alpha <= 0:
            raise UserError(f"--pareto {self.alpha:g} is not above 0", todo="--pareto 9, as in GPT-3")

    def keeps(self, scores: Float64[np.ndarray, " texts"]) -> Bool[np.ndarray, " texts"]:
        """Whether each of these is kept."""
        if self.threshold is not None:
            return scores >= self.threshold
        if self.share is not None:
            count = round(self.share * len(scores))
            best = np.argsort(-scores, kind="stable")[:count]
            return np.isin(np.arange(len(scores)), best)
        assert self.alpha is not None
        return np.random.default_rng(self.seed).pareto(self.alpha, len(scores)) > 1 - scores

    def reason(self) -> str:
        """Why the others are dropped."""
        if self.threshold is not None:
            return f"with a score below {self.threshold:g}"
        return f"not among the best {self.share:.0%}" if self.share is not None else "not drawn"
