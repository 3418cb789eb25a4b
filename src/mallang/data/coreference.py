"""Coreference in documents: words in sentences, and clusters of mentions, each mention a span of words.

| column    | a cell is                                                                                       |
|-----------|-------------------------------------------------------------------------------------------------|
| sentences | [["Minsu", "slept", "."], ["He", "dreamed", "."]], or a sentence per line with spaces around words |
| clusters  | [[[0, 0], [3, 3]]]: a list of mentions for each cluster; a mention is its first and its last word, |
|           | counted from 0 over all words of the document; nothing, or [], where nothing is mentioned        |

This is how the JSON Lines of e2e-coref and its successors have it. A column file (.conll) has documents with clusters
in brackets, as CoNLL-2012 has them:

    #begin document (a name); part 0
    0   Minsu   (0)          (0) opens and closes a mention of cluster 0; (0 and 0) do one of both
    1   's      _            several of them have | between
    #end document
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mallang.data.source import Row
from mallang.errors import UserError

COLUMNS = ("document", "sentences", "clusters")
"""The columns of a column file: the name of each document, its sentences, its clusters."""
BEGIN, END = "#begin document", "#end document"
NAME = re.compile(r"\((?P<name>.*)\)\s*(?:;\s*part\s*0*(?P<part>\d+))?")
MARK = re.compile(r"(?P<opens>\()?(?P<cluster>\d+)(?P<closes>\))?")
NOTHING = ("_", "-", "*")
"""What stands in the column of clusters where no mention begins or ends."""
WORD = 3
"""The column of the word in CoNLL-2012, from 0."""
Mention = tuple[int, int]
"""The first and the last word of a mention."""
Clusters = tuple[tuple[Mention, ...], ...]


def read_sentences(cell: str) -> list[list[str]]:
    """The words of the sentences of a cell; sentences without words are left out."""
    plain = cell.strip()
    if plain[:1] == "[":
        try:
            found = json.loads(plain)
        except ValueError:
            found = None  # a text in brackets
        if isinstance(found, list):
            return from_json(found)
    return [words for line in cell.splitlines() if (words := line.split())]


def from_json(value: list[Any]) -> list[list[str]]:
    """Sentences out of plain values; a list of words is one sentence."""
    if value and all(isinstance(word, str) for word in value):
        value = [value]
    if not all(isinstance(words, list) and all(isinstance(word, str) for word in words) for words in value):
        raise UserError(
            "the sentences of a document are lists of words", todo='write [["Minsu", "slept", "."], ["He", "left"]]'
        )
    if any(word.split() != [word] for words in value for word in words):
        raise UserError("a word is empty, or has white space in it", todo="mend it, and the numbers in the clusters")
    return [words for words in value if words]


def read_clusters(cell: str, words: int) -> Clusters:
    """The clusters of a cell, in a document of so many words; what is not inside it is refused."""
    plain = cell.strip()
    try:
        value = json.loads(plain) if plain else []
        found = tuple(tuple(mention_of(mention) for mention in cluster) for cluster in value)
    except (ValueError, TypeError, RecursionError) as error:
        raise UserError(
            f"the clusters of a document are lists of mentions, not {shown(plain)}",
            todo="write [[[0, 0], [3, 4]]]: of each mention the first and the last word, counted from 0",
        ) from error
    owner: dict[Mention, int] = {}
    for number, cluster in enumerate(found):
        for start, end in cluster:
            if not 0 <= start <= end < words:
                raise UserError(
                    f"the mention [{start}, {end}] is not inside the document, which has {words} words",
                    todo="a mention is its first and its last word, counted from 0 over all sentences",
                )
            if owner.setdefault((start, end), number) != number:
                raise UserError(
                    f"the mention [{start}, {end}] is in two clusters", todo="join the clusters, or drop it from one"
                )
    return tuple(tuple(dict.fromkeys(cluster)) for cluster in found if cluster)


def mention_of(value: Any) -> Mention:
    """A mention out of plain values; a ValueError where it is none."""
    start, end = value
    if not all(isinstance(each, int) and not isinstance(each, bool) for each in (start, end)):
        raise ValueError("a mention is two whole numbers")
    return start, end


def shown(text: str, most: int = 60) -> str:
    """A text as a message quotes it."""
    return repr(text if len(text) <= most else text[: most - 1] + "…")


# ---- arrays ----


@dataclass(frozen=True)
class SentenceStarts:
    """The number of the first word of every sentence."""

    fingerprint: str = "sentence starts 1"

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """The starts of the sentences of every cell."""
        return [[0, *itertools.accumulate(map(len, read_sentences(text)))][:-1] for text in texts]


@dataclass(frozen=True)
class Mentions:
    """Encodes clusters as first word, last word and number of the cluster of each mention, beside the sentences."""

    fingerprint: str = "mentions 1"

    def encode_rows(self, rows: Sequence[tuple[str, ...]]) -> list[list[int]]:
        """Three numbers for each mention of every row."""
        return [self.encode(*row) for row in rows]

    def encode(self, clusters: str, sentences: str) -> list[int]:
        """The mentions of one row."""
        return self.flat(read_clusters(clusters, sum(map(len, read_sentences(sentences)))))

    def flat(self, found: Clusters) -> list[int]:
        """Three numbers for each mention."""
        return [part for number, cluster in enumerate(found) for each in cluster for part in (*each, number)]


# ---- column files ----


@dataclass
class Document:
    """A document of a column file while it is read."""

    name: str
    sentences: list[list[str]] = field(default_factory=lambda: [[]])
    mentions: list[tuple[int, int, int]] = field(default_factory=list)
    """Cluster, first and last word."""
    opened: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """The first words of mentions that are not closed yet, and their lines, by cluster."""
    words: int = 0

    def add(self, word: str, marks: str, number: int) -> None:
        """One more word, and the brackets in its line."""
        self.sentences[-1].append(word)
        for mark in [] if marks in NOTHING else marks.split("|"):
            found = MARK.fullmatch(mark)
            if found is None or not (found["opens"] or found["closes"]):
                raise UserError(f"{mark!r} is no bracket of a cluster", todo="write (0), (0 or 0), with | between")
            cluster = int(found["cluster"])
            if found["opens"]:
                self.opened.setdefault(cluster, []).append((self.words, number))
            if found["closes"]:
                if not self.opened.get(cluster):
                    raise UserError(f"cluster {cluster} is closed, but not open", todo=f"open it before, by ({cluster}")
                self.mentions.append((cluster, self.opened[cluster].pop()[0], self.words))
        self.words += 1

    def row(self) -> Row:
        """Name, sentences and clusters; a bracket that was never closed is refused."""
        left = [(line, cluster) for cluster, places in self.opened.items() for _, line in places]
        if left:
            line, cluster = min(left)
            raise UserError(
                f"the document {self.name} ends, but a mention of cluster {cluster} is still open: it began in line "
                f"{line}",
                todo=f"close it by {cluster}) in the line of its last word",
            )
        clusters: dict[int, list[Mention]] = {}
        for cluster, first, last in sorted(self.mentions, key=lambda each: (each[1], each[2])):
            clusters.setdefault(cluster, []).append((first, last))
        sentences = [sentence for sentence in self.sentences if sentence]
        return self.name, json.dumps(sentences, ensure_ascii=False), json.dumps([*clusters.values()])


def of_files(files: Iterable[tuple[Path, Iterable[str]]]) -> Iterator[Row]:
    """The documents of column files, one file after the other."""
    return (row for path, lines in files for row in documents(lines, str(path)))


def documents(lines: Iterable[str], path: str) -> Iterator[Row]:
    """The documents of a column file: name, sentences and clusters, both as JSON."""
    document: Document | None = None
    number = 0
    for number, line in enumerate(lines, start=1):
        try:
            if line.startswith(BEGIN):
                if document is not None:
                    raise UserError(f"the document {document.name} has no end", todo=f"write {END} before this line")
                document = Document(name_of(line))
            elif line.startswith(END):
                if document is None:
                    raise UserError("a document ends that has not begun", todo=f"write {BEGIN} (NAME) before it")
                if document.words:
                    yield document.row()
                document = None
            elif line.startswith("#"):
                continue
            elif not line.strip():
                if document is not None and document.sentences[-1]:
                    document.sentences.append([])
            elif document is None:
                raise UserError("a word outside of a document", todo=f"write {BEGIN} (NAME) before it")
            else:
                document.add(*word_and_marks(line), number)
        except UserError as error:
            raise UserError(error.what, where=error.where or f"{path}, line {number}", todo=error.todo) from error
    if document is not None:
        raise UserError(
            f"the document {document.name} has no end", where=f"{path}, line {number}", todo=f"write {END} after it"
        )


def name_of(line: str) -> str:
    """The name of a document, with the number of its part if that is not 0."""
    found = NAME.search(line)
    if found is None:
        raise UserError("the document has no name", todo=f"write {BEGIN} (NAME)")
    part = found["part"] or "0"
    return found["name"] if int(part) == 0 else f"{found['name']}/{part}"


def word_and_marks(line: str) -> tuple[str, str]:
    """The word of a line and its brackets, which are in the last column.

    The word is after the number of the line, in CoNLL-2012 in the fourth column, else in the first.
    """
    cells = line.split("\t") if "\t" in line else line.split()
    cells = [cell.strip() for cell in cells]
    if len(cells) < 2:
        raise UserError("one column where a word and its clusters are expected", todo="write the word, a tab, and _")
    place = 0 if len(cells) == 2 else 1 if cells[0].isdecimal() else min(WORD, len(cells) - 2)
    if not cells[place]:
        raise UserError("the word is empty", todo="mend the line")
    return cells[place], cells[-1]
