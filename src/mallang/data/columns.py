"""Typed columns: how the cells of a column become integers. Only text meets a tokenizer.

| kind     | a cell is                                    | its integers are                            |
|----------|----------------------------------------------|---------------------------------------------|
| text     | a text                                       | the ids of its tokens                       |
| words    | words with tabs between                      | the ids of their tokens, word after word    |
| document | sentences with line breaks between, or prose | the ids of their tokens, sentence by sentence |
| sentences | words in sentences (coreference.py)         | the ids of their tokens, word after word    |
| label    | one of a closed set of names                 | its number                                  |
| labels   | several of them, with tabs or `|` between    | their numbers                               |
| tags     | one label for each word, with tabs between   | their numbers                               |
| number   | a decimal number                             | the bits of a 32-bit float                  |
| span     | parts of another column (answers.py)         | the first and the last token of each        |
| choices  | texts to choose from (choices.py)            | the ids of their tokens, choice after choice |
| choice   | which of them is right                       | its number                                  |
| image    | an image file, or an image (images.py)       | its pixels, packed                          |
| regions  | a file of region features (images.py)        | their number, and their bits                |
| clusters | clusters of mentions (coreference.py)        | first word, last word, cluster of each mention |
| name     | the name of an entity (knowledge.py)         | the id of its one token                     |
| mentions | parts of another column (linked_text.py)     | the first and the last token of each        |
| links    | parts of another column, each with an entity | their first and last tokens and entities    |
| predicates | the lemma of each word that is a predicate, `_` for others (roles.py) | the numbers of the lemmas |
| roles    | for each predicate a role for every word (roles.py) | their numbers, predicate after predicate |

A list in JSON stands for cells with tabs as well.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from mallang.data.coreference import read_sentences
from mallang.errors import UserError, nearest, some_of
from mallang.text.scheme_detection import SchemeDetector
from mallang.text.sentences import split_sentences
from mallang.text.tag_scheme import Scheme
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import Vocabulary

Kind = Literal[
    "text", "words", "document", "sentences", "label", "labels", "tags", "number", "span", "choices", "choice", "name",
    "image", "regions", "mentions", "links", "clusters", "predicates", "roles",
]  # fmt: skip
TOKENIZED: tuple[Kind, ...] = ("text", "words", "document", "sentences", "choices", "name")
"""The kinds of columns that have a tokenizer."""
NAMED: tuple[Kind, ...] = ("label", "labels", "tags", "predicates", "roles")
"""The kinds of columns that have a set of labels."""
FORMAT = 1
MOST = 10_000
"""More labels than this are a mistake: a column of texts, or of numbers."""


@runtime_checkable
class ColumnEncoder(Protocol):
    """Turns the cells of a column into integers."""

    @property
    def fingerprint(self) -> str:
        """A sum over all that decides how it encodes."""

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """The integers of every cell."""


@runtime_checkable
class RowEncoder(Protocol):
    """Turns the cells of a column into integers, with the help of cells of other columns."""

    @property
    def fingerprint(self) -> str:
        """A sum over all that decides how it encodes."""

    def encode_rows(self, rows: Sequence[tuple[str, ...]]) -> list[list[int]]:
        """The integers of every row: its own cell, then those of the columns beside it."""


@runtime_checkable
class TextEncoder(Protocol):
    """A tokenizer, or one with changes."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens that there are."""

    @property
    def fingerprint(self) -> str:
        """A sum over all that decides how it encodes."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of every text."""


def split_cell(cell: str, kind: Kind) -> list[str]:
    """The items of a cell that holds several: words, tags or labels."""
    if kind == "sentences":
        return [word for sentence in read_sentences(cell) for word in sentence]
    if "\t" in cell and kind != "document":
        return cell.split("\t")  # before JSON: [ 1 ] with tabs between is three words
    if cell.startswith("[") and cell.endswith("]"):
        try:
            found = json.loads(cell)
            return [str(item) for part in found for item in (part if isinstance(part, list) else [part])]
        except ValueError:
            pass  # a word in brackets
    if kind == "document":
        return split_sentences(cell)
    if kind == "labels":
        return [item for item in cell.split("|") if item]
    return cell.split()


