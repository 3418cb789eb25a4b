"""Concepts that a text mentions: n-grams of its lemmas that are names in a knowledge graph (arXiv:1909.02151, 4.1).

    A revolving door is convenient at a bank   →   revolving door · bank

Names and text are lemmatized by the same rules (text/lemmas.py), so that they meet. Of n-grams that lie within each
other the longest counts; one that is made of stop words alone is no concept. Where several names have the same lemmas,
as `book` and `books`, each is a concept: the one that is written as in the text comes first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from mallang.text.lemmas import STOP_WORDS, lemma, words_of

VERSION = 1
"""Changes whenever any text is grounded otherwise."""
LONGEST = 5
"""Words of the longest name that is looked for."""
ALIKE = 2
"""Names with the same lemmas that one mention stands for."""


class Grounder:
    """Finds the entities of a graph in texts."""

    def __init__(self, entities: Sequence[str]) -> None:
        names = [words_of(name) for name in entities]
        self.known = {word for words in names for word in words}
        self.entities = tuple(entities)
        self.lemmas: dict[str, str] = {}
        found: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for number, words in enumerate(names):
            if 0 < len(words) <= LONGEST:
                found[self.key(words)].append(number)
        self.index = dict(found)

    def key(self, words: Sequence[str]) -> tuple[str, ...]:
        """The lemmas of some words."""
        for word in words:
            if word not in self.lemmas:
                self.lemmas[word] = lemma(word, self.known)
        return tuple(self.lemmas[word] for word in words)

    def concepts(self, text: str) -> list[int]:
        """The numbers of the entities that a text mentions, in the order of their mentions, each once."""
        words = words_of(text)
        found: dict[int, None] = {}
        covered = 0
        for start in range(len(words)):
            for end in range(min(len(words), start + LONGEST), max(start, covered), -1):
                here = self.at(words[start:end])
                if here:
                    found |= dict.fromkeys(here)
                    covered = end
                    break
        return list(found)

    def at(self, words: Sequence[str]) -> list[int]:
        """The entities that exactly these words name."""
        if all(word in STOP_WORDS for word in words):
            return []
        surface = " ".join(words)
        alike = self.index.get(self.key(words), [])
        return sorted(alike, key=lambda number: self.entities[number].lower() != surface)[:ALIKE]
