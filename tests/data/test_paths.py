"""The path finder against all simple paths of small random graphs."""

from itertools import permutations, product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.data.knowledge import Graph
from mallang.data.paths import Path, PathFinder

ENTITIES, RELATIONS = 6, 2
TRIPLE = st.tuples(st.integers(0, ENTITIES - 1), st.integers(0, RELATIONS - 1), st.integers(0, ENTITIES - 1))


def graph_of(triples: list[tuple[int, int, int]]) -> Graph:
    names = tuple(f"e{number}" for number in range(ENTITIES))
    unique = np.array(list(dict.fromkeys(triples)), dtype=np.int64)
    return Graph(names, ("r", "s"), unique)


def every_path(graph: Graph, start: int, end: int, most: int) -> list[Path]:
    """All simple paths by trying all orders of inner entities and all relations, in the order that is documented."""
    triples = {tuple(row) for row in graph.triples.tolist()}
    degrees = [sum(number in (h, t) if h != t else number == h for h, _, t in triples) for number in range(ENTITIES)]

    def joins(a: int, relation: int, b: int) -> bool:
        return (a, relation, b) in triples if relation < RELATIONS else (b, relation - RELATIONS, a) in triples

    found = []
    for edges in range(1, most + 1):
        for inner in permutations([each for each in range(ENTITIES) if each not in (start, end)], edges - 1):
            nodes = (start, *inner, end)
            for relations in product(range(2 * RELATIONS), repeat=edges):
                if all(joins(*step) for step in zip(nodes, relations, nodes[1:], strict=False)):
                    found.append(Path(nodes, relations))
    keys = {
        path: (len(path), [(degrees[b], b, r) for r, b in zip(path.relations, path.entities[1:], strict=True)])
        for path in found
    }
    return sorted(found, key=lambda path: keys[path])


@settings(deadline=None, max_examples=40)
@given(st.lists(TRIPLE, min_size=1, max_size=10), st.integers(1, 4), st.integers(1, 5), st.data())
def test_paths_are_those_that_enumeration_finds_the_shortest_first(triples, max_edges, most, data):
    graph = graph_of(triples)
    start, end = data.draw(st.integers(0, ENTITIES - 1)), data.draw(st.integers(0, ENTITIES - 1))
    expected = [] if start == end else every_path(graph, start, end, max_edges)
    finder = PathFinder(graph, max_edges)
    assert finder.paths(start, end, 10_000) == expected
    assert finder.paths(start, end, most) == expected[:most]


def test_a_path_may_go_back_over_an_edge_of_another_relation_but_over_no_entity_twice():
    graph = graph_of([(0, 0, 1), (0, 1, 1), (1, 0, 1), (2, 0, 1)])
    assert PathFinder(graph, 4).paths(0, 2, 99) == [Path((0, 1, 2), (0, 2)), Path((0, 1, 2), (1, 2))]
    assert PathFinder(graph, 1).paths(0, 2, 99) == [] == PathFinder(graph, 4).paths(0, 5, 99)


def test_distances_are_remembered_for_a_bounded_number_of_entities(monkeypatch):
    monkeypatch.setattr("mallang.data.paths.REMEMBERED", 2)
    graph = graph_of([(0, 0, 1), (1, 0, 2), (2, 0, 3), (3, 0, 4)])
    finder = PathFinder(graph, 2)
    whole = [finder.paths(start, start + 1, 9) for start in (0, 1, 2, 0)]
    assert len(finder.remembered) == 2 and whole[0] == whole[3] == [Path((0, 1), (0,))]
