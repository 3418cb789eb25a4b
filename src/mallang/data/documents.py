"""Documents as rows of sentences: where they are split, and how large they are in a batch.

A sentence of more than `max_words` tokens is split into parts of nearly equal length, a row each: one long sentence
would make every row of its batch as wide, and dropping its end would lose text. Rows after `max_sentences` are dropped.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Integer

from mallang.data.mixture import Drawn
from mallang.data.prepared import Prepared


def sentence_rows(
    ids: Integer[np.ndarray, " tokens"], starts: Integer[np.ndarray, " sentences"], max_words: int, max_sentences: int
) -> list[Integer[np.ndarray, " _tokens"]]:
    """The tokens of each row of a document, given where its sentences start."""
    rows: list[np.ndarray] = []
    for sentence in np.split(ids, starts[1:]):
        parts = max(1, -(-len(sentence) // max_words))
        rows += np.array_split(sentence, parts) if parts > 1 else [sentence]
        if len(rows) >= max_sentences:
            break
    return rows[:max_sentences]


def document_sizes(
    examples: Prepared | Drawn, starts: int, max_words: int, max_sentences: int
) -> tuple[Integer[np.ndarray, " documents"], Integer[np.ndarray, " documents"]]:
    """The number of rows of each document, and the number of tokens in its longest row.

    The tokens are array 0 of the examples; `starts` is the number of the array with the starts of their sentences.
    """
    if isinstance(examples, Drawn):
        rows, widths = document_sizes(examples.mixture, starts, max_words, max_sentences)
        return rows[examples.places], widths[examples.places]
    first, bounds = examples.column(starts)
    following = np.append(first[1:], 0)
    following[bounds[1:] - 1] = examples.lengths[:, 0]
    lengths = following - first
    parts = np.maximum(1, -(-lengths // max_words))
    ends = np.cumsum(parts)
    before = ends - parts  # rows before each sentence, counted from the first document
    rows_before = before - np.repeat(before[bounds[:-1]], np.diff(bounds))
    widths = np.where(rows_before < max_sentences, -(-lengths // parts), 0)
    rows = np.add.reduceat(parts, bounds[:-1])
    return np.minimum(rows, max_sentences), np.maximum.reduceat(widths, bounds[:-1])
