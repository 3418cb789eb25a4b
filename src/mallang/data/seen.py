"""Texts that were in training too: a score on them says little about new text.

    is_seen = seen(test_texts, train_texts)                          # a bool per test text
    is_seen = seen(test_texts, train_rows, separators(train_rows))   # the same for a text that was joined of columns

Texts are compared in lower case and with single spaces, for such copies are as known as exact ones. A text that was
joined of several columns, such as a title and an article, is in training if all of it is, or if the longest of the
columns is: an article under another title is no new text, but two articles may well share a title. Texts that a model
reads apart, such as both of a pair, must be in one row of training together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Bool, UInt64

from mallang.data.corpus import Rows
from mallang.data.excluded import Excluding, fold
from mallang.data.first_rows import First
from mallang.data.held_out import HeldOut
from mallang.data.prepared import row_sum
from mallang.data.readers import Files


def seen(texts: Iterable[str], training: Iterable[str], separators: Sequence[str] = ()) -> Bool[np.ndarray, " texts"]:
    """Whether each text is in training, or the longest of the parts between these separators; only hashes are kept."""
    wholes, longest = both_sums(texts, separators)
    known = np.unique(np.concatenate(both_sums(training, separators)))
    return np.isin(wholes, known) | np.isin(longest, known)


def both_sums(
    texts: Iterable[str], separators: Sequence[str]
) -> tuple[UInt64[np.ndarray, " texts"], UInt64[np.ndarray, " texts"]]:
    """A 64-bit sum of each text, equal for texts that are alike, and one of its longest part."""
    pairs = [(text_sum(text), text_sum(longest_part(text, separators)) if separators else 0) for text in texts]
    wholes = np.array([whole for whole, _ in pairs], np.uint64)
    return wholes, np.array([part for _, part in pairs], np.uint64) if separators else wholes


def longest_part(text: str, separators: Sequence[str]) -> str:
    """The longest part of a text between separators, each taken once and in their order: the last part may have more.

    A text without one of them was not joined in this way, and is its only part.
    """
    parts, rest = list[str](), text
    for separator in separators:
        part, found, rest = rest.partition(separator)
        if not found:
            return text
        parts.append(part)
    return max((*parts, rest), key=len)


def separators(rows: Rows) -> tuple[str, ...]:
    """What stands between the columns that the text of labeled rows was joined from.

    None where it was not joined, where the text is several columns, or where a mere space is between them.
    """
    found = [one for part in rows.parts for one in [separators_of(part)] if one]
    return found[0] if found and all(one == found[0] for one in found) else ()


def separators_of(rows: Rows) -> tuple[str, ...]:
    """The separators of the text of one corpus."""
    source = rows.source
    while isinstance(source, HeldOut | Excluding | First):
        source = source.files if isinstance(source, HeldOut) else source.whole
    if not isinstance(source, Files) or len(rows.picks) != 2:
        return ()
    pieces = source.joined.get(rows.picks[0], ())
    between = tuple(piece for piece in pieces if piece not in source.columns)
    return between if all(piece.strip(" ") for piece in between) else ()


def text_sum(text: str) -> int:
    """The sum of one text."""
    return row_sum((fold(text),))
