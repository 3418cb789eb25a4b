"""Schema graphs: their integers, their limits, and what becomes of them in a batch."""

import json
from collections.abc import Sequence

import torch
from hypothesis import given
from hypothesis import strategies as st

from mallang.data.batch import Batch, Shapes
from mallang.data.knowledge import Graph
from mallang.data.paths import Path
from mallang.data.schema_graphs import Limits, SchemaGraph, SchemaGraphs, batch_fields, read_graphs

TRIPLES = [
    ("cat", "is a", "animal"), ("dog", "is a", "animal"), ("dog", "likes", "bone"), ("cat", "likes", "fish"),
    ("cat", "hunts", "fish"), ("fish", "is a", "animal"),
]  # fmt: skip
GRAPH = Graph.of(TRIPLES)


PATH = st.integers(1, 3).flatmap(
    lambda edges: st.tuples(
        st.permutations(range(9)).map(lambda order: tuple(order[: edges + 1])), st.tuples(*[st.integers(0, 7)] * edges)
    )
)
PAIRS = st.lists(st.lists(PATH, min_size=1, max_size=3), max_size=3)
Pairs = list[list[tuple[tuple[int, ...], tuple[int, ...]]]]


def graph_of(pairs: Pairs) -> SchemaGraph:
    """Built inside a test, for checked code draws random numbers, which strategies may not."""
    return SchemaGraph.of([[Path(*path) for path in pair] for pair in pairs])


@given(st.lists(PAIRS, max_size=4))
def test_graphs_come_back_from_their_integers(drawn):
    graphs = [graph_of(pairs) for pairs in drawn]
    assert read_graphs([number for graph in graphs for number in graph.integers()]) == graphs


@given(st.lists(PAIRS, min_size=1, max_size=4))
def test_a_batch_holds_every_path_in_its_row(drawn):
    graphs = [graph_of(pairs) for pairs in drawn]
    limits = Limits(max_edges=3, paths_per_pair=3)
    fields = batch_fields(graphs, limits)
    assert fields["pairs"].shape[2] == 3 and fields["paths"].shape[1] == 8
    for row, graph in enumerate(graphs):
        names = fields["concepts"][row].tolist()
        assert tuple(name for name in names if name >= 0) == graph.concepts
        for place, pair in enumerate(graph.pairs):
            lines = [line for line in fields["pairs"][row, place].tolist() if line >= 0]
            found = [fields["paths"][line].tolist() for line in lines]
            assert [line[0] for line in found] == [row] * len(pair)
            assert [tuple(each for each in line[1:5] if each >= 0) for line in found] == [p.entities for p in pair]
            assert [tuple(each for each in line[5:] if each >= 0) for line in found] == [p.relations for p in pair]
    assert int((fields["pairs"] >= 0).sum()) == sum(graph.size for graph in graphs)


@given(st.lists(PAIRS, min_size=2, max_size=4))
def test_filling_up_a_batch_adds_only_what_is_none(drawn):
    graphs = [graph_of(pairs) for pairs in drawn]
    fields = batch_fields(graphs, Limits(max_edges=3, paths_per_pair=3))
    rows = torch.arange(len(graphs))[None]
    batch = Batch(tokens=torch.ones(len(graphs), 3, dtype=torch.long), lengths=torch.full((len(graphs),), 3),
                  choices=rows, **fields)  # fmt: skip
    filled = Shapes(tokens=64).fill(batch)
    for name in ("concepts", "paths", "pairs"):
        before, after = getattr(batch, name), getattr(filled, name)
        here = after[tuple(slice(0, size) for size in before.shape)]
        assert torch.equal(here, before) and int((after >= 0).sum()) == int((before >= 0).sum())


def encode(question: str, choices: Sequence[str], limits: Limits | None = None, **options) -> list[SchemaGraph]:
    encoder = SchemaGraphs(GRAPH, limits or Limits(), **options)
    (found,) = encoder.encode_rows([(question, json.dumps(choices))])
    return read_graphs(found)


def names(graph: SchemaGraph) -> list[list[tuple[str, ...]]]:
    return [
        [tuple(GRAPH.entities[each] for each in graph.path(pair, number).entities) for number in range(len(paths))]
        for pair, paths in enumerate(graph.pairs)
    ]


def test_a_question_and_its_choices_become_graphs():
    bone, fish, stone = encode("What do cats like?", ["a bone", "fish", "stone"])
    assert names(fish) == [[("cat", "fish"), ("cat", "fish"), ("cat", "animal", "fish")]]
    assert names(bone) == [] and stone == SchemaGraph()
    (bone,) = read_graphs(SchemaGraphs(GRAPH, Limits(max_edges=3)).encode_rows([("cats", "bone\tx")])[0])[:1]
    assert names(bone) == [[("cat", "animal", "dog", "bone")]]


def test_limits_hold_and_controls_are_empty_or_other():
    few = Limits(paths_per_pair=1, pairs=1)
    (found,) = encode("cat and dog", ["animal", "x"], few)[:1]
    assert names(found) == [[("cat", "animal")]]
    assert encode("cats", ["fish", "bone"], has_edges=False) == [SchemaGraph(), SchemaGraph()]
    plain, empty = SchemaGraphs(GRAPH, Limits()), SchemaGraphs(GRAPH, Limits(), has_edges=False)
    other = SchemaGraphs(GRAPH.shuffled(1), Limits())
    assert len({each.fingerprint for each in (plain, empty, other, SchemaGraphs(GRAPH, few))}) == 4


class LongestFirst:
    """Ranks the longest paths highest."""

    fingerprint = "longest"

    def score(self, paths: Sequence[Path]) -> list[float]:
        return [float(len(path)) for path in paths]


def test_a_ranker_chooses_among_paths_and_leaves_them_in_order():
    (fish,) = encode("cats", ["fish", "x"], Limits(paths_per_pair=2), ranker=LongestFirst())[:1]
    assert names(fish) == [[("cat", "fish"), ("cat", "animal", "fish")]]
