"""A text as words with their places in it, for taggers: what a user writes is split as the training words were.

| split      | a word is                                                                                  |
|------------|--------------------------------------------------------------------------------------------|
| words      | letters and digits, also around one mark as in 3.14, AL-AIN or don't; any other character  |
| treebank   | the same with n't and 's apart, as in the Penn Treebank and most English corpora: do n't    |
| spaces     | whatever stands between white space                                                        |
| characters | what a reader sees as one character, spaces too                                            |
| morphemes  | a Korean morpheme in its dictionary form, by the analyzer Kiwi                             |

Offsets count code points of the text as it was given, so that `text[word.start : word.end]` is what was read.
"""

from __future__ import annotations

from functools import cache
from typing import Literal, NamedTuple

from tokenizers import Regex, pre_tokenizers

from mallang.text import morphemes
from mallang.text.pieces import not_text

Split = Literal["words", "treebank", "spaces", "characters", "morphemes"]
PATTERNS = {
    "words": r"\w+(?:[.,:'’/&-]\w+)*|\X",
    "treebank": r"\w+?(?=n['’]t\b)|n['’]t\b|['’](?:s|ll|re|ve|d|m)\b|\w+(?:[.,:/&-]\w+)*|\X",
    "spaces": r"\S+",
    "characters": r"\X",
}
"""What a word is; where \\X, a character as a reader sees it, is white space, it is a word in `characters` alone."""


class Word(NamedTuple):
    """A word and its place in a text."""

    text: str
    start: int
    end: int


def split_words(text: str, split: Split) -> list[Word]:
    """The words of a text."""
    if split == "morphemes":
        found = [Word(form, start, end) for form, start, end in morphemes.morphemes(text)]
        return [word for word in found if word.end > word.start]
    try:
        pieces = splitter(split).pre_tokenize_str(text)
    except (TypeError, UnicodeEncodeError) as error:
        raise not_text(text, "the text to split into words") from error
    words = [Word(piece, start, end) for piece, (start, end) in pieces]
    return words if split == "characters" else [word for word in words if not word.text.isspace()]


@cache
def splitter(split: Split) -> pre_tokenizers.PreTokenizer:
    """The part of the `tokenizers` library that splits in this way."""
    return pre_tokenizers.Split(Regex(PATTERNS[split]), "isolated")


def joined(words: list[str]) -> list[Word]:
    """Words that are given one by one, with the places they have when spaces stand between them."""
    places, start = list[Word](), 0
    for word in words:
        places.append(Word(word, start, start + len(word)))
        start += len(word) + 1
    return places
