"""Knowledge graphs: names as tokens, edges without ends, edges to nodes outside the list, and controls."""

from __future__ import annotations

import numpy as np
import pytest

from mallang.data.corpus import Config, open_corpus
from mallang.data.knowledge import Graph, Known, Names, as_name, as_token, unseen
from mallang.data.miniworld_triples import split_of, triples
from mallang.errors import UserError
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer

ROWS = [("a", "r", "b"), ("b", "s", "c"), ("a", "r", "b"), ("c", "s", "c"), ("d", "r", "a")]


def test_a_name_is_one_token_and_comes_back() -> None:
    assert as_name(as_token("go to bed")) == "go to bed" and " " not in as_token("go  to bed")
    tokenizer = Tokenizer.train([as_token("go to bed"), "bed"], TextConfig(unit="space"))
    names = Names(tokenizer, "head")
    assert names.encode_batch(["go to bed", "bed", "cat"]) == [
        [tokenizer.vocabulary.ids[as_token("go to bed")]], [tokenizer.vocabulary.ids["bed"]], [tokenizer.vocabulary.unk]
    ]  # fmt: skip
    with pytest.raises(UserError, match="the head is empty: an edge of the graph has two ends"):
        names.encode_batch(["bed", "  "])


def test_the_graph_of_rows() -> None:
    graph = Graph.of(ROWS)
    assert graph.entities == ("a", "b", "c", "d") and graph.relations == ("r", "s")
    assert graph.triples.tolist() == [[0, 0, 1], [1, 1, 2], [2, 1, 2], [3, 0, 0]]
    assert graph.edges == [[(0, 1), (2, 3)], [(2, 0), (1, 2)], [(3, 1), (1, 2)], [(0, 0)]]
    assert "4 entities, 2 relations, 4 triples" in graph.note()


def test_dangling_edges_are_refused_and_lonely_nodes_reported() -> None:
    with pytest.raises(UserError, match="'d' is no node of the graph") as caught:
        Graph.of(ROWS, nodes=("a", "b", "c"))
    assert caught.value.where == "row 5"
    with pytest.raises(UserError, match="the tail is empty") as caught:
        Graph.of([*ROWS, ("a", "r", " ")])
    assert caught.value.where == "row 6"
    with pytest.raises(UserError, match="no edges"):
        Graph.of([])
    graph = Graph.of(ROWS, nodes=("a", "b", "c", "d", "e"))
    assert graph.isolated == ("e",) and "no edge reaches 1 nodes: 'e'" in graph.note()


def test_edges_are_taken_out_in_both_directions_and_shuffled_ones_keep_their_counts() -> None:
    graph = Graph.of(ROWS)
    assert graph.without([("b", "a"), ("x", "c")]).triples.tolist() == [[1, 1, 2], [2, 1, 2], [3, 0, 0]]
    many = Graph.of([(f"h{i}", f"r{i % 3}", f"t{i % 7}") for i in range(60)])
    shuffled = many.shuffled(1)
    assert (shuffled.triples[:, :2] == many.triples[:, :2]).all() and (shuffled.triples != many.triples).any()
    assert sorted(shuffled.triples[:, 2]) == sorted(many.triples[:, 2])
    assert (many.shuffled(1).triples == shuffled.triples).all()


def test_known_answers_against_a_loop() -> None:
    random = np.random.default_rng(3)
    rows = random.integers(0, 6, (80, 3))
    known = Known(rows)
    true = {tuple(row) for row in rows.tolist()}
    assert len(known) == len(true)
    for entity in range(7):
        for relation in range(7):
            tails = sorted(t for h, r, t in true if (h, r) == (entity, relation))
            heads = sorted(h for h, r, t in true if (t, r) == (entity, relation))
            assert sorted(known.answers(entity, relation, heads=False)) == tails
            assert sorted(known.answers(entity, relation, heads=True)) == heads
    assert unseen(np.array([[1, 0, 2], [9, 0, 2], [2, 9, 1]]), 9).tolist() == [False, True, False]


def test_the_graph_of_miniworld_is_frozen_and_its_held_out_entities_are_known() -> None:
    splits = split_of()
    assert len(triples()) == len(splits) == 1245
    sizes = {name: list(splits.values()).count(name) for name in ("train", "valid", "test")}
    assert sizes == {"train": 1011, "valid": 117, "test": 117}
    corpus = open_corpus(Config(corpus="miniworld-triples"), ("head", "relation", "tail"))
    rows = {name: list(corpus.split(name)) for name in sizes}
    assert {name: len(found) for name, found in rows.items()} == sizes
    known = {end for head, _, tail in rows["train"] for end in (head, tail)}
    assert all({head, tail} <= known for split in rows.values() for head, _, tail in split)
    assert ("apple", "is a", "food") in {row for split in rows.values() for row in split}
