"""The corpora that are generated from miniworld, by name: their columns, their sizes, and their rows.

    open_view("miniworld", "train").rows(("ko", "sentiment"))
    open_view("miniworld-documents", "test").rows(("en", "label"))

A label is one word. Several labels of a row, tokens and tags are joined by tabs, tags one per token. The sentences of a
document are joined by line ends. A number is written with digits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from mallang.data.source import Row, Source

if TYPE_CHECKING:
    from mallang.data.miniworld_tags import Token
else:  # the generator is imported where rows are read: a list of names does not need it
    Token = Any

SENTENCES = {"train": 20_000, "valid": 1_000, "test": 1_000}


@dataclass(frozen=True)
class View:
    """What `mallang data list` shows of a generated corpus."""

    kind: str
    about: str
    columns: tuple[str, ...]
    rows: dict[str, int]
    by_default: int | None = None
    """How many of the first columns are read if none is named; all if not set."""


TREES = ("ko-tree", "en-tree", "ko-tree-words", "en-tree-words")
LABELS = ("sentiment", "rating", "topic", "topics")
TAGS = ("ko-tokens", "ko-pos", "ko-ner", "en-tokens", "en-pos", "en-ner")
ROLES = ("ko-predicates", "ko-roles", "ko-head-roles", "en-predicates", "en-roles", "en-head-roles")
VIEWS = {
    "miniworld": View(
        "translation",
        "A small generated world, told in Korean and English",
        ("ko", "en", *TREES, *LABELS, *TAGS, *ROLES),
        SENTENCES,
        by_default=2,
    ),
    "miniworld-prompts": View(
        "language modeling",
        "Episodes of miniworld's sentences with labels that are new in each, for learning in context",
        ("ko", "en"),
        {"train": 20_000, "valid": 500, "test": 500},
    ),
    "miniworld-topics": View(
        "classification",
        "Short sentences of miniworld and what they are about",
        ("ko", "en", "ko-topic", "en-topic"),
        {"train": 480, "valid": 48, "test": 48},
    ),
    "miniworld-documents": View(
        "classification",
        "Documents of miniworld's sentences, of which the writer's own decide the label",
        ("ko", "en", "label", "rating", "evidence"),
        {"train": 4_000, "valid": 500, "test": 500},
    ),
    "miniworld-pairs": View(
        "pairs",
        "Pairs of miniworld's sentences: entailment, neutral, contradiction",
        ("ko-premise", "ko-hypothesis", "en-premise", "en-hypothesis", "label"),
        {"train": 6_000, "valid": 600, "test": 600},
    ),
    "miniworld-similarity": View(
        "pairs",
        "Pairs of miniworld's sentences and how similar they are, 0 to 5",
        ("ko-sentence1", "ko-sentence2", "en-sentence1", "en-sentence2", "score"),
        {"train": 4_000, "valid": 500, "test": 500},
    ),
    "miniworld-questions": View(
        "question answering",
        "Contexts of three of miniworld's sentences, questions, and their answers in the context",
        ("ko-context", "ko-question", "ko-answers", "en-context", "en-question", "en-answers", "part"),
        {"train": 6_000, "valid": 500, "test": 500},
    ),
    "miniworld-choices": View(
        "multiple choice",
        "Questions about miniworld with three to five choices, of which one makes sense",
        ("ko-question", "ko-choices", "en-question", "en-choices", "answer"),
        {"train": 4_000, "valid": 500, "test": 500},
    ),
    "miniworld-hops": View(
        "multiple choice",
        "Questions that two steps in the graph of miniworld-triples answer, with three choices",
        ("ko-question", "ko-choices", "en-question", "en-choices", "answer"),
        {"train": 3_000, "valid": 300, "test": 300},
    ),
    "miniworld-pictures": View(
        "captions",
        "Pictures of miniworld's scenes on 32 x 32 pixels, their captions, and the box of every word",
        ("image", "ko", "en", "ko-boxes", "en-boxes"),
        {"train": 6_000, "valid": 500, "test": 500},
    ),
    "miniworld-coref": View(
        "coreference",
        "Short stories of miniworld's sentences, and which of their phrases mean the same",
        ("ko-sentences", "ko-clusters", "en-sentences", "en-clusters"),
        {"train": 1_600, "valid": 100, "test": 200},
    ),
    "miniworld-triples": View(
        "knowledge",
        "What miniworld knows as a graph: what is of which kind, who does what, where and with what",
        ("head", "relation", "tail", "ko-head", "ko-tail"),
        {"train": 1_011, "valid": 117, "test": 117},
    ),
    "miniworld-links": View(
        "entity typing",
        "Sentences of miniworld with new names for its nouns, links to miniworld-triples, types, and relations",
        (
            *("en", "en-links", "en-mention", "en-pair", "ko", "ko-links", "ko-mention", "ko-pair"),
            *("types", "relation"),
        ),
        {"train": 4_000, "valid": 200, "test": 200},
    ),
    "miniworld-dictionary": View(
        "lexicon",
        "A dictionary of miniworld's words, Korean and English",
        ("ko", "en"),
        {"train": 1_000},
    ),
}
LICENSE = "Apache-2.0 (generated by mallang)"


def open_view(name: str, split: str) -> Source:
    """A split of a generated corpus."""
    if name == "miniworld":
        return Sentences(split)
    if name in ("miniworld-prompts", "miniworld-topics"):
        from mallang.data import miniworld_prompts

        return miniworld_prompts.View(name, split)
    return Table(name, split)


@dataclass(frozen=True)
class Sentences:
    """A split of miniworld: a row per scene."""

    split: str

    def rows(self, picks: Sequence[str]) -> Iterator[Row]:
        """These columns of every scene."""
        from mallang.data import miniworld

        sentences = dict(zip(("ko", "en"), zip(*miniworld.rows(self.split), strict=True), strict=True))
        columns = [sentences[pick] if pick in sentences else column(self.split, pick) for pick in picks]
        return zip(*columns, strict=True)

    def fingerprint(self, picks: Sequence[str]) -> str:
        """A hash of the world's fingerprint, and of the versions of the other columns that are read."""
        from mallang.data import miniworld, miniworld_labels, miniworld_roles, miniworld_tags, miniworld_trees

        made = ((TREES, miniworld_trees), (LABELS, miniworld_labels), (TAGS, miniworld_tags), (ROLES, miniworld_roles))
        versions = [module.VERSION for columns, module in made if any(pick in columns for pick in picks)]
        return _sum(["miniworld", miniworld.fingerprint(), self.split, list(picks), *versions])


