"""Generated corpora in place of those that are not on this machine, with the same files, columns and splits.

Word number i is spelled once in each column, so that the columns of a row say the same and a translation can be
learned. Labels, tags and numbers follow from the words, so that they can be learned as well: a label from the first
word, a tag from each word, one per token; an answer is the word after the one that is asked for. A recipe that names a
corpus reads its stand-in through the registry, with nothing changed in the recipe.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from mallang import recipe
from mallang.data import registry, storage
from mallang.data.corpus import Corpus, Joined, Rows
from mallang.data.readers import Files
from mallang.data.registry import DataSet, Entry, File
from mallang.recipe import Recipe
from mallang.training import materials, pretrained
from mallang.training.train import Options, train

KOREAN = ("ko", "document", "question", "answer", "morpheme", "token", "propose_reason")
"""Columns in Hangul; all others are in Latin letters."""
IDS = ("id", "guid", "index", "id1", "id2", "BILL_ID")
LABELS = ("label", "label_name", "coarse", "fine", "gold_label", "is_duplicate", "relation")
NUMBERS = {"score": 5, "rating": 10}
"""Columns of numbers, and the highest: scores have decimals, ratings are whole and begin at 1."""
TAGS = ("ner", "tag", "chunk")
"""Columns of BIO tags."""
CLASSES = 4
"""Labels of a column whose values the registry does not name; types of entities; parts of speech."""
CHOICES = "ABCDE"
SENTENCE = 4
"""Words of a sentence in a document."""
DOCUMENTS = ("imdb-subset", "bbc-news", "novels", "korean-assembly-bills")
BOOKS = ("novels",)
"""Corpora in which a blank line ends a document."""
BOOK = 25
"""Lines of a document there."""
EXCLUDED = ("nsmc",)
"""Corpora whose test sets recipes exclude from training text: these have one."""
SHORTEST, LONGEST = 3, 16
"""Words of a row."""
SYLLABLES = {
    True: [chr(0xAC00 + 28 * number) for number in range(0, 399, 2)],
    False: [a + b for a in "bdfghjklmnprstvwz" for b in ("a", "e", "i", "o", "u", "an", "er", "is", "ou")],
}


@dataclass(frozen=True)
class Size:
    """How much text a stand-in has."""

    rows: int
    words: int
    """Different words, each of which occurs."""


SMALL = Size(rows=300, words=400)
LARGE = Size(rows=24_000, words=40_000)
"""Enough for the largest vocabulary that a recipe asks for."""


def corpora_of(resolved: Mapping[str, Mapping[str, object]]) -> list[str]:
    """The corpora of a recipe that come from the registry, its graph too; all others are generated anyway."""
    several = resolved["data"]["corpora"]
    named = list(several) if isinstance(several, dict) else [str(resolved["data"]["corpus"])]
    named += [str(resolved["task"]["graph"])] if "graph" in resolved["task"] else []
    return [name for name in named if name in registry.names()]


def write(names: Sequence[str], size: Size) -> dict[str, Entry]:
    """Generate the stand-ins of these corpora into the cache folder; their entries for the registry."""
    return {name: write_entry(registry.entry(name), size) for name in names}


def write_entry(entry: Entry, size: Size) -> Entry:
    """One corpus: every file of its splits, and the entry that describes them."""
    home = f"stand-in-{entry.name.replace('/', '-')}"
    folder = storage.cache_folder() / "corpora" / home
    written: dict[str, File] = {}
    splits = {}
    held_out = Size(max(64, size.rows // 10), max(64, size.words // 10))
    for split in ("train", "valid", *(["test"] if entry.name in EXCLUDED else [])):
        if split not in entry.splits:  # a corpus to evaluate on alone
            continue
        how = entry.splits[split]
        for path in how.files.paths:
            if path.as_posix() not in written:
                as_documents = entry.name in DOCUMENTS
                text = text_of(how.files, path, size if split == "train" else held_out, as_documents)
                text = with_blank_lines(text) if entry.name in BOOKS else text
                place = folder / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(text)
                written[path.as_posix()] = File(len(text), hashlib.sha256(text).hexdigest(), None)
        splits[split] = replace(how, files=with_span(how.files, entry, folder))
    return replace(entry, splits=splits, home=DataSet(home, "generated", "", written))


def text_of(files: Files, path: Path, size: Size, as_documents: bool = False) -> bytes:
    """The content of one file of a split."""
    random = np.random.default_rng(zlib.crc32(path.stem.encode()))  # the same rows for the files of all columns
    rows = word_rows(random, size)
    if files.read == "conll":
        comment = f"{files.comment}\n" if files.comment else ""
        return "\n".join(comment + column_lines(row, files.columns) for row in rows).encode()
    if files.read == "coreference":
        return "".join(clustered(row, number) for number, row in enumerate(rows)).encode()
    if files.read == "srl":
        return "".join(role_lines(row) + "\n" for row in rows).encode()
    if files.read in ("squad", "qnli"):
        sentences = files.read == "qnli"
        return json.dumps({"data": [article(row, number, sentences) for number, row in enumerate(rows)]}).encode()
    if files.read == "fewrel":
        return "".join(json.dumps(relation_of(row)) + "\n" for row in rows).encode()
    if files.read == "renamed" and path != files.paths[0]:
        return entity_names(size)
    if files.read == "jsonl":
        return "".join(json.dumps(nested(row, number, files)) + "\n" for number, row in enumerate(rows)).encode()
    if files.read == "parallel":
        columns: tuple[str, ...] = (files.columns[files.paths.index(path)],)
    elif files.read in ("text", "tsv", "parquet", "renamed"):
        columns = files.columns
    else:
        raise NotImplementedError(f"{path} is read as {files.read}, which no stand-in is written as yet")
    cells = [[cell(row, number, column, files, as_documents) for column in columns] for number, row in enumerate(rows)]
    if files.read == "parquet":
        return parquet_of(dict(zip(columns, map(list, zip(*cells, strict=True)), strict=True)))
    lines = [*([list(columns)] if files.header else []), *cells]
    return "".join("\t".join(line) + "\n" for line in lines).encode()


def with_blank_lines(text: bytes) -> bytes:
    """A text with a blank line after so many."""
    lines = text.splitlines(keepends=True)
    return b"".join(line + (b"\n" if number % BOOK == 0 else b"") for number, line in enumerate(lines, start=1))


def parquet_of(columns: Mapping[str, Sequence[str]]) -> bytes:
    """A Parquet file with these columns."""
    import pyarrow
    import pyarrow.parquet

    written = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(dict(columns)), written)
    return bytes(written.getvalue())


def cell(row: np.ndarray, number: int, column: str, files: Files, as_documents: bool) -> str:
    """What a column says of a row."""
    first = int(row[0])
    if column in ("head", "tail"):  # entities of a graph: one name each
        return word(int(row[int(column == "tail")]), "entity")
    if column in IDS:
        return f"{Path(files.paths[0]).stem}-{number}"
    if column in NUMBERS:
        highest = NUMBERS[column]
        return f"{first % (10 * highest + 1) / 10:.1f}" if column == "score" else str(1 + first % highest)
    if column in LABELS:
        names = list(files.values.get(column, {})) or [str(label) for label in range(CLASSES)]
        return names[first % len(names)]
    if as_documents:
        return " ".join(f"{spelled(part, column)}." for part in np.split(row, range(SENTENCE, len(row), SENTENCE)))
    return spelled(row, column)


def article(row: np.ndarray, number: int, sentences: bool = False) -> dict[str, object]:
    """An article of a SQuAD file with one question; its answer is the word after the one that the question names.

    With `sentences`, its context has more than one.
    """
    first, second = (word(int(each), "context") for each in row[:2])
    asked = {"id": f"q{number}", "question": word(int(row[0]), "question")}
    answers = [{"text": second, "answer_start": len(first) + 1}]
    context = spelled(row, "context")
    if sentences:
        context = ". ".join(spelled(part, "context").capitalize() for part in (row[:2], row[2:])) + "."
        answers[0]["text"] = context[len(first) + 1 : len(first) + 1 + len(second)]
    return {"title": f"t{number}", "paragraphs": [{"context": context, "qas": [{**asked, "answers": answers}]}]}


def nested(row: np.ndarray, number: int, files: Files) -> dict[str, object]:
    """A line of JSON whose columns may lie in others, such as question.stem."""
    found: dict[str, object] = {}
    for column in files.columns:
        *folders, name = column.split(".")
        place = found
        for folder in folders:
            place = place.setdefault(folder, {})  # type: ignore[assignment]
        place[name] = multiple_choice(row, name) or cell(row, number, column, files, False)
    return found | (typed_mention(row) if "ents" in files.columns else {})


def typed_mention(row: np.ndarray) -> dict[str, object]:
    """A sentence whose first word is a mention with types; its first two words are linked to entities."""
    first, second = (word(int(each), "sent") for each in row[:2])
    start = len(first) + 1
    links = [[f"Q{row[0]}", 0, len(first), 0.9], [f"Q{row[1]}", start, start + len(second), 0.4]]
    labels = [str(label) for label in range(CLASSES) if int(row[0]) % (label + 2) == 0]
    return {"sent": spelled(row, "sent"), "start": 0, "end": len(first), "labels": labels, "ents": links}


def relation_of(row: np.ndarray) -> dict[str, object]:
    """An object of a FewRel file: the first two words are head and tail, the relation follows from the first."""
    words = [word(int(each), "text") for each in row]
    head, tail = ([words[place], f"Q{row[place]}", [[place]]] for place in (0, 1))
    return {"relation": f"P{int(row[0]) % CLASSES}", "tokens": words, "h": head, "t": tail}


def entity_names(size: Size) -> bytes:
    """A table with another name for every entity of a graph."""
    lines = ["entity\tname", *(f"{word(number, 'entity')}\tQ{number}" for number in range(size.words))]
    return "".join(f"{line}\n" for line in lines).encode()


def multiple_choice(row: np.ndarray, name: str) -> object:
    """Five labeled choices, or which of them is right: the one that is the first word of the row."""
    first = int(row[0])
    right = first % len(CHOICES)
    if name == "answerKey":
        return CHOICES[right]
    if name != "choices":
        return None
    return [{"label": each, "text": word(first + k - right, "choices")} for k, each in enumerate(CHOICES)]


def column_lines(row: np.ndarray, columns: Sequence[str]) -> str:
    """A sentence of a column file, a line per token."""
    filled = [bio(row) if name in TAGS else [tag_or_word(int(word), name) for word in row] for name in columns]
    return "".join("\t".join(token) + "\n" for token in zip(*filled, strict=True))


def clustered(row: np.ndarray, number: int) -> str:
    """A document of a coreference file: words with the same remainder mean the same, the others mean nothing."""
    lines = []
    for place, each in enumerate(row.tolist()):
        end = "\n" if place % SENTENCE == SENTENCE - 1 else ""
        lines.append(f"{place}\t{word(each, 'sentences')}\t{f'({each % 8})' if each % 8 < CLASSES else '_'}\n{end}")
    return f"#begin document (d{number}); part 0\n{''.join(lines)}#end document\n"


def role_lines(row: np.ndarray) -> str:
    """A sentence of a file of roles: every fifth has no predicate; the words around one have roles by what they are."""
    place = 1 if row[0] % 5 else -1
    lines = []
    for number, each in enumerate(row.tolist()):
        sense, role = "_", "_"
        if place >= 0:
            sense = f"{word(each, 'predicate')}.01" if number == place else "_"
            role = "V" if number == place else "ARG0" if number == 0 else f"ARGM-{each % CLASSES}" if each % 3 else "_"
        cells = [
            number + 1,
            word(each, "words"),
            f"P{each % CLASSES}",
            0 if number == max(place, 0) else max(place, 0) + 1,
        ]
        lines.append("\t".join(map(str, [*cells, "dep", sense, role])) + "\n")
    return "".join(lines)


def tag_or_word(number: int, column: str) -> str:
    """A part of speech, or the word itself."""
    return f"P{number % CLASSES}" if column == "pos" else word(number, column)


def bio(row: np.ndarray) -> list[str]:
    """The entity tags of a sentence in BIO: some words begin an entity, some go on with one."""
    tags = ["O"]
    for number in row.tolist():
        kind = number % (3 * CLASSES)
        if kind < CLASSES:
            tags.append(f"B-E{kind}")
        else:
            tags.append(f"I-{tags[-1][2:]}" if kind < 2 * CLASSES and tags[-1] != "O" else "O")
    return tags[1:]


def word_rows(random: np.random.Generator, size: Size) -> list[np.ndarray]:
    """Rows of word numbers: every word once, all others drawn by Zipf's law."""
    lengths = random.integers(SHORTEST, LONGEST + 1, size.rows)
    total = int(lengths.sum())
    drawn = np.minimum(np.exp(random.random(total) * np.log(size.words)).astype(int), size.words) - 1
    some = random.permutation(total)[: min(size.words, total)]
    drawn[some] = np.arange(len(some))
    return np.split(drawn, np.cumsum(lengths)[:-1])


