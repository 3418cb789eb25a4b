"""A bilingual lexicon: pairs of a source word and a target word."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mallang.data.corpus import Config, open_files
from mallang.data.readers import Row, kind_of, lines
from mallang.errors import UserError


def read_lexicon(path: Path | str) -> list[tuple[str, str]]:
    """The pairs of a lexicon file, one source word and one target word per line; a word may have several lines.

    Tables (.tsv, .csv, .jsonl, .parquet) are read as training data is: by columns named source and target, else the
    first two. In a text file a tab or white space separates the two words.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise UserError(f"there is no lexicon {path}", todo="give a file with a source and a target word per line")
    if kind_of(path) not in (None, "text"):
        rows: Iterator[Row] = iter(open_files({"train": str(path)}, Config(), ("source", "target")).split("train"))
    else:
        whole = list(lines(path))  # so that the file is closed before a line is refused
        rows = (pair(line, f"{path}, line {number}") for number, line in enumerate(whole, start=1))
    pairs = [(source.strip(), target.strip()) for source, target in rows]
    for number, words in enumerate(pairs, start=1):
        if not all(words):
            raise UserError("a row must hold a source word and a target word", where=f"{path}, row {number}")
    return pairs


def pair(line: str, where: str) -> tuple[str, str]:
    """The two words of a line of text."""
    words = line.split("\t") if "\t" in line else line.split()
    if len(words) != 2 or not all(word.strip() for word in words):
        raise UserError("a line must hold a source word, a tab or a space, and a target word", where=where)
    return words[0], words[1]
