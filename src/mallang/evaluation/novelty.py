"""Novelty: how much of a text occurs in a corpus already, by plagiarism or memorization.

    report = novelty(["유나는 배를 탔다."], corpus_lines, Config(unit="word"))
    print(report)                                # share of n-grams found, whole lines found, longest spans
    report.texts[0].spans                        # the verbatim spans, and the corpus rows where they occur

A unit is a word (or one punctuation mark), a character or a token of a tokenizer; white space counts only between
characters. An n-gram of a text is found if it occurs in a row of the corpus. Everything is exact: a suffix array of
texts and corpus (matching.py), without sampling or hashing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Int

from mallang.errors import UserError, nearest
from mallang.evaluation.matching import Matches
from mallang.evaluation.score import RESAMPLES, SEED, Score, Statistics
from mallang.text.tokenizer import Tokenizer
from mallang.text.unicode import normalize

Unit = Literal["word", "char", "token"]
LEAST = {"word": 5, "char": 20, "token": 8}
"""The default minimum length of a reported span in units: shorter spans are common phrases."""
ORDERS = 10
SHOWN = 10
"""Number of the longest spans in a report."""
WORD = re.compile(r"\w+|[^\w\s]")
Ids = Int[np.ndarray, " _"]
Where = Callable[[int], str]


@dataclass(frozen=True)
class Span:
    """A maximal part of a text that occurs in the corpus verbatim."""

    text: str
    start: int
    end: int
    """Its first character in the text, and the one after its last."""
    units: int
    row: int
    """The first row of the corpus that contains it, from 0."""
    times: int
    """Its count in the corpus."""

    def to_json(self, where: Where) -> dict[str, Any]:
        """Plain values for a JSON file."""
        return {**asdict(self), "where": where(self.row)}


@dataclass(frozen=True)
class Examined:
    """The results for one text."""

    text: str
    """The text in NFC, to which all positions refer."""
    units: int
    found: tuple[int, ...]
    """Number of its n-grams that are found, for n = 1, 2 …"""
    covered: int
    """Number of its units inside reported spans."""
    is_row: bool
    """Whether the whole text is a row of the corpus."""
    longest: Span | None
    spans: tuple[Span, ...]
    """All spans that are long enough, in order; they may overlap."""

    def to_json(self, where: Where) -> dict[str, Any]:
        """Plain values for a JSON file."""
        return {
            "text": self.text,
            "units": self.units,
            "ngrams": [
                {"n": n, "found": found, "of": max(0, self.units - n + 1)} for n, found in enumerate(self.found, 1)
            ],
            "covered": self.covered,
            "is_row": self.is_row,
            "longest": None if self.longest is None else self.longest.to_json(where),
            "spans": [span.to_json(where) for span in self.spans],
        }


@dataclass(frozen=True)
class Report:
    """The results for all texts together; texts without a unit do not count."""

    texts: tuple[Examined, ...]
    rows: int
    """Number of rows of the corpus."""
    config: Config
    unit: str
    """A description of the unit."""

    @cached_property
    def found(self) -> list[Score]:
        """The percentage of n-grams that are found, for n = 1, 2 … as long as there are any."""
        most = min(self.config.orders, max(text.units for text in self.texts))
        tables = [[(text.found[n], max(0, text.units - n)) for text in self.texts] for n in range(most)]
        return [self.share(f"{n}-grams found", table) for n, table in enumerate(tables, 1)]

    @cached_property
    def covered(self) -> Score:
        """The percentage of units inside reported spans."""
        table = [(text.covered, text.units) for text in self.texts]
        return self.share("covered by spans", table, f"|least:{self.config.shortest}")

    @cached_property
    def whole(self) -> Score:
        """The percentage of texts that are rows of the corpus."""
        return self.share("whole lines found", [(int(text.is_row), int(text.units > 0)) for text in self.texts])

    @property
    def spans(self) -> list[Span]:
        """The longest span of each text, the longest of them first, each once."""
        found = sorted((text.longest for text in self.texts if text.longest), key=lambda span: -span.units)
        return list({span.text: span for span in reversed(found)}.values())[::-1][:SHOWN]

    def share(self, name: str, table: list[tuple[int, int]], more: str = "") -> Score:
        """The sum of the first numbers as a percentage of the sum of the second, with its interval over texts."""
        about = f"unit:{self.unit}|lowercase:{self.config.lowercase}|rows:{'joined' if self.config.across else 'apart'}"
        about += f"|corpus:{self.rows} rows|bs:{RESAMPLES}|seed:{SEED}{more}"
        counted = np.array([pair for pair in table if pair[1]])
        return Statistics(name, counted, lambda sums: float(100 * sums[0] / sums[1]), about).score()

    @property
    def scores(self) -> list[Score]:
        """All numbers, each with its signature and its interval."""
        return [*self.found, self.covered, self.whole]

    def __str__(self) -> str:
        return "\n".join([str(score) for score in self.scores])

    def to_json(self, where: Where = str) -> dict[str, Any]:
        """Plain values for a JSON file; `where` names a row of the corpus."""
        return {
            "scores": [score.to_json() for score in self.scores],
            "longest": [span.to_json(where) for span in self.spans],
            "corpus_rows": self.rows,
            "texts": [text.to_json(where) for text in self.texts],
        }


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of a novelty report."""

    unit: Unit = "word"
    """Words, characters or tokens."""
    lowercase: bool = False
    """Whether case is ignored."""
    orders: int = ORDERS
    """The maximum n of n-grams."""
    least: int | None = None
    """The minimum length of a reported span; not given: 5 words, 20 characters, 8 tokens."""
    across: bool = False
    """Whether a span may continue in the next row of the corpus: for running text with line breaks."""

    def __post_init__(self) -> None:
        if self.unit not in get_args(Unit):
            raise UserError(f"texts cannot be compared by {self.unit!r}", todo=nearest(self.unit, get_args(Unit)))
        if self.orders < 1 or (self.least is not None and self.least < 1):
            raise UserError("n-grams and spans have at least 1 unit", todo="--orders 10 --least 5")
        if self.unit == "token" and self.lowercase:
            raise UserError("tokens are as their tokenizer makes them", todo="leave --lowercase out, or --unit word")

    @property
    def shortest(self) -> int:
        """The minimum length of a reported span in units."""
        return LEAST[self.unit] if self.least is None else self.least