def spelled(row: np.ndarray, column: str) -> str:
    """A row in the words of a column."""
    return " ".join(word(int(number), column) for number in row)


@cache
def word(number: int, column: str) -> str:
    """A word of a column: no two numbers have the same."""
    syllables, salt = SYLLABLES[column in KOREAN], zlib.crc32(column.encode()) % 89
    first, rest = number % len(syllables), number // len(syllables)
    ending = word(rest - 1, column) if rest else ""
    return syllables[(first + salt) % len(syllables)] + ending


def with_span(files: Files, entry: Entry, folder: Path) -> Files:
    """The same share of the file, to the next end of a line, where a split is a part of it."""
    if files.span is None:
        return files
    path = files.paths[0]
    text, before = (folder / path).read_bytes(), entry.home.files[path.as_posix()].bytes
    places = [0 if place == 0 else text.index(b"\n", place * len(text) // before - 1) + 1 for place in files.span]
    return replace(files, span=(places[0], places[1]))


def given_runs(name: str, folder: Path, changes: Callable[[str], Recipe], device: str) -> list[str]:
    """Train the runs that a recipe is given, each by the recipe of its name; the values that name them then.

    They are of this recipe alone: others may be trained at the same time, by recipes that are tried themselves.
    """
    found = []
    for role, path in recipe.read(name).resolved().get("given", {}).items():
        if path is None:  # it could be given one, and is not
            continue
        place = folder / f"given-{name}" / Path(path).name
        if not (place / "model.safetensors").exists():
            train(changes(place.name), Options(folder=place, device=device, quiet=True, fresh=True))
        found.append(f"given.{role}={place}")
    return found


@contextmanager
def in_registry(entries: Mapping[str, Entry]) -> Iterator[None]:
    """While the block runs, these are the corpora of their names; vectors of packages are random."""
    before, installed = registry._entries, pretrained.packaged
    joined = {**before(), **entries}
    registry._entries = lambda: joined  # type: ignore[assignment]
    pretrained.packaged = vectors  # type: ignore[assignment]
    try:
        yield
    finally:
        registry._entries, pretrained.packaged = before, installed  # type: ignore[assignment]


def vectors(name: str) -> Path:
    """A folder with random vectors of the words of stand-ins, of the size that the name ends in: glove-6b-50d."""
    folder = storage.cache_folder() / "vectors" / name
    if not folder.exists():
        folder.mkdir(parents=True)
        size = int(name.rpartition("-")[2].removesuffix("d"))
        np.save(folder / "table.npy", np.random.default_rng(1).standard_normal((LARGE.words, size), dtype=np.float32))
        (folder / "table.txt").write_text("".join(f"{word(i, 'word')}\n" for i in range(LARGE.words)), "utf-8")
    return folder


@contextmanager
def shortened(**rows: int) -> Iterator[None]:
    """While the block runs, a training run reads so many rows of each split: `shortened(valid=64)`."""
    before = materials.open_corpus

    def open_corpus(*given: object) -> Corpus:
        corpus = before(*given)  # type: ignore[arg-type]
        cut = {name: first(corpus.split(name), most) for name, most in rows.items()}
        return replace(corpus, splits={**corpus.splits, **cut})

    materials.open_corpus = open_corpus  # type: ignore[assignment]
    try:
        yield
    finally:
        materials.open_corpus = before


def first(rows: Rows, most: int) -> Rows:
    """The first rows of a split; of each corpus where there are several."""
    if isinstance(rows.source, Joined):
        members = [replace(member, rows=first(member.rows, most)) for member in rows.source.members]
        return Rows.joined(members, rows.columns, rows.source.untagged)
    return Rows.of(list(itertools.islice(rows, most)), rows.columns, rows.name)