@cache
def column(split: str, name: str) -> tuple[str, ...]:
    """A column of miniworld that is not its sentences."""
    from mallang.data import miniworld, miniworld_labels, miniworld_roles

    language, _, view = name.partition("-")
    if name in ROLES:
        return miniworld_roles.column(split, language, view)
    if name in TREES:
        return tuple(miniworld.trees(split, language, words=view == "tree-words"))
    if name in TAGS:
        place = ("tokens", "pos", "ner").index(view)
        return tuple("\t".join(token[place] for token in row) for row in tagged(split, language))
    if name == "topics":
        return tuple("\t".join(miniworld_labels.topics(scene)) for scene in miniworld.scenes(split))
    told = {"sentiment": miniworld_labels.sentiment, "rating": miniworld_labels.rating, "topic": miniworld_labels.topic}
    return tuple(map(told[name], miniworld.scenes(split)))


@cache
def tagged(split: str, language: str) -> tuple[tuple[Token, ...], ...]:
    """The tokens of every sentence of a split with their tags."""
    from mallang.data import miniworld, miniworld_tags

    return tuple(miniworld_tags.tagged(scene, language) for scene in miniworld.scenes(split))


@dataclass(frozen=True)
class Table:
    """A split of a corpus that is generated row by row."""

    name: str
    split: str

    def rows(self, picks: Sequence[str]) -> Iterator[Row]:
        """These columns of every row."""
        view = VIEWS[self.name]
        places = [view.columns.index(pick) for pick in picks]
        made = self._module().rows(self.split, view.rows[self.split])
        return (tuple(row[place] for place in places) for row in made)

    def fingerprint(self, picks: Sequence[str]) -> str:
        """A hash of the versions of everything that the rows follow from."""
        from mallang.data import miniworld, miniworld_labels

        versions = [self._module().VERSION, miniworld_labels.VERSION, VIEWS[self.name].rows[self.split]]
        return _sum([self.name, miniworld.fingerprint(), versions, self.split, list(picks)])

    def _module(self) -> Any:
        from mallang.data import (
            miniworld_choices,
            miniworld_coreference,
            miniworld_dictionary,
            miniworld_documents,
            miniworld_hops,
            miniworld_inference,
            miniworld_links,
            miniworld_pictures,
            miniworld_questions,
            miniworld_similarity,
            miniworld_triples,
        )

        return {
            "miniworld-documents": miniworld_documents,
            "miniworld-pairs": miniworld_inference,
            "miniworld-similarity": miniworld_similarity,
            "miniworld-questions": miniworld_questions,
            "miniworld-choices": miniworld_choices,
            "miniworld-hops": miniworld_hops,
            "miniworld-pictures": miniworld_pictures,
            "miniworld-coref": miniworld_coreference,
            "miniworld-triples": miniworld_triples,
            "miniworld-links": miniworld_links,
            "miniworld-dictionary": miniworld_dictionary,
        }[self.name]


def _sum(values: list[Any]) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()
