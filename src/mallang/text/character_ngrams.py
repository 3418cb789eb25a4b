"""Character n-grams of words, and the numbers that they are hashed to, as in fastText.

    where, 3 to 4       <wh <whe whe wher her here ere ere> re>
    국어 as jamo        <국어∅>           every syllable has three letters, an open one an empty final

< and > mark the ends of a word, so that a prefix differs from the same letters inside a word.
"""

from __future__ import annotations

from collections.abc import Iterator

from mallang.text.hangul import decompose, is_syllable

BEGIN, END = "<", ">"
EMPTY = "∅"
"""The final consonant of an open syllable."""
OFFSET, PRIME, BITS = 2166136261, 16777619, 0xFFFFFFFF
"""The constants of FNV-1a with 32 bits."""


def character_ngrams(word: str, shortest: int, longest: int) -> list[str]:
    """The n-grams of a word between its marks, by their beginning, shorter ones first; a mark alone is none."""
    text = f"{BEGIN}{word}{END}"
    return [
        text[first : first + size]
        for first in range(len(text))
        for size in range(shortest, min(longest, len(text) - first) + 1)
        if size > 1 or 0 < first < len(text) - 1
    ]


def ngram_hashes(word: str, shortest: int, longest: int) -> Iterator[int]:
    """The hash of each of the n-grams of a word, in their order; n-grams of one beginning share its hash."""
    text = f"{BEGIN}{word}{END}"
    spelled = [character.encode("utf-8", "surrogatepass") for character in text]
    for first in range(len(text)):
        value = OFFSET
        for size, character in enumerate(spelled[first : first + longest], start=1):
            value = hashed(character, value)
            if size >= shortest and (size > 1 or 0 < first < len(text) - 1):
                yield value


def hashed(text: bytes, value: int = OFFSET) -> int:
    """The hash of fastText, FNV-1a; bytes from 128 on count as negative, as its code has it."""
    for byte in text:
        value = ((value ^ (byte if byte < 128 else byte | 0xFFFFFF00)) * PRIME) & BITS
    return value


def jamo_letters(word: str) -> str:
    """A word with every Hangul syllable as three letters; an open syllable has an empty final."""
    return "".join(decompose(each).ljust(3, EMPTY) if is_syllable(each) else each for each in word)
