"""What the compiler is given for a single row computes the same."""

import torch
from torch import nn
from torch.fx import symbolic_trace

from mallang.decoding.compiling import set_biases_apart


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
