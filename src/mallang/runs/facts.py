"""The triples that a run's data says are true, over all its splits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mallang.data.corpus import SPLITS, open_corpus
from mallang.data.source import Row
from mallang.runs.folder import Run


def facts_of(run: Run, columns: Sequence[str], splits: Sequence[str] = SPLITS) -> Iterator[Row]:
    """The rows of these splits of a run's data, as far as it has them."""
    corpus = open_corpus(run.data(), tuple(columns))
    for split in splits:
        if split in corpus.splits or split in corpus.absent:
            yield from corpus.split(split)
