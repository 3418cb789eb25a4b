"""Paths between two entities of a knowledge graph, the shortest first; edges may be walked backward.

    revolving door  -at location→  bank              one edge
    cat  ←done by-  eat  -takes→  fish               two edges, the first of them backward

No entity occurs twice in a path. Paths of equal length come in the order of their entities: at each step the one with
the fewest edges first, for what goes through a rare entity says more than what goes through `person`; then by number.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from jaxtyping import Int8, Int64

from mallang.data.knowledge import Graph

VERSION = 1
"""Changes whenever any path does."""
REMEMBERED = 64
"""Entities whose distances from all others are kept."""


@dataclass(frozen=True)
class Path:
    """A path: its entities, and the relation of each edge; walked backward it has the number relation + count."""

    entities: tuple[int, ...]
    relations: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.relations)


class PathFinder:
    """Finds the paths of at most `max_edges` edges."""

    def __init__(self, graph: Graph, max_edges: int) -> None:
        self.max_edges = max_edges
        degrees = [len(edges) for edges in graph.edges]
        ordered = [
            np.array(sorted(edges, key=lambda edge: (degrees[edge[1]], edge[1], edge[0])), dtype=np.int64).reshape(
                -1, 2
            )
            for edges in graph.edges
        ]
        self.relations = [edges[:, 0] for edges in ordered]
        self.neighbors = [edges[:, 1] for edges in ordered]
        self.starts = np.concatenate(([0], np.cumsum([len(edges) for edges in ordered])))
        self.ends = np.concatenate(self.neighbors)
        self.remembered: OrderedDict[int, Int8[np.ndarray, " entities"]] = OrderedDict()

    def paths(self, start: int, end: int, most: int) -> list[Path]:
        """The first paths from one entity to another; none from an entity to itself."""
        if start == end or most < 1:
            return []
        away = self.distances(end)
        found: list[Path] = []
        for length in range(1, self.max_edges + 1):
            found += islice(self.walk((start,), (), end, length, away), most - len(found))
        return found

    def walk(
        self,
        entities: tuple[int, ...],
        relations: tuple[int, ...],
        end: int,
        left: int,
        away: Int8[np.ndarray, " entities"],
    ) -> Iterator[Path]:
        """All paths that continue one by exactly `left` edges to the end; those that cannot reach it are not begun."""
        here = entities[-1]
        neighbors = self.neighbors[here]
        reachable = neighbors == end if left == 1 else (away[neighbors] <= left - 1) & (neighbors != end)
        for place in np.flatnonzero(reachable).tolist():
            following = int(neighbors[place])
            if following in entities:
                continue
            extended = (*entities, following), (*relations, int(self.relations[here][place]))
            if left == 1:
                yield Path(*extended)
            else:
                yield from self.walk(*extended, end, left - 1, away)

    def distances(self, end: int) -> Int8[np.ndarray, " entities"]:
        """How many edges each entity is away from one; max_edges where it is as far, or farther."""
        if end in self.remembered:
            self.remembered.move_to_end(end)
            return self.remembered[end]
        away = np.full(len(self.neighbors), self.max_edges, dtype=np.int8)
        away[end] = 0
        frontier = np.array([end], dtype=np.int64)
        for edges in range(1, self.max_edges):  # the last edge of a path begins at most max_edges - 1 away
            reached = np.zeros(len(away), dtype=bool)
            reached[self.around(frontier)] = True
            frontier = np.flatnonzero(reached & (away > edges))
            away[frontier] = edges
        self.remembered[end] = away
        if len(self.remembered) > REMEMBERED:
            self.remembered.popitem(last=False)
        return away

    def around(self, entities: Int64[np.ndarray, " some"]) -> Int64[np.ndarray, " neighbors"]:
        """The neighbors of several entities, with repetitions."""
        counts = self.starts[entities + 1] - self.starts[entities]
        offsets = np.repeat(self.starts[entities] - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
        return self.ends[offsets + np.arange(int(counts.sum()))]
