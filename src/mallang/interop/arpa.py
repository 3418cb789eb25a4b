r"""ARPA files: n-grams as text, which KenLM, SRILM, IRSTLM and most others read and write.

    \data\                     how many n-grams there are of each order
    ngram 1=3
    \1-grams:                  log10 of the probability, the words, log10 of the back-off weight, if there is one
    -0.477	a	-0.301
    \end\

`<s>` is read and never predicted: its log-probability is −99, which stands for 0. A file named *.gz is compressed.
Lines before \data\ are comments; KenLM wants them to begin with #.
"""

from __future__ import annotations

import gzip
import io
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from jaxtyping import Float64, Int64, Integer

from mallang.errors import UserError
from mallang.layers.ngram_table import LOG_ZERO, Ngrams
from mallang.text.vocabulary import BOS, PAD, SPECIALS, UNK

Rows: TypeAlias = list[list[bytes]]
"""Lines, each cut at its white space."""
LN10 = math.log(10)
ROWS = 2**15
"""Lines that are written at once."""
WRITERS = 2
MOST_DIGITS = 15
"""Maximum number of digits of an n-gram count: more than any disk holds."""
ZERO = 99
"""What is 10 to minus this power, or less, stands for 0; no weight is 10 to this power, or more."""
UNKNOWN = ("<UNK>", "<Unk>")
"""How others spell `<unk>`."""
REMEDY = "write it again with the tool it comes from"