@dataclass(frozen=True)
class LabelSet:
    """A closed set of labels in the order of their numbers; the file `labels.COLUMN.json` of a run folder."""

    names: tuple[str, ...]
    kind: Kind = "label"
    counts: tuple[int, ...] = field(default=(), compare=False)
    """How often each occurs in the training text."""
    scheme: Scheme | None = field(default=None, compare=False)
    """How tags spell spans: IOB1, IOB2 or BIOES; none if they do not."""

    @classmethod
    def learn(cls, cells: Iterable[str], kind: Kind, column: str = "label") -> LabelSet:
        """The labels that occur, numbers in their order and other names in alphabetical order."""
        counted: Counter[str] = Counter()
        detector = SchemeDetector()
        for cell in cells:
            found = split_cell(cell, kind) if kind != "label" else [cell] if cell.strip() else []
            counted.update(found)
            if kind in ("tags", "roles"):
                detector.add(found)
            if len(counted) > (MOST if kind != "predicates" else 10 * MOST):
                raise UserError(
                    f"the column of the {column} has {len(counted):,} different values and more: they are no labels",
                    todo='name the right columns: data.columns=\'["text", "label"]\'',
                )
        names = sorted(counted, key=natural)
        if kind != "labels" and len(names) < 2:
            only = f"only {names[0]!r}" if names else "nothing"
            what = "sentences with at least two tags" if kind == "tags" else "rows of at least two classes"
            raise UserError(
                f"the column of the {column} holds {only}: there is nothing to tell apart",
                todo=f"give {what}, or name the right columns with data.columns",
            )
        return cls(tuple(names), kind, tuple(counted[name] for name in names), detector.scheme())

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of names, kind and scheme."""
        facts = [FORMAT, self.kind, self.names, *([] if self.scheme is None else [self.scheme])]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def ids(self) -> dict[str, int]:
        """The number of every label."""
        return {name: number for number, name in enumerate(self.names)}

    def id(self, name: str) -> int:
        """The number of a label; one that training did not see is refused."""
        if name not in self.ids:
            raise UserError(
                f"the label {name!r} does not occur in the training data, which has {some_of(self.names)}",
                todo=nearest(name, self.names),
            )
        return self.ids[name]

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """The numbers of the labels in every cell."""
        if self.kind == "label":
            return [[self.id(text)] for text in texts]
        return [[self.id(name) for name in split_cell(text, self.kind)] for text in texts]

    def save(self, folder: Path, column: str) -> None:
        """Write `labels.COLUMN.json`."""
        about: dict[str, Any] = {"format": FORMAT, "kind": self.kind, "names": self.names, "counts": self.counts}
        about |= {} if self.scheme is None else {"scheme": self.scheme}
        path = folder / f"labels.{column}.json"
        partial = path.with_name(f"{path.name}.partial")
        partial.write_text(json.dumps(about, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        partial.replace(path)

    @classmethod
    def load(cls, folder: Path, column: str) -> LabelSet:
        """Read what `save` wrote."""
        path = folder / f"labels.{column}.json"
        try:
            about = json.loads(path.read_text("utf-8"))
            names, counts = tuple(about["names"]), tuple(about.get("counts", ()))
            if about["format"] != FORMAT or not names or not all(isinstance(name, str) for name in names):
                raise ValueError("it does not hold names of labels")
            return cls(names, about["kind"], counts, about.get("scheme"))
        except FileNotFoundError as error:
            raise UserError(f"{path} is missing", todo="restore the file, or train again") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UserError(f"{path} is damaged: {error}", todo="restore the file, or train again") from error


def natural(name: str) -> tuple[int, float, str]:
    """A sorting key: numbers by their value, then all other names by the alphabet."""
    try:
        value = float(name)
        return (0, value, name) if math.isfinite(value) else (1, 0.0, name)
    except ValueError:
        return (1, 0.0, name)


@dataclass(frozen=True)
class Numbers:
    """Encodes decimal numbers as the bits of 32-bit floats; one outside the range is refused."""

    lowest: float = -math.inf
    highest: float = math.inf

    @property
    def fingerprint(self) -> str:
        """How numbers are encoded, and their range."""
        return f"float32 bits {self.lowest} {self.highest}"

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """The bits of every number."""
        return [[int(np.float32(self.read(text)).view(np.int32))] for text in texts]

    def read(self, text: str) -> float:
        """A number of the range."""
        value = read_number(text)
        if not self.lowest <= value <= self.highest:
            raise UserError(
                f"{text} is not between {self.lowest:g} and {self.highest:g}",
                todo="task.lowest and task.highest are the ends of the scale",
            )
        return value


def read_number(text: str) -> float:
    """A finite decimal number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{text!r} is no number", todo="write it as 3.5, or name the right column with data.columns")
    return value


