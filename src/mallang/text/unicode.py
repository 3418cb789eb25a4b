"""Unicode normalization, and sentence splitting."""

from __future__ import annotations

import re
import unicodedata
from typing import Literal, TypeAlias

Form: TypeAlias = Literal["NFC", "NFKC", "none"]


def normalize(text: str, form: Form = "NFC") -> str:
    """Unicode normalization: NFC keeps the meaning, NFKC also folds ① ㈜ Ａ into 1 (주) A."""
    return text if form == "none" else unicodedata.normalize(form, text)


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, each with the white space after it, so that joining them restores the text."""
    sentences: list[str] = []
    start = 0
    for mark in END.finditer(text):
        if mark.end() < len(text) and is_end(text, start, mark):
            sentences.append(text[start : mark.end()])
            start = mark.end()
    return [*sentences, text[start:]] if start < len(text) else sentences


BREAK = r"[\n\r\v\f\x85\u2028\u2029]"
CLOSERS = r"""["'”’)\]}»›」』〉》】）］]"""
END = re.compile(
    rf"""
      (?<![.!?…])[.!?…]++{CLOSERS}*+\s++       # He said "Stop!" Then …
    | (?<![。！？])[。！？]++{CLOSERS}*+\s*+     # full-width marks need no space after them
    | (?<=[다요죠까])[.!?…]++(?=[가-힣])         # 갔다.그리고: Korean is often typed without the space
    | {BREAK}\s*+
    """,
    re.VERBOSE,
)
HAS_BREAK = re.compile(BREAK)
BLANK = re.compile(r"\s*+")
ITEM = re.compile(r"\s*+\(?\d++\Z")
DATE = re.compile(r"\d{2,4}\.\s?\d{1,2}\.\s?\d{1,2}\Z")
WORD = re.compile(r"[^\s\"'“‘(\[]*\Z")
BEFORE_NAMES = re.compile(r"(?i:mr|mrs|ms|dr|prof|rev|gen|col|sgt|capt|st|mt|vs|cf|e\.g|i\.e)")
BEFORE_NUMBERS = re.compile(r"(?i:no|nos|fig|eq|vol|pp?|ch|sec)")


def is_end(text: str, start: int, mark: re.Match[str]) -> bool:
    """Whether the mark ends the sentence that began at `start`, rather than an abbreviation or a number."""
    if HAS_BREAK.search(mark[0]):
        blank = BLANK.match(text, start)
        return blank is None or blank.end() < mark.end()  # white space alone is no sentence
    following = text[mark.end()]
    if following.islower():
        return False  # "Stop!" he said; apples, pears etc. and more
    if mark[0].rstrip() != ".":
        return True
    near = max(start, mark.start() - 40)
    before = WORD.search(text, near, mark.start())
    word = before[0] if before else ""
    if word[-1:].isdigit():  # 2024. 3. 15. and the number that opens a list item
        in_date = following.isdigit() or DATE.search(text, near, mark.start())
        return not (in_date or ITEM.match(text, start, mark.start()))
    if BEFORE_NAMES.fullmatch(word) or (following.isdigit() and BEFORE_NUMBERS.fullmatch(word)):
        return False
    is_initial = len(word) == 1 or word[-2:-1] == "."  # J. Smith, the U.S. Army
    return not (is_initial and "A" <= word[-1:] <= "Z")
