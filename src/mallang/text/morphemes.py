"""Korean text split at morpheme boundaries: 학교에서 먹었다 becomes 학교|에서 먹|었|다.

The analyzer, Kiwi, gives the morphemes and their offsets. Only the offsets are used: pieces are always parts of the
text itself, so joining them restores it. A syllable with parts of two morphemes stays whole, as 했 (하 + 았) does.
Within morphemes BPE applies (Park et al. 2020, An Empirical Study of Tokenization Strategies for Various Korean NLP
Tasks, arXiv:2010.02534). Text without Hangul is not analyzed, and no split is made between two non-Hangul characters,
so that English is split in the same way everywhere.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.metadata import version
from itertools import accumulate, chain, islice, pairwise
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models
from tokenizers.normalizers import Normalizer

from mallang.errors import require
from mallang.text.analyzed import BATCH, HANGUL, VARIABLE, Analyzed, Analyzer
from mallang.text.hangul import LETTERS
from mallang.text.pieces import not_text


class Kiwi:
    """The analyzer of kiwipiepy (Lee 2024), with its own model and dictionary."""

    def __init__(self) -> None:
        package = require("kiwipiepy", "ko")
        self.name = f"kiwipiepy=={version('kiwipiepy')} kiwipiepy_model=={version('kiwipiepy_model')}"
        self.kiwi: Any = package.Kiwi(num_workers=os.cpu_count() or 1)

    def cuts(self, texts: Sequence[str]) -> Iterator[set[int]]:
        """The start and the end of every morpheme."""
        for tokens in self.kiwi.tokenize(texts):
            yield {place for token in tokens for place in (token.start, token.start + token.len)}

    def morphemes(self, text: str) -> list[tuple[str, int, int]]:
        """The morphemes of a text in their dictionary forms, with the places that they come from.

        Two may come from one syllable, as 하 and 었 of 했. A final consonant by itself is a letter as people type it.
        """
        tokens = self.kiwi.tokenize(text)
        return [(letters(token.form), token.start, token.start + token.len) for token in tokens]


def analyzer() -> Analyzer:
    """The analyzer; text that was analyzed before in its place if MALLANG_MORPHEMES names it."""
    named = os.environ.get(VARIABLE)
    return analyzed_text(named) if named else kiwi()


@cache
def analyzed_text(path: str) -> Analyzer:
    """Analyzed text of a file, read once."""
    return Analyzed(Path(path))


@cache
def kiwi() -> Kiwi:
    """The analyzer itself, loaded once; it takes a second and some 300 MB."""
    return Kiwi()


def morphemes(text: str) -> list[tuple[str, int, int]]:
    """The morphemes of a text in their dictionary forms, with the places that they come from."""
    return kiwi().morphemes(text)


def analyzer_like(name: str) -> Analyzer:
    """The installed analyzer; a warning says if it is not `name`, since it may split some words differently."""
    found = analyzer()
    if found.name != name:
        warnings.warn(
            f"the tokenizer was learned with {name}, but {found.name} is here and may cut some words differently; "
            f"`pip install {name}` brings the first back",
            stacklevel=3,
        )
    return found


def chunks(texts: Sequence[str], normalizer: Normalizer, analyzer: Analyzer) -> list[list[str]]:
    """Each text, normalized and with a space before it, split between the morphemes of a word, not between words."""
    normal = [normalizer.normalize_str(text) for text in texts]
    is_korean = [HANGUL.search(text) is not None for text in normal]
    korean = [text for text, is_one in zip(normal, is_korean, strict=True) if is_one]
    found = iter(analyzer.cuts(korean) if korean else ())
    return [_cut(text, next(found) if is_one else ()) for text, is_one in zip(normal, is_korean, strict=True)]


def in_chunks(lines: Iterable[str], normalizer: Normalizer, analyzer: Analyzer) -> Iterator[str]:
    """The chunks of many lines, one after the other."""
    source, done = iter(lines), 0
    while batch := list(islice(source, BATCH)):
        try:
            found = chunks(batch, normalizer, analyzer)
        except UnicodeEncodeError as error:
            place = next(i for i, line in enumerate(batch) if _is_broken(line))
            raise not_text(batch[place], f"line {done + place + 1} of the text to learn from") from error
        yield from chain.from_iterable(found)
        done += len(batch)


def encode(text: str, backend: Tokenizer, analyzer: Analyzer) -> tuple[list[int], list[tuple[int, int]]]:
    """The ids of a text, and their character offsets."""
    (parts,) = chunks([text], backend.normalizer, analyzer)
    encoded = backend.encode(parts, is_pretokenized=True, add_special_tokens=False)
    # One unknown token per character of the normalized text gives its offset in the original text.
    aligner = Tokenizer(models.BPE({"?": 0}, [], unk_token="?"))
    aligner.normalizer = backend.normalizer
    origins = aligner.encode(text).offsets
    starts = list(accumulate(map(len, parts), initial=-1))  # the prepended space is not a character of the text
    offsets = []
    for part, (begin, end) in zip(encoded.word_ids, encoded.offsets, strict=True):
        start = starts[part or 0]
        first, last = max(0, start + begin), start + end - 1
        offsets.append((origins[first][0], origins[last][1]) if last >= first else (0, 0))
    return encoded.ids, offsets


def _cut(text: str, places: Iterable[int]) -> list[str]:
    """A text with a space before it, split at the allowed places; an empty text has no chunk."""
    inner = sorted(place for place in places if 0 < place < len(text) and _divides(text[place - 1], text[place]))
    return [" " * (start == 0) + text[start:end] for start, end in pairwise([0, *inner, len(text)])] if text else []


def _divides(left: str, right: str) -> bool:
    """Whether a split between these characters is between morphemes, not at a space or inside English."""
    return " " not in (left, right) and HANGUL.search(left + right) is not None


def letters(form: str) -> str:
    """A form with its conjoining jamo as letters, ㄹ for the ᆯ of 갈."""
    return "".join(LETTERS.get(character, character) for character in form)


def _is_broken(line: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in line)