def write(ngrams: Ngrams, tokens: Sequence[str], path: Path, comment: str = "") -> None:
    """Write a table, after a line of comment if there is one; the file is whole or not there."""
    words = spelled(tokens)
    draft = path.with_name(f".draft-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with opened(draft, "wb", packed=path.suffix == ".gz") as stream, ThreadPoolExecutor(WRITERS) as pool:
            counts = [ngrams.sizes[0] - 1, *ngrams.sizes[1:]]  # without <pad>
            stream.write(f"# {comment}\n\n".encode() if comment else b"")
            stream.write(b"\\data\\\n")
            stream.writelines(b"ngram %d=%d\n" % pair for pair in enumerate(counts, start=1))
            for order, size in enumerate(ngrams.sizes, start=1):
                stream.write(b"\n\\%d-grams:\n" % order)
                parts = [(order, first, min(first + ROWS, size)) for first in range(order == 1, size, ROWS)]
                stream.writelines(pool.map(lambda part: lines_of(ngrams, words, *part), parts))
            stream.write(b"\n\\end\\\n")
        draft.rename(path)
    except OSError as error:
        raise UserError(f"cannot write: {error.strerror or error}", where=str(path), todo="-o FILE") from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def spelled(tokens: Sequence[str]) -> np.ndarray:
    """The tokens in bytes, all of one width; refused are those that could not be read again."""
    for token in tokens:
        if not token or token.split() != [token] or "\0" in token:
            raise UserError(
                f"the token {token!r} holds white space, which parts the words of an ARPA file",
                todo="use a unit whose tokens hold none, such as text.unit=space or bpe",
            )
    return np.array([token.encode() for token in tokens])


def lines_of(ngrams: Ngrams, words: np.ndarray, order: int, first: int, end: int) -> bytes:
    """Some lines of one order: columns of fixed width side by side, then the zeros that fill them are taken out."""
    numbers = words_of(ngrams, order, first, end)
    columns: list[Any] = [*number_columns(ngrams.log_probs[order - 1][first:end]), b"\t"]
    for place, number in enumerate(numbers):
        spelling = words[number]
        longest = int(np.strings.str_len(spelling).max(initial=1))
        columns += [b" "] if place else []
        columns.append(spelling.astype(f"S{longest}"))
    if order <= len(ngrams.backoffs):
        columns += [b"\t", *number_columns(ngrams.backoffs[order - 1][first:end])]
    columns.append(b"\n")
    kinds = [(f"c{i}", column.dtype if isinstance(column, np.ndarray) else "S1") for i, column in enumerate(columns)]
    rows = np.empty(end - first, dtype=kinds)
    for (name, _), column in zip(kinds, columns, strict=True):
        rows[name] = column
    return rows.tobytes().translate(None, b"\0")


def words_of(ngrams: Ngrams, order: int, first: int, end: int) -> list[Int64[np.ndarray, " rows"]]:
    """The words of some n-grams, from the first to the last: up from each one to its history."""
    places, found = np.arange(first, end), []
    for length in range(order, 1, -1):
        places, last = np.divmod(ngrams.keys[length - 2][places], ngrams.words)
        found.append(last)
    return [places, *reversed(found)]


WHOLE, FOUR, THREE = (
    np.array([b"%d" % i for i in range(100)]),
    np.array([b".%04d" % i for i in range(10_000)]),
    np.array([b"%03d" % i for i in range(1000)]),
)


def number_columns(logs: np.ndarray) -> list[np.ndarray]:
    """Natural logarithms as those to the base of 10 with seven decimals: sign, whole part, decimals."""
    values = logs.astype(np.float64) / LN10
    scaled = np.where(logs <= LOG_ZERO / 2, 99e7, np.rint(np.abs(values) * 1e7)).astype(np.int64)
    whole, decimals = np.divmod(scaled, 10_000_000)
    four, three = np.divmod(decimals, 1000)
    return [np.where((values < 0) & (scaled > 0), b"-", b""), WHOLE[whole], FOUR[four], THREE[three]]


def read(path: Path) -> tuple[tuple[str, ...], Ngrams]:
    """The tokens and the table of a file; what is wrong with it is said with its line.

    Tokens are numbered by their code points, after the special ones.
    """
    tokens, ngrams, _ = read_all(path)
    return tokens, ngrams


def read_all(path: Path) -> tuple[tuple[str, ...], Ngrams, list[str]]:
    """The tokens, the table and the comments of a file."""
    if not path.is_file():
        raise UserError(f"there is no file {path}", todo="give the path of an ARPA file")
    try:
        with opened(path, "rb", packed=path.suffix == ".gz") as stream:
            reader = Reader(path, stream)
            return *reader.read(), reader.comments
    except (EOFError, gzip.BadGzipFile) as error:
        raise UserError(f"the file is damaged: {error}", where=str(path), todo="get it again") from error
    except OSError as error:
        raise UserError(f"cannot read: {error.strerror or error}", where=str(path)) from error


def opened(path: Path, mode: Literal["rb", "wb"], *, packed: bool) -> io.BufferedIOBase:
    """A file, packed or not."""
    if packed:
        return gzip.GzipFile(path, mode, compresslevel=6)
    return path.open("rb") if mode == "rb" else path.open("wb")


class Reader:
    """One file, read from its first line to its last."""

    def __init__(self, path: Path, stream: io.BufferedIOBase) -> None:
        self.path, self.stream, self.line = path, stream, 0
        self.words = 0
        self.comments: list[str] = []
        self.ids: dict[bytes, int] = {}
        self.keys: list[np.ndarray] = []

    def read(self) -> tuple[tuple[str, ...], Ngrams]:
        """Read the whole file."""
        counts, header = self.counts()
        tokens: tuple[str, ...] = ()
        log_probs, backoffs = [], []
        for order, count in enumerate(counts, start=1):
            if header != b"\\%d-grams:" % order:
                raise self.wrong(f"here \\{order}-grams: should stand, not {shown(header)}")
            rows = [line.split() for line in islice(self.stream, count)]
            if order == 1:
                tokens = self.number(rows)
            told, weights = self.ngrams(order, rows, count)
            log_probs.append(told)
            backoffs.append(weights)
            self.line += count
            header = self.next_line()
        if header != b"\\end\\":
            more = "more lines than its head tells of" if header and not header.startswith(b"\\") else "no \\end\\"
            raise self.wrong(f"the file has {more}")
        return tokens, Ngrams(len(tokens), self.keys, log_probs, backoffs[:-1])

    def counts(self) -> tuple[list[int], bytes]:
        """How many n-grams of each order there should be, and the line after that."""
        while (line := self.next_line()) != b"\\data\\":
            if not line:
                raise self.wrong("this is no ARPA file: it has no line \\data\\")
            if line.startswith(b"#"):
                self.comments.append(line[1:].strip().decode(errors="replace"))
        counts: list[int] = []
        while (line := self.next_line()).startswith(b"ngram "):
            order, equals, count = line[6:].partition(b"=")
            is_number = count.strip().isdigit() and len(count.strip()) <= MOST_DIGITS
            if not equals or order.strip() != b"%d" % (len(counts) + 1) or not is_number:
                raise self.wrong(f"'ngram {len(counts) + 1}=NUMBER' should stand here, not {shown(line)}")
            counts.append(int(count))
        if not counts or not counts[0]:
            raise self.wrong("the head of the file tells of no words")
        return counts, line

    def next_line(self) -> bytes:
        """The next line that is not empty, without white space around it; nothing at the end."""
        for line in self.stream:
            self.line += 1
            if line.strip():
                return line.strip()
        return b""

    def number(self, rows: Rows) -> tuple[str, ...]:
        """Give every word its number."""
        words = {row[1] for row in rows if len(row) > 1} - {word.encode() for word in (*SPECIALS, *UNKNOWN)}
        ordered = [*(word.encode() for word in SPECIALS), *sorted(words)]
        self.ids = {word: number for number, word in enumerate(ordered)}
        self.ids |= {word.encode(): UNK for word in UNKNOWN}
        self.words = len(ordered)
        try:
            return tuple(word.decode() for word in ordered)
        except UnicodeDecodeError as error:
            place = next(i for i, row in enumerate(rows) if len(row) > 1 and row[1] == error.object)
            raise self.wrong(f"{shown(error.object)} is not UTF-8", place) from error

    def ngrams(self, order: int, rows: Rows, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Log-probabilities and back-off weights of one order, sorted by their keys, which are kept."""
        try:
            values, words = columns_of(rows, order, self.ids)
            is_right = len(rows) == count
        except (ValueError, KeyError):
            is_right = False
        if not is_right:
            for place, row in enumerate(rows):
                self.check(row, order, place, count)
            raise self.wrong(
                f"its head tells of {count} {order}-grams, but the file ends after {len(rows)}", len(rows) - 1
            )
        histories = words[:, 0]
        for length in range(2, order):
            histories = self.looked_up(length, histories, words)
        keys = histories * self.words + words[:, -1] if order > 1 else histories
        sorting = np.argsort(keys, kind="stable")
        keys = keys[sorting]
        if (twice := np.flatnonzero(keys[1:] == keys[:-1])).size:
            raise self.wrong("the same n-gram stands here a second time", int(sorting[twice + 1].min()))
        logs = np.maximum(values * LN10, LOG_ZERO).astype(np.float32)[:, sorting]
        if order > 1:
            self.keys.append(keys)
            return logs[0], logs[1]
        every = np.zeros((2, self.words), dtype=np.float32)
        every[0] = LOG_ZERO
        every[:, keys] = logs
        every[0, [PAD, BOS]] = LOG_ZERO
        return every[0], every[1]

    def looked_up(
        self, length: int, histories: Integer[np.ndarray, " rows"], words: Integer[np.ndarray, "rows order"]
    ) -> Integer[np.ndarray, " rows"]:
        """The places of the first `length` words of each n-gram, by those of one word less."""
        keys = self.keys[length - 2]
        wanted = histories * self.words + words[:, length - 1]
        places: Integer[np.ndarray, " rows"] = np.searchsorted(keys, wanted)
        is_there = np.zeros(len(wanted), dtype=np.bool_)
        inside = places < len(keys)
        is_there[inside] = keys[places[inside]] == wanted[inside]
        if not is_there.all():
            raise self.wrong(f"the first {length} words are not among the {length}-grams", int(np.argmin(is_there)))
        return places

    def check(self, row: list[bytes], order: int, place: int, count: int) -> None:
        """Say what is wrong with a line, if anything is."""
        if not row or row[0].startswith(b"\\"):
            raise self.wrong(f"the head tells of {count} {order}-grams, but here they end after {place}", place)
        if len(row) not in (order + 1, order + 2):
            raise self.wrong(
                f"a number, {order} words and perhaps a number should stand here, not {len(row)} parts", place
            )
        for text, what in ((row[0], "log-probability"), *((text, "back-off weight") for text in row[order + 1 :])):
            try:
                is_right = is_log(float(text), may_be_positive=what != "log-probability")
            except ValueError:
                is_right = False
            if not is_right:
                raise self.wrong(f"{shown(text)} is no {what}", place)
        for word in row[1 : order + 1]:
            if word not in self.ids:
                raise self.wrong(f"the word {shown(word)} is not among the 1-grams", place)

    def wrong(self, what: str, place: int | None = None) -> UserError:
        """What to say of the line just read, or of the one so many places after it."""
        line = self.line if place is None else self.line + place + 1
        return UserError(what, where=f"{self.path}, line {line}", todo=REMEDY)


def columns_of(
    rows: Rows, order: int, ids: Mapping[bytes, int]
) -> tuple[Float64[np.ndarray, "2 rows"], Integer[np.ndarray, "rows order"]]:
    """Probabilities and back-off weights, and the words, of lines that are all as they should be; else an error."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    if not ((lengths == order + 1) | (lengths == order + 2)).all():
        raise ValueError
    values = np.zeros((2, len(rows)))
    values[0] = np.array([row[0] for row in rows], dtype=bytes).astype(np.float64)
    weighted = np.flatnonzero(lengths == order + 2)
    values[1, weighted] = np.array([rows[place][-1] for place in weighted.tolist()], dtype=bytes).astype(np.float64)
    if not (is_log(values[0], may_be_positive=False).all() and is_log(values[1], may_be_positive=True).all()):
        raise ValueError
    words = np.fromiter((ids[word] for row in rows for word in row[1 : order + 1]), np.int64, order * len(rows))
    return values, words.reshape(-1, order)


def is_log(value: Any, *, may_be_positive: bool) -> Any:
    """Whether a number can be a logarithm: of something that is at most 1, or of a weight that can be written again."""
    return value < ZERO if may_be_positive else value <= 0


def shown(text: bytes) -> str:
    """Some of a line, for a message."""
    return repr(text[:60].decode(errors="replace")) if text else "the end of the file"