def novelty(
    texts: Sequence[str], corpus: Iterable[str], config: Config | None = None, tokenizer: Tokenizer | None = None
) -> Report:
    """Compare texts with the rows of a corpus; the unit token needs a tokenizer."""
    config = config or Config()
    cut = Cutter(config, tokenizer)
    texts = [normalize(text) for text in texts]
    rows = cut.rows([normalize(row) for row in corpus])
    pieces = [cut.places(text) for text in texts]
    if not any(len(ids) for ids, _ in pieces):
        raise UserError("there is no text to examine", todo="give texts, or a file with one text per line")
    if not any(map(len, rows)):
        raise UserError("the corpus is empty: nothing can be found in it", todo="give a corpus with at least one word")
    found = Finder(rows, [ids for ids, _ in pieces], config)
    examined = tuple(
        found.examine(number, text, places)
        for number, (text, (_, places)) in enumerate(zip(texts, pieces, strict=True))
    )
    return Report(examined, len(rows), config, cut.name)


class Cutter:
    """Splits texts into units and gives each an id."""

    def __init__(self, config: Config, tokenizer: Tokenizer | None) -> None:
        if (tokenizer is not None) != (config.unit == "token"):
            missing = "needs a tokenizer" if tokenizer is None else "has no use for a tokenizer"
            raise UserError(f"the unit {config.unit} {missing}", todo="--unit token --run RUN")
        self.config, self.tokenizer = config, tokenizer
        self.known: dict[str, int] = {}
        self.name = config.unit if tokenizer is None else f"token ({tokenizer.config.unit})"

    def rows(self, texts: Sequence[str]) -> list[Ids]:
        """The ids of the units of many texts."""
        if self.tokenizer is not None:
            return [np.array(ids, dtype=np.int64) for ids in self.tokenizer.encode_batch(texts)]
        return [self.ids(text) for text in texts]

    def ids(self, text: str) -> Ids:
        """The ids of a text's words or characters."""
        text = self.folded(text)
        if self.config.unit == "char":
            return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.int64)
        known = self.known
        return np.array([known.setdefault(word, len(known)) for word in WORD.findall(text)], dtype=np.int64)

    def places(self, text: str) -> tuple[Ids, list[tuple[int, int]]]:
        """The ids of a text's units, and their character spans."""
        if self.tokenizer is not None:
            encoded = self.tokenizer.encode(text)
            return np.array(encoded.ids, dtype=np.int64), encoded.offsets
        if self.config.unit == "char":
            return self.ids(text), [(place, place + 1) for place in range(len(text))]
        return self.ids(text), [word.span() for word in WORD.finditer(text)]

    def folded(self, text: str) -> str:
        """The text in lower case if case is ignored; every character keeps its position."""
        if not self.config.lowercase:
            return text
        lower = text.lower()
        if len(lower) == len(text):
            return lower
        return "".join(small if len(small := letter.lower()) == 1 else letter for letter in text)


class Finder:
    """Matches texts, as one array of ids, against the corpus, as another."""

    def __init__(self, rows: Sequence[Ids], texts: Sequence[Ids], config: Config) -> None:
        self.config = config
        self.rows = {row.tobytes() for row in rows if len(row)}
        self.texts = texts
        gap = 0 if config.across else 1
        self.row_starts = np.cumsum([0, *(len(row) + gap for row in rows)])
        self.starts = np.cumsum([0, *(len(text) + 1 for text in texts)])
        boundary = np.array([-1], dtype=np.int64)
        corpus = [part for row in rows for part in ((row,) if config.across else (row, boundary))]
        self.matches = Matches(
            np.concatenate(corpus), np.concatenate([part for text in texts for part in (text, boundary)])
        )

    def examine(self, number: int, text: str, places: Sequence[tuple[int, int]]) -> Examined:
        """The results for one text."""
        start, ids = int(self.starts[number]), self.texts[number]
        lengths = self.matches.lengths[start : start + len(ids)]
        # A span is maximal if the one that begins a unit earlier ends earlier.
        is_whole = np.concatenate([[True], lengths[1:] >= lengths[:-1]]) if len(ids) else np.zeros(0, dtype=bool)
        begins = np.flatnonzero(is_whole & (lengths >= self.config.shortest))
        reached = np.zeros(len(ids) + 1, dtype=np.int64)
        np.add.at(reached, begins, 1)
        np.add.at(reached, begins + lengths[begins], -1)

        def span(place: int) -> Span:
            units = int(lengths[place])
            first, last = places[place][0], places[place + units - 1][1]
            found = self.matches.places(start + place, units)
            row = int(np.searchsorted(self.row_starts, found[0], side="right")) - 1
            return Span(text[first:last], first, last, units, row, len(found))

        best = int(lengths.argmax()) if len(ids) else 0
        return Examined(
            text=text,
            units=len(ids),
            found=tuple(int((lengths >= n).sum()) for n in range(1, self.config.orders + 1)),
            covered=int((np.cumsum(reached)[:-1] > 0).sum()),
            is_row=ids.tobytes() in self.rows,
            longest=span(best) if len(ids) and lengths[best] else None,
            spans=tuple(span(int(place)) for place in begins),
        )
