"""How much of a text stands in a corpus already: plagiarism, or what a model memorized.

    report = novelty(["유나는 배를 탔다."], corpus_lines, Config(unit="word"))
    print(report)                                # share of n-grams found, whole lines found, longest spans
    report.texts[0].spans                        # what stands in the corpus word for word, and in which of its rows

A unit is a word (or one mark), a character or a token of a tokenizer; white space counts between characters only. An
n-gram of a text is found if the same n units stand side by side in a row of the corpus, once or often. Everything is
exact: texts and corpus are sorted together as suffixes (matching.py), nothing is sampled and nothing is hashed.
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
"""How many units a span must have to be shown, unless it is told: shorter ones are what a language is made of."""
ORDERS = 10
SHOWN = 10
"""How many of the longest spans a report names."""
WORD = re.compile(r"\w+|[^\w\s]")
Ids = Int[np.ndarray, " _"]
Where = Callable[[int], str]


@dataclass(frozen=True)
class Span:
    """A part of a text that stands in the corpus word for word, and is as long as it can be."""

    text: str
    start: int
    end: int
    """Which characters of the text it is."""
    units: int
    row: int
    """The first row of the corpus that holds it, from 0."""
    times: int
    """How often it stands in the corpus."""

    def to_json(self, where: Where) -> dict[str, Any]:
        """Plain values for a JSON file."""
        return {**asdict(self), "where": where(self.row)}


@dataclass(frozen=True)
class Examined:
    """One text beside the corpus."""

    text: str
    """In Unicode's composed form, to which all places refer."""
    units: int
    found: tuple[int, ...]
    """How many of its n-grams are found, for n = 1, 2 …"""
    covered: int
    """How many of its units lie in spans that are long enough."""
    is_row: bool
    """Whether the whole of it is a row of the corpus."""
    longest: Span | None
    spans: tuple[Span, ...]
    """All that are long enough, in order; they may overlap."""

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
    """All texts beside the corpus; the numbers are of all of them together, and those without a unit do not count."""

    texts: tuple[Examined, ...]
    rows: int
    """How many rows the corpus has."""
    config: Config
    unit: str
    """The unit in words."""

    @cached_property
    def found(self) -> list[Score]:
        """The share of n-grams that are found, from 0 to 100, for n = 1, 2 … as far as there are any."""
        most = min(self.config.orders, max(text.units for text in self.texts))
        tables = [[(text.found[n], max(0, text.units - n)) for text in self.texts] for n in range(most)]
        return [self.share(f"{n}-grams found", table) for n, table in enumerate(tables, 1)]

    @cached_property
    def covered(self) -> Score:
        """The share of units in spans that are long enough."""
        table = [(text.covered, text.units) for text in self.texts]
        return self.share("covered by spans", table, f"|least:{self.config.shortest}")

    @cached_property
    def whole(self) -> Score:
        """The share of texts that are rows of the corpus."""
        return self.share("whole lines found", [(int(text.is_row), int(text.units > 0)) for text in self.texts])

    @property
    def spans(self) -> list[Span]:
        """The longest span of each text, the longest of them first, each once."""
        found = sorted((text.longest for text in self.texts if text.longest), key=lambda span: -span.units)
        return list({span.text: span for span in reversed(found)}.values())[::-1][:SHOWN]

    def share(self, name: str, table: list[tuple[int, int]], more: str = "") -> Score:
        """The share of the first numbers in the second, of 100, with its interval over texts."""
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
        """Plain values for a JSON file; `where` is what to call a row of the corpus."""
        return {
            "scores": [score.to_json() for score in self.scores],
            "longest": [span.to_json(where) for span in self.spans],
            "corpus_rows": self.rows,
            "texts": [text.to_json(where) for text in self.texts],
        }


