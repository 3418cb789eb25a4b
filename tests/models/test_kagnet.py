"""KagNet against explicit loops over pairs and paths; padding, batching, given encoders."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.data.batch import Batch, Shapes, pad_rows
from mallang.data.paths import Path
from mallang.data.schema_graphs import Limits, SchemaGraph, batch_fields
from mallang.errors import UserError
from mallang.layers.attention import record_attention
from mallang.layers.frozen import Frozen
from mallang.layers.graph import GraphSizes
from mallang.models import bag_of_means
from mallang.models.kagnet import SIZES, Config, KagNet
from mallang.text.vocabulary import SPECIALS, Vocabulary

VOCABULARY = Vocabulary((*SPECIALS, *(f"w{number}" for number in range(4, 12))))
GRAPH = GraphSizes(concepts=9, relations=3, max_edges=3)
LIMITS = Limits(max_edges=3, paths_per_pair=3)
A, B, C = Path((0, 4, 2), (0, 5)), Path((0, 2), (1,)), Path((7, 3, 4, 2), (2, 2, 3))
GRAPHS = [SchemaGraph.of([(A, B), (C,)]), SchemaGraph(), SchemaGraph.of([(B,)])]


def model_of(**changes: Any) -> KagNet:
    torch.manual_seed(1)
    return KagNet(Config(**{**SIZES["tiny"], **changes}), VOCABULARY, GRAPH).eval()


def batch_of(graphs: list[SchemaGraph]) -> Batch:
    tokens, lengths = pad_rows([[4 + row, 5, 6][: 2 + row % 2] for row in range(len(graphs))])
    return Batch(
        tokens=tokens, lengths=lengths, choices=torch.arange(len(graphs))[None], **batch_fields(graphs, LIMITS)
    )


def graph_vector(model: KagNet, graph: SchemaGraph, statement: torch.Tensor) -> torch.Tensor:
    """The graph vector of one choice, path by path."""
    reader = model.paths
    assert reader is not None
    nodes = reader.concepts.weight[list(graph.concepts)] if graph.concepts else torch.zeros(0, 12)
    joined = {(a, b) for pair in graph.pairs for path in pair for a, b in zip(path.entities, path.entities[1:])}  # noqa: B905
    joined |= {(b, a) for a, b in joined}
    for layer in reader.gcn:
        new = []
        for i in range(len(nodes)):
            around = [b for a, b in joined if a == i]
            total = layer.own(nodes[i]) + sum((layer.neighbors(nodes[j]) for j in around), start=0) / max(
                1, len(around)
            )
            new.append(total.relu())
        nodes = torch.stack(new) if new else nodes
    pairs, contexts = [], []
    for paths in graph.pairs:
        vectors = []
        for path in paths:
            steps = [
                torch.cat((nodes[a], reader.relations.weight[r], nodes[b]))
                for a, r, b in zip(path.entities, path.relations, path.entities[1:], strict=False)
            ]
            vectors.append(last_state(reader.lstm, torch.stack(steps)))
        ends = torch.cat((statement, nodes[paths[0].entities[0]], nodes[paths[0].entities[-1]]))
        pair = reader.pair(ends).relu()
        scores = torch.stack([pair @ reader.path_attention.key.weight @ each for each in vectors]).softmax(0)
        contexts.append(sum(score * each for score, each in zip(scores, vectors, strict=True)))
        pairs.append(pair)
    if not pairs:
        return torch.zeros(reader.dim)
    scores = torch.stack([statement @ reader.pair_attention.key.weight @ pair for pair in pairs]).softmax(0)
    return sum(s * torch.cat((c, p)) for s, c, p in zip(scores, contexts, pairs, strict=True))  # type: ignore[return-value]


def last_state(lstm: Any, steps: torch.Tensor) -> torch.Tensor:
    """The last hidden state of an LSTM by its formula."""
    w, u, b, c = lstm.weights()
    hidden = cell = torch.zeros(lstm.hidden_size)
    for x in steps:
        i, f, g, o = (w @ x + b + u @ hidden + c).chunk(4)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        hidden = o.sigmoid() * cell.tanh()
    return hidden


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layers", [0, 1, 2])
@torch.no_grad()
def test_the_graph_vector_is_that_of_loops_over_pairs_and_paths(layers: int) -> None:
    model, batch = model_of(gcn_layers=layers), batch_of(GRAPHS)
    statement = model.statement(batch)
    assert model.paths is not None
    found = model.paths(statement, batch)
    for row, graph in enumerate(GRAPHS):
        close(found[row], graph_vector(model, graph, statement[row]))
    pooled = model.joint(torch.cat((found, statement), dim=1)).relu()
    close(model(batch), pooled)


@torch.no_grad()
def test_attention_is_recorded_and_sums_to_one_where_there_are_paths() -> None:
    model, batch = model_of(), batch_of(GRAPHS)
    with record_attention(model) as maps:
        model(batch)
    assert {name: tuple(each.shape) for name, each in maps.items()} == {
        "paths.path": (3, 1, 2, 3),
        "paths.pair": (3, 1, 1, 2),
    }
    shares = maps["paths.pair"][:, 0, 0, :, None] * maps["paths.path"][:, 0]
    close(shares.sum(dim=(1, 2)), torch.tensor([1.0, 0.0, 1.0]))


PATH = st.integers(1, 3).flatmap(
    lambda edges: st.tuples(
        st.permutations(range(9)).map(lambda order: tuple(order[: edges + 1])), st.tuples(*[st.integers(0, 5)] * edges)
    )
)
PAIRS = st.lists(st.lists(PATH, min_size=1, max_size=3), max_size=3)


@settings(deadline=None, max_examples=20)
@given(st.lists(PAIRS, min_size=1, max_size=4), st.integers(2, 9))
@torch.no_grad()
def test_neither_padding_nor_the_graphs_beside_it_change_a_choice(drawn: Any, multiple: int) -> None:
    found = [SchemaGraph.of([[Path(*path) for path in pair] for pair in pairs]) for pairs in drawn]
    model, batch = model_of(), batch_of(found)
    whole = model(batch)
    assert whole.isfinite().all()
    padded = model(Shapes(tokens=64, multiple=multiple).fill(batch))
    assert padded.isfinite().all()
    close(padded[: len(found)], whole)
    for row, graph in enumerate(found):
        alone = batch_of([graph])
        alone = replace(alone, tokens=batch.tokens[row : row + 1], lengths=batch.lengths[row : row + 1])
        close(model(alone)[0], whole[row])


def test_every_weight_is_reached_by_the_gradient() -> None:
    model = model_of()
    model(batch_of(GRAPHS)).square().sum().backward()
    assert all(each.grad is not None and each.grad.any() for each in model.parameters())


def encoder_of() -> Any:
    return bag_of_means.Model(bag_of_means.Config(dim=10, dropout=0.0), VOCABULARY)


def test_a_frozen_encoder_gives_the_statement_and_is_no_part_of_the_weights() -> None:
    encoder, batch = encoder_of(), batch_of(GRAPHS)
    model = KagNet(Config(**SIZES["tiny"]), VOCABULARY, GRAPH, Frozen(encoder))
    assert not any("encoder" in name for name in model.state_dict())
    model(batch).sum().backward()
    assert all(each.grad is None for each in encoder.parameters())
    kept = replace(batch, statements=encoder.encode(batch).pooled.detach())
    model.eval()
    assert torch.equal(model(kept), model(batch))


def test_a_given_encoder_that_is_not_frozen_is_trained_along() -> None:
    model = KagNet(Config(**SIZES["tiny"]), VOCABULARY, GRAPH, encoder_of())
    model(batch_of(GRAPHS)).sum().backward()
    gradient = model.encoder.embedding.weight.grad  # type: ignore[union-attr]
    assert "encoder.embedding.weight" in model.state_dict() and gradient is not None and gradient.any()


def test_concepts_start_from_given_vectors_of_the_right_size() -> None:
    model, vectors = model_of(freeze_concepts=True), torch.randn(9, 12)
    model.start_concepts(vectors)
    assert model.paths is not None and torch.equal(model.paths.concepts.weight, vectors)
    assert not model.paths.concepts.weight.requires_grad
    with pytest.raises(UserError, match="have 11 values, but model.concept_dim is 12"):
        model.start_concepts(torch.randn(9, 11))


@pytest.mark.parametrize(
    ("values", "words"),
    [({"gcn_layers": -1}, "negative"), ({"statement_dim": 7}, "7 is odd"), ({"path_dim": 0}, "at least 1")],
)
def test_impossible_shapes_are_refused(values: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Config(**values)