def bits_to_number(bits: Any) -> float:
    """The number that `Numbers` encoded."""
    return float(np.asarray(bits, np.int32).view(np.float32)[0])


class Segments:
    """Encodes cells of several segments, words or sentences, each by itself: no token crosses a border.

    A segment without any token becomes `<unk>`, so that every word has a position.
    """

    def __init__(self, tokenizer: TextEncoder, kind: Kind) -> None:
        self.tokenizer, self.kind = tokenizer, kind
        self.known: dict[str, list[int]] = {}

    @property
    def fingerprint(self) -> str:
        """A sum over the tokenizer and the kind of segment."""
        return hashlib.sha256(f"{self.tokenizer.fingerprint} {self.kind}".encode()).hexdigest()

    def segments(self, texts: Sequence[str]) -> list[list[list[int]]]:
        """The ids of every segment of every cell."""
        return self.ids_of([split_cell(text, self.kind) for text in texts])

    def ids_of(self, cells: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        """The ids of every segment of cells that are split already."""
        wanted = list(dict.fromkeys(item for cell in cells for item in cell if item not in self.known))
        unknown = [self.tokenizer.vocabulary.unk]
        found = dict(zip(wanted, (ids or unknown for ids in self.tokenizer.encode_batch(wanted)), strict=True))
        if self.kind in ("words", "sentences"):  # words occur again and again, sentences do not
            self.known |= found
            found = self.known
        return [[found[item] for item in cell] for cell in cells]

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """The ids of all segments, one after the other."""
        return [[token for segment in cell for token in segment] for cell in self.segments(texts)]


@dataclass(frozen=True)
class Starts:
    """The position of the first token of every segment."""

    of: Segments

    @property
    def fingerprint(self) -> str:
        """A sum over how the segments are encoded."""
        return f"starts of {self.of.fingerprint}"

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """The starts of the segments of every cell."""
        return [np.cumsum([0, *map(len, cell)])[:-1].tolist() for cell in self.of.segments(texts)]


@dataclass(frozen=True)
class Truncated:
    """A tokenizer that reads only the first tokens of a text."""

    tokenizer: Tokenizer
    most: int

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens that there are."""
        return self.tokenizer.vocabulary

    @property
    def fingerprint(self) -> str:
        """A sum over all that decides how it encodes."""
        return f"{self.tokenizer.fingerprint} first {self.most}"

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """The first tokens of every text."""
        return [ids[: self.most] for ids in self.tokenizer.encode_batch(texts)]


@dataclass(frozen=True)
class Column:
    """One array of a prepared corpus: the column of the rows that it reads, and its encoder."""

    place: int
    encoder: ColumnEncoder | RowEncoder
    is_text: bool = True
    """Whether its length counts for filters and batches."""
    like: int | None = None
    """The array that must have as many items in every row: a tag for each word."""
    beside: tuple[int, ...] = ()
    """The further columns that a `RowEncoder` reads."""
    may_be_empty: bool = False
    """Whether an empty cell means something, such as a question without an answer."""
