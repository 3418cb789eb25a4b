"""Schema graphs: the paths of a knowledge graph between the concepts of a question and those of one of its choices.

    What might a cat handle?     cat ←done by- eat -takes→ fish        a graph for the choice `fish`
                                 cat ←done by- catch -takes→ fish

As a column they are integers, found once and kept with a prepared corpus (prepared.py): paths are never searched again
for the same graph, the same texts and the same options. A graph holds its concepts, and pairs of a concept of the
question and one of the choice, each with its paths.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int64, Integer
from torch import Tensor

from mallang.data import grounding, paths
from mallang.data.batch import pad_rows
from mallang.data.choices import read_choices
from mallang.data.grounding import Grounder
from mallang.data.knowledge import Graph
from mallang.data.paths import Path, PathFinder

CANDIDATES = 8
"""Paths that are found for each that is kept, where a ranker chooses among them."""


@runtime_checkable
class Ranker(Protocol):
    """Says which paths of a pair are worth keeping."""

    @property
    def fingerprint(self) -> str:
        """A sum over all that decides how it ranks."""

    def score(self, paths: Sequence[Path]) -> list[float]:
        """A score of each path; the higher, the better."""


@dataclass(frozen=True)
class Limits:
    """How many paths are looked for, and how long they may be."""

    max_edges: int = 2
    paths_per_pair: int = 4
    pairs: int = 16
    """Pairs of a concept of the question and one of the choice; those with the shortest paths count."""
    question_concepts: int = 12
    choice_concepts: int = 4


@dataclass(frozen=True)
class SchemaGraph:
    """The concepts of a graph, and the paths of each pair; paths have positions in `concepts`, not entities."""

    concepts: tuple[int, ...] = ()
    pairs: tuple[tuple[Path, ...], ...] = ()

    @classmethod
    def of(cls, pairs: Sequence[Sequence[Path]]) -> SchemaGraph:
        """The graph of paths over entities."""
        places: dict[int, int] = {}
        for path in (path for pair in pairs for path in pair):
            for entity in path.entities:
                places.setdefault(entity, len(places))
        local = (tuple(Path(tuple(places[each] for each in p.entities), p.relations) for p in pair) for pair in pairs)
        return cls(tuple(places), tuple(local))

    def path(self, pair: int, number: int) -> Path:
        """A path over entities."""
        found = self.pairs[pair][number]
        return Path(tuple(self.concepts[place] for place in found.entities), found.relations)

    @property
    def size(self) -> int:
        """The number of its paths."""
        return sum(map(len, self.pairs))

    def integers(self) -> list[int]:
        """The graph as a list of integers, which `read_graphs` reads."""
        found = [len(self.concepts), len(self.pairs), *self.concepts]
        for pair in self.pairs:
            found.append(len(pair))
            for path in pair:
                found += [len(path), *path.entities, *path.relations]
        return found


def read_graphs(integers: Integer[np.ndarray, " items"] | list[int]) -> list[SchemaGraph]:
    """The graphs of all choices of a question, which stand behind each other."""
    found: list[SchemaGraph] = []
    left: Iterator[int] = iter(np.asarray(integers).tolist())
    for concepts in left:
        pairs = next(left)
        entities = take(left, concepts)
        found.append(SchemaGraph(entities, tuple(tuple(read_paths(left)) for _ in range(pairs))))
    return found


def read_paths(left: Iterator[int]) -> Iterator[Path]:
    """The paths of one pair."""
    for _ in range(next(left)):
        edges = next(left)
        yield Path(take(left, edges + 1), take(left, edges))


def take(left: Iterator[int], count: int) -> tuple[int, ...]:
    """The next integers."""
    return tuple(next(left) for _ in range(count))


@dataclass
class SchemaGraphs:
    """Encodes a question and its choices as a graph for each choice."""

    graph: Graph
    limits: Limits
    ranker: Ranker | None = None
    has_edges: bool = True
    """False makes every graph empty: a control."""
    known: dict[tuple[int, int], tuple[Path, ...]] = field(default_factory=dict)
    """The paths of pairs that were asked for before."""

    def __post_init__(self) -> None:
        self.grounder = Grounder(self.graph.entities)
        self.finder = PathFinder(self.graph, self.limits.max_edges)

    @property
    def fingerprint(self) -> str:
        """A sum over the graph and all that decides which paths are found in it."""
        ranker = None if self.ranker is None else self.ranker.fingerprint
        versions = [grounding.VERSION, paths.VERSION]
        facts = [versions, self.graph.fingerprint, vars(self.limits), ranker, self.has_edges]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def encode_rows(self, rows: Sequence[tuple[str, ...]]) -> list[list[int]]:
        """The graphs of all choices of every row."""
        found = []
        for question, choices in rows:
            graphs = self.of(question, read_choices(choices).texts)
            found.append([number for graph in graphs for number in graph.integers()])
        return found

    def of(self, question: str, choices: Sequence[str]) -> list[SchemaGraph]:
        """The graph of each choice."""
        if not self.has_edges:
            return [SchemaGraph() for _ in choices]
        asked = self.grounder.concepts(question)[: self.limits.question_concepts]
        return [self.between(asked, self.grounder.concepts(each)[: self.limits.choice_concepts]) for each in choices]

    def between(self, asked: Sequence[int], answers: Sequence[int]) -> SchemaGraph:
        """The graph of the paths from any of some concepts to any of others."""
        found = [self.paths(start, end) for start in asked for end in answers]
        connected = sorted((pair for pair in found if pair), key=lambda pair: min(map(len, pair)))
        return SchemaGraph.of(connected[: self.limits.pairs])

    def paths(self, start: int, end: int) -> tuple[Path, ...]:
        """The paths of a pair that are kept: the first ones, or those with the highest scores."""
        if (start, end) not in self.known:
            most = self.limits.paths_per_pair
            found = self.finder.paths(start, end, most if self.ranker is None else most * CANDIDATES)
            if self.ranker is not None and len(found) > most:
                scores = self.ranker.score(found)
                best = sorted(range(len(found)), key=lambda place: -scores[place])[:most]
                found = [found[place] for place in sorted(best)]
            self.known[start, end] = tuple(found)
        return self.known[start, end]


def batch_fields(graphs: Sequence[SchemaGraph], limits: Limits) -> dict[str, Tensor]:
    """The fields of a batch for these graphs, one for each row of its tokens.

    `concepts` has the entities of each row, `paths` a line for every path of the batch: its row, then the positions
    of its concepts in the row, then its relations; −1 where it is shorter. `pairs` names the lines of each pair.
    """
    lines: list[list[int]] = []
    pairs: list[list[list[int]]] = []
    for row, graph in enumerate(graphs):
        pairs.append([])
        for pair in graph.pairs:
            pairs[-1].append(list(range(len(lines), len(lines) + len(pair))))
            for path in pair:
                missing = [-1] * (limits.max_edges - len(path))
                lines.append([row, *path.entities, *missing, *path.relations, *missing])
    width = 2 * limits.max_edges + 2
    flat = np.array(lines, dtype=np.int64).reshape(-1, width)
    return {
        "concepts": pad_rows([np.array(graph.concepts or (-1,), dtype=np.int64) for graph in graphs], -1)[0],
        "paths": torch.from_numpy(flat if len(flat) else np.full((1, width), -1, dtype=np.int64)),
        "pairs": torch.from_numpy(rectangle(pairs, limits.paths_per_pair)),
    }


def rectangle(
    pairs: Sequence[Sequence[Sequence[int]]], alternatives: int
) -> Int64[np.ndarray, "rows pairs alternatives"]:
    """The lines of every pair as a rectangle, −1 where there is none; no axis is empty."""
    found = np.full((len(pairs), max((1, *map(len, pairs))), alternatives), -1, dtype=np.int64)
    for place, row in enumerate(pairs):
        for number, pair in enumerate(row):
            found[place, number, : len(pair)] = pair
    return found
