"""Texts that were in training too: a score on them says little about new text.

    is_seen = seen(test_texts, train_texts)    # a bool per test text

Texts are compared in lower case and with single spaces, for such copies are as known as exact ones.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from jaxtyping import Bool, UInt64

from mallang.data.excluded import fold
from mallang.data.prepared import row_sum


def seen(texts: Iterable[str], training: Iterable[str]) -> Bool[np.ndarray, " texts"]:
    """Whether each text is in training; only hashes are kept."""
    return np.isin(sums(texts), np.unique(sums(training)))


def sums(texts: Iterable[str]) -> UInt64[np.ndarray, " texts"]:
    """A 64-bit sum of each text, equal for texts that are alike."""
    return np.fromiter((text_sum(text) for text in texts), np.uint64)


def text_sum(text: str) -> int:
    """The sum of one text."""
    return row_sum((fold(text),))