@dataclass(frozen=True, kw_only=True)
class Config:
    """What is compared, and how."""

    unit: Unit = "word"
    """Words, characters or tokens."""
    lowercase: bool = False
    """Whether capitals and small letters are the same."""
    orders: int = ORDERS
    """The longest n-grams to count."""
    least: int | None = None
    """The fewest units of a span to show; not given: 5 words, 20 characters, 8 tokens."""
    across: bool = False
    """Whether a span may go on in the next row of the corpus: for running text with line breaks in it."""

    def __post_init__(self) -> None:
        if self.unit not in get_args(Unit):
            raise UserError(f"texts cannot be compared by {self.unit!r}", todo=nearest(self.unit, get_args(Unit)))
        if self.orders < 1 or (self.least is not None and self.least < 1):
            raise UserError("n-grams and spans have at least 1 unit", todo="--orders 10 --least 5")
        if self.unit == "token" and self.lowercase:
            raise UserError("tokens are as their tokenizer makes them", todo="leave --lowercase out, or --unit word")

    @property
    def shortest(self) -> int:
        """The fewest units of a span to show."""
        return LEAST[self.unit] if self.least is None else self.least


def novelty(
    texts: Sequence[str], corpus: Iterable[str], config: Config | None = None, tokenizer: Tokenizer | None = None
) -> Report:
    """Hold texts against the rows of a corpus; tokens need the tokenizer that cuts them."""
    config = config or Config()
    cut = Cutter(config, tokenizer)
    texts = [normalize(text) for text in texts]
    rows = cut.rows([normalize(row) for row in corpus])
    pieces = [cut.places(text) for text in texts]
    if not any(len(ids) for ids, _ in pieces):
        raise UserError("there is no text to examine", todo="give texts, or a file with a text a line")
    if not any(map(len, rows)):
        raise UserError("the corpus is empty: nothing can be found in it", todo="give a corpus with at least one word")
    found = Finder(rows, [ids for ids, _ in pieces], config)
    examined = tuple(
        found.examine(number, text, places)
        for number, (text, (_, places)) in enumerate(zip(texts, pieces, strict=True))
    )
    return Report(examined, len(rows), config, cut.name)


class Cutter:
    """Cuts texts into units and gives each a number."""

    def __init__(self, config: Config, tokenizer: Tokenizer | None) -> None:
        if (tokenizer is not None) != (config.unit == "token"):
            missing = "needs a tokenizer" if tokenizer is None else "has no use for a tokenizer"
            raise UserError(f"the unit {config.unit} {missing}", todo="--unit token --run RUN")
        self.config, self.tokenizer = config, tokenizer
        self.known: dict[str, int] = {}
        self.name = config.unit if tokenizer is None else f"token ({tokenizer.config.unit})"

    def rows(self, texts: Sequence[str]) -> list[Ids]:
        """The numbers of the units of many texts."""
        if self.tokenizer is not None:
            return [np.array(ids, dtype=np.int64) for ids in self.tokenizer.encode_batch(texts)]
        return [self.ids(text) for text in texts]

    def ids(self, text: str) -> Ids:
        """The numbers of a text's words or characters."""
        text = self.folded(text)
        if self.config.unit == "char":
            return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.int64)
        known = self.known
        return np.array([known.setdefault(word, len(known)) for word in WORD.findall(text)], dtype=np.int64)

    def places(self, text: str) -> tuple[Ids, list[tuple[int, int]]]:
        """The numbers of a text's units, and which characters each is."""
        if self.tokenizer is not None:
            encoded = self.tokenizer.encode(text)
            return np.array(encoded.ids, dtype=np.int64), encoded.offsets
        if self.config.unit == "char":
            return self.ids(text), [(place, place + 1) for place in range(len(text))]
        return self.ids(text), [word.span() for word in WORD.finditer(text)]

    def folded(self, text: str) -> str:
        """The text in small letters if that is asked for, each in the place it had."""
        if not self.config.lowercase:
            return text
        lower = text.lower()
        if len(lower) == len(text):
            return lower
        return "".join(small if len(small := letter.lower()) == 1 else letter for letter in text)


class Finder:
    """The texts and the corpus as two arrays of numbers, held against each other."""

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
        """What of one text is found."""
        start, ids = int(self.starts[number]), self.texts[number]
        lengths = self.matches.lengths[start : start + len(ids)]
        # A span is as long as it can be if the one that begins a unit earlier ends earlier.
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
