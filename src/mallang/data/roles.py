"""Semantic roles: who does what to whom, as a row of words, predicates and roles.

    words        Minsu      gave   Jiyoung   a    book   yesterday     a row has its words with tabs between,
    predicates   _          give   _         _    _      _             the lemma of every word that is a predicate,
    roles        ARG0       _      ARG2      _    ARG1   ARGM-TMP      and for each predicate a role for every word

With several predicates the roles are those of the first for all words, then those of the second, and so on. A sentence
without a predicate has no roles. Roles stand on head words, with `_` elsewhere, or are tags of spans: B-ARG0, I-ARG0,
O. The verb itself (V, also C-V) is no role: `predicates` says where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from mallang.data.columns import LabelSet, split_cell
from mallang.data.role_files import NONE, places_of, without_verbs
from mallang.errors import UserError

UNKNOWN_LEMMA, FIRST_LEMMA = 0, 1
"""The number of a lemma that training did not see, and of the first that it saw."""


def split_roles(cell: str, words: int, predicates: int) -> list[list[str]]:
    """The roles of all words for each predicate."""
    items = [without_verbs(item) for item in split_cell(cell, "roles")]
    if len(items) != words * predicates:
        raise UserError(
            f"there are {len(items)} roles, but {words} words and {predicates} predicates",
            todo="give every word one role for each predicate, `_` or O where it has none: all words for the first "
            "predicate, then all for the second",
        )
    return [items[start : start + words] for start in range(0, len(items), words or 1)]


@dataclass(frozen=True)
class Sentence:
    """The words of a sentence, its predicates, and the roles of all words for each of them."""

    words: tuple[str, ...]
    lemmas: tuple[str, ...]
    """The lemma of every predicate, `_` for all other words."""
    roles: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, row: Sequence[str]) -> Sentence:
        """The sentence of a row of words, predicates and roles."""
        words, lemmas = split_cell(row[0], "words"), split_cell(row[1], "predicates")
        if len(words) != len(lemmas):
            raise UserError(
                f"there are {len(words)} words but {len(lemmas)} marks of predicates",
                todo="give every word one: the lemma of a predicate, `_` for any other word",
            )
        roles = split_roles(row[2], len(words), len(places_of(lemmas)))
        return cls(tuple(words), tuple(lemmas), tuple(map(tuple, roles)))

    @cached_property
    def predicates(self) -> list[int]:
        """Which words are predicates."""
        return places_of(self.lemmas)


def lemma_forms(words: str, predicates: str) -> str:
    """The predicates of a row for a set of labels: each lemma with the word that it was written as.

    The set then says which lemma a word of a plain text has: `give|gave`, `give|given`.
    """
    pairs = zip(split_cell(words, "words"), split_cell(predicates, "predicates"), strict=False)
    return "\t".join(f"{lemma}|{word.lower()}" if lemma != NONE else NONE for word, lemma in pairs)


@dataclass(frozen=True)
class Lemmas:
    """The lemmas of predicates by number; encodes the column of predicates: the number of each lemma, −1 elsewhere."""

    labels: LabelSet
    of_form: dict[str, str] = field(init=False, repr=False, compare=False)
    """The most frequent lemma of every form."""
    counts: dict[str, int] = field(init=False, repr=False, compare=False)
    """How often each lemma occurs in training."""

    def __post_init__(self) -> None:
        best: dict[str, tuple[int, str]] = {}
        counts: dict[str, int] = {}
        for name, count in zip(self.labels.names, self.labels.counts or [1] * len(self.labels), strict=True):
            lemma, gap, form = name.partition("|")
            if gap:
                counts[lemma] = counts.get(lemma, 0) + count
                best[form] = max(best.get(form, (0, "")), (count, lemma))
        object.__setattr__(self, "of_form", {form: lemma for form, (_, lemma) in best.items()})
        object.__setattr__(self, "counts", counts)

    @cached_property
    def ids(self) -> dict[str, int]:
        """The number of every lemma."""
        return {lemma: number for number, lemma in enumerate(sorted(self.counts), start=FIRST_LEMMA)}

    def __len__(self) -> int:
        return FIRST_LEMMA + len(self.counts)

    @property
    def fingerprint(self) -> str:
        """A sum over the lemmas."""
        return f"lemmas {self.labels.fingerprint}"

    def id(self, lemma: str) -> int:
        """The number of a lemma."""
        return self.ids.get(lemma, UNKNOWN_LEMMA)

    def guess(self, word: str) -> str:
        """The lemma that a word most often had in training; the word itself in lower case if it had none."""
        return self.of_form.get(word.lower(), word.lower())

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """The numbers of the lemmas in every cell."""
        return [[-1 if lemma == NONE else self.id(lemma) for lemma in split_cell(text, "predicates")] for text in texts]
