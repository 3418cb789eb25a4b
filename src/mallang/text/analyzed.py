"""Korean text that was analyzed before: where its morphemes meet, kept in a file, for machines without the analyzer.

    write(Path("nsmc.morphemes.gz"), texts, normalizer_of(config), analyzer())    # where Kiwi is installed
    Analyzed(Path("nsmc.morphemes.gz")).cuts(["학교에서 먹었다"])                      # anywhere: [{0, 2, 4, 5, 7, 8}]

The first line names the analyzer; every other one is a normalized text and the offsets where a morpheme begins or ends,
as JSON. Text that is not in the file has no analysis, and is refused.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Protocol, runtime_checkable

from tokenizers.normalizers import Normalizer

from mallang.errors import UserError

VARIABLE = "MALLANG_MORPHEMES"
"""The environment variable that names a file to take instead of the analyzer."""
BATCH = 1024
"""Lines per call of the analyzer, which uses several threads."""
HANGUL = re.compile("[가-힣ㄱ-ㆎ\u1100-\u11ff\ua960-\ua97c\ud7b0-\ud7fb]")


@runtime_checkable
class Analyzer(Protocol):
    """A morphological analyzer."""

    name: str
    """Its name and version, as pip takes them."""

    def cuts(self, texts: Sequence[str]) -> Iterable[Iterable[int]]:
        """The offsets in each text where a morpheme begins or ends, in any order."""


class Analyzed:
    """An analyzer that looks texts up in a file."""

    def __init__(self, path: Path) -> None:
        self.path, self.known = path, dict[str, list[int]]()
        try:
            with opened(path, "rt") as file:
                self.name = str(json.loads(next(file))["analyzer"])
                for line in file:
                    text, places = json.loads(line)
                    self.known[text] = places
        except (OSError, EOFError, StopIteration, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{path} holds no analyzed text: {error or 'it is empty'}",
                where=f"the environment variable {VARIABLE}",
                todo="write it with `mallang data analyze`",
            ) from error  # fmt: skip

    def cuts(self, texts: Sequence[str]) -> Iterator[set[int]]:
        """The offsets in each text where a morpheme begins or ends."""
        for text in texts:
            if text not in self.known:
                raise UserError(
                    f"{self.path} has no analysis of {text!r}", where=f"the environment variable {VARIABLE}",
                    todo="analyze all splits, with the same text.lowercase, or install the analyzer: pip install "
                    "'mallang[ko]'",
                )  # fmt: skip
            yield set(self.known[text])


def write(path: Path, texts: Iterable[str], normalizer: Normalizer, analyzer: Analyzer) -> int:
    """Analyze texts and write them, each once; text without Hangul needs no analysis. How many were written."""
    normal = dict.fromkeys(normalizer.normalize_str(text) for text in texts)
    source = (text for text in normal if HANGUL.search(text) is not None)
    count = 0
    with opened(path, "wt") as file:
        file.write(json.dumps({"analyzer": analyzer.name}) + "\n")
        while batch := list(islice(source, BATCH)):
            for text, places in zip(batch, analyzer.cuts(batch), strict=True):
                file.write(json.dumps([text, sorted(places)], ensure_ascii=False) + "\n")
            count += len(batch)
    return count


def opened(path: Path, mode: str):  # type: ignore[no-untyped-def]  # gzip and plain files share no type
    """A file of text, packed if its name ends in .gz."""
    return gzip.open(path, mode, encoding="utf-8") if path.suffix == ".gz" else path.open(mode, encoding="utf-8")
