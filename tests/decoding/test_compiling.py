"""What the compiler is given for a single row computes the same."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx import symbolic_trace

from mallang.decoding.rewriting import JOINED, LINEAR, join_norms, set_biases_apart
from mallang.layers import norm_linear


class Linears(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3, bias=False)

    def forward(self, x):
        first = torch._C._nn.linear(x, self.first.weight, self.first.bias)
        return torch._C._nn.linear(first.relu(), self.last.weight)


def test_a_bias_is_added_apart():
    model, x = Linears(), torch.randn(1, 4)
    traced = symbolic_trace(model)
    set_biases_apart(traced.graph)
    traced.graph.lint()
    traced.recompile()
    linears = traced.graph.find_nodes(op="call_function", target=torch._C._nn.linear)
    assert [len(node.args) for node in linears] == [2, 2]
    torch.testing.assert_close(traced(x), model(x))


class Normed(nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.norm, self.wide, self.out = nn.LayerNorm(4, bias=bias), nn.Linear(4, 6, bias=bias), nn.Linear(6, 3)

    def forward(self, x):
        normed = F.layer_norm(x, (4,), self.norm.weight, self.norm.bias, 1e-5)
        wide = torch._C._nn.linear(normed.reshape(1, -1, 4), self.wide.weight, self.wide.bias)
        return torch._C._nn.linear(wide, self.out.weight, self.out.bias) + normed.sum()


def traced_with_values(model, x):
    """As a compiler hands it over: every node knows a tensor of its shape."""
    traced = symbolic_trace(model)
    values = {}

    class Noted(torch.fx.Interpreter):
        def run_node(self, node):
            values[node] = super().run_node(node)
            return values[node]

    Noted(traced).run(x)
    for node, value in values.items():
        node.meta["example_value"] = value
    return traced


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 2])
def test_a_norm_goes_into_the_product_of_a_single_row(rows, bias, monkeypatch):
    monkeypatch.setattr(norm_linear, "is_made_for", lambda x, weight: x.numel() == weight.shape[1])
    model, x = Normed(bias), torch.randn(1, rows, 4)
    traced = traced_with_values(model, x)
    join_norms(traced.graph)
    traced.graph.lint()
    traced.recompile()
    assert len(traced.graph.find_nodes(op="call_function", target=JOINED)) == (rows == 1)
    assert len(traced.graph.find_nodes(op="call_function", target=LINEAR)) == 1 + (rows != 1)
    torch.testing.assert_close(traced(x), model(x))
