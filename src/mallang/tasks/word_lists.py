"""Lists of word pairs and analogies that word vectors are scored by, as far as they are on this machine."""

from __future__ import annotations

from collections.abc import Iterator

from mallang.data import registry
from mallang.data.corpus import Config, open_corpus

SIMILARITY, ANALOGY = "word-similarity-analogy/similarity", "word-similarity-analogy/analogy"
LEAST_PAIRS, LEAST_SHARE = 10, 0.1
"""A list is scored if the model knows so many of its pairs, and this share of them: others are of another language."""


def similarity_lists() -> Iterator[tuple[str, list[tuple[str, str, float]]]]:
    """The name of each list, and its pairs of words with the score that people gave them."""
    for name, rows in lists(SIMILARITY, ("word1", "word2", "score")):
        yield name, [(one, other, float(score)) for one, other, score in rows]


def analogy_lists() -> Iterator[tuple[str, list[tuple[str, str, str, str]]]]:
    """The name of each list, and its questions: a is to b as c is to d."""
    for name, rows in lists(ANALOGY, ("a", "b", "c", "d")):
        yield f"analogies {name}", [(a, b, c, d) for a, b, c, d in rows]


def lists(corpus: str, columns: tuple[str, ...]) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """The splits of a corpus, if it is on this machine."""
    entry = registry.entry(corpus)
    if registry.state(entry) != "here":
        return
    opened = open_corpus(Config(corpus=corpus), columns)
    for name in entry.splits:
        yield name, list(opened.split(name))


def is_known(known: int, total: int) -> bool:
    """Whether a model knows enough of a list to be scored by it."""
    return known >= max(LEAST_PAIRS, LEAST_SHARE * total)
