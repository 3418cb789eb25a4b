"""Graph convolution, adjacency and bilinear attention against explicit loops."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.layers.graph import BilinearAttention, GraphConvolution, adjacency_of

few = settings(deadline=None, max_examples=20)


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@few
@given(st.integers(1, 3), st.integers(1, 5), st.integers(0, 99))
@torch.no_grad()
def test_graph_convolution_is_the_formula_node_by_node(batch, nodes, seed):
    torch.manual_seed(seed)
    layer = GraphConvolution(4, 3)
    x = torch.randn(batch, nodes, 4)
    upper = torch.randint(0, 2, (batch, nodes, nodes)).triu(1)
    adjacency = (upper + upper.transpose(1, 2)).float()
    found = layer(x, adjacency)
    for row in range(batch):
        for i in range(nodes):
            own = layer.own.weight @ x[row, i] + layer.own.bias
            around = [j for j in range(nodes) if adjacency[row, i, j]]
            for j in around:
                own = own + layer.neighbors.weight @ x[row, j] / len(around)
            close(found[row, i], own.clamp(min=0))


@few
@given(st.data(), st.integers(1, 3), st.integers(2, 5))
def test_adjacency_joins_neighbors_on_paths_in_both_directions(data, batch, nodes):
    count = data.draw(st.integers(1, 6))
    rows = data.draw(st.lists(st.integers(-1, batch - 1), min_size=count, max_size=count))
    places = data.draw(
        st.lists(st.lists(st.integers(-1, nodes - 1), min_size=3, max_size=3), min_size=count, max_size=count)
    )
    found = adjacency_of(torch.tensor(rows), torch.tensor(places), batch, nodes)
    expected = torch.zeros(batch, nodes, nodes)
    for row, path in zip(rows, places, strict=True):
        for a, b in pairwise(path):
            if min(row, a, b) >= 0:
                expected[row, a, b] = expected[row, b, a] = 1.0
    assert torch.equal(found, expected)


@few
@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 99))
@torch.no_grad()
def test_bilinear_attention_is_the_formula_and_zero_where_nothing_is_seen(rows, seen, seed):
    torch.manual_seed(seed)
    layer = BilinearAttention(3, 5)
    queries, keys, values = torch.randn(rows, 2, 3), torch.randn(rows, 2, seen, 5), torch.randn(rows, 2, seen, 4)
    mask = torch.rand(rows, 2, seen) < 0.6
    kept = []
    layer.recorders.append(lambda scores, weights: kept.append(weights))
    found = layer(queries, keys, values, mask)
    for row in range(rows):
        for each in range(2):
            visible = [k for k in range(seen) if mask[row, each, k]]
            if not visible:
                assert not found[row, each].any() and not kept[0][row, 0, each].any()
                continue
            scores = torch.stack([queries[row, each] @ layer.key.weight @ keys[row, each, k] for k in visible])
            shares = scores.exp() / scores.exp().sum()
            mean = sum(share * values[row, each, k] for share, k in zip(shares, visible, strict=True))
            close(found[row, each], mean)
            close(kept[0][row, 0, each, visible], shares)


@pytest.mark.parametrize("shape", [(2, 3), (2, 1, 3)])
def test_weights_are_recorded_as_attention_with_one_head(shape):
    layer, kept = BilinearAttention(3, 3), []
    layer.recorders.append(lambda scores, weights: kept.append((scores.shape, weights.shape)))
    keys = torch.randn(*shape[:-1], 4, 3)
    layer(torch.randn(shape), keys, keys, torch.ones(*shape[:-1], 4, dtype=torch.bool))
    assert kept == [((2, 1, 1, 4), (2, 1, 1, 4))]
