"""What the compiler is given for a single row computes the same."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx import symbolic_trace

from mallang.decoding.rewriting import JOINED, LINEAR, ForOneRow, join_norms, set_biases_apart
from mallang.kernels import norm_linear


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
    """A norm and what reads it, in one of many ways."""

    def __init__(self, way, bias=True):
        super().__init__()
        self.way = way
        self.norm, self.wide, self.out = nn.LayerNorm(4, 1e-2, bias=bias), nn.Linear(4, 4, bias=bias), nn.Linear(4, 3)
        for weight in self.parameters():
            nn.init.normal_(weight)

    def forward(self, x):
        normed = F.layer_norm(x, (4,), self.norm.weight, self.norm.bias, 1e-2)
        return getattr(self, self.way)(x, normed)

    def plain(self, x, normed):
        wide = LINEAR(normed.reshape(1, -1, 4), self.wide.weight, self.wide.bias)
        return LINEAR(wide.view_as(normed), self.out.weight, self.out.bias)

    def shaped(self, x, normed):
        return LINEAR(normed.reshape(1, 1, -1, 4), self.wide.weight, self.wide.bias)

    def twice(self, x, normed):
        return LINEAR(normed, self.wide.weight, self.wide.bias) + LINEAR(normed, self.out.weight, self.out.bias).sum()

    def by_name(self, x, normed):
        return LINEAR(normed, weight=self.wide.weight, bias=self.wide.bias)

    def in_a_row(self, x, normed):
        wide = LINEAR(normed, self.wide.weight, self.wide.bias)
        again = F.layer_norm(wide, (4,), self.norm.weight, self.norm.bias, 1e-2)
        return LINEAR(again, self.out.weight, self.out.bias)

    def also_read(self, x, normed):
        return LINEAR(normed, self.wide.weight, self.wide.bias) + normed

    def written_before(self, x, normed):
        normed.mul_(2)
        return LINEAR(normed, self.wide.weight, self.wide.bias)

    def source_written(self, x, normed):
        x.mul_(2)
        return LINEAR(normed, self.wide.weight, self.wide.bias) + x

    def made_on_the_way(self, x, normed):
        weight = 2 * self.wide.weight
        return LINEAR(F.layer_norm(x, (4,), self.norm.weight, self.norm.bias, 1e-2), weight, self.wide.bias)

    def in_part(self, x, normed):
        part = F.layer_norm(x.reshape(2, 2), (2,), self.norm.weight[:2], None, 1e-2)
        return LINEAR(part.reshape(1, 4), self.wide.weight, self.wide.bias)


JOINED_IN = {
    "plain": 1, "shaped": 1, "twice": 2, "by_name": 1, "in_a_row": 2, "also_read": 0, "written_before": 0,
    "source_written": 0, "made_on_the_way": 0, "in_part": 0,
}  # fmt: skip


def traced_with_values(model, x):
    """As a compiler hands it over: every node knows a tensor of its shape."""
    traced, values = symbolic_trace(model), {}

    class Noted(torch.fx.Interpreter):
        def run_node(self, node):
            values[node] = super().run_node(node)
            return values[node]

    Noted(traced).run(x.clone())
    for node, value in values.items():
        node.meta["example_value"] = value
    return traced


def rewritten(model, x, joins=True):
    traced = traced_with_values(model, x)
    rewrite = ForOneRow()
    rewrite.joins = joins
    rewrite(traced.graph)
    traced.graph.lint()
    traced.recompile()
    return traced


def count(traced, target):
    return len(traced.graph.find_nodes(op="call_function", target=target))


@pytest.fixture
def made_for_cpus(monkeypatch):
    monkeypatch.setattr(norm_linear, "is_made_for", lambda x, *rest: x.numel() == rest[2].shape[1])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("way", JOINED_IN)
def test_a_norm_goes_into_the_product_of_a_single_row(way, bias, made_for_cpus):
    torch.manual_seed(1)
    model, x = Normed(way, bias), torch.randn(1, 4)
    traced = rewritten(model, x)
    assert count(traced, JOINED) == JOINED_IN[way]
    torch.testing.assert_close(traced(x.clone()), model(x.clone()))


def test_two_rows_stay_as_they_are(made_for_cpus):
    model, x = Normed("plain"), torch.randn(2, 4)
    traced = rewritten(model, x)
    assert count(traced, JOINED) == 0 and count(traced, torch.add) == 2
    torch.testing.assert_close(traced(x), model(x))


def test_nodes_without_values_stay_as_they_are(made_for_cpus):
    traced = symbolic_trace(Normed("plain"))
    join_norms(traced.graph)
    assert count(traced, JOINED) == 0


def test_where_the_kernel_does_not_work_nothing_is_joined(made_for_cpus):
    traced = rewritten(Normed("plain"), torch.randn(1, 4), joins=False)
    assert count(traced, JOINED) == 0


def test_compiled_code_is_filed_under_what_was_done():
    first, other = ForOneRow(), ForOneRow()
    other.joins = not first.joins
    assert first.uuid() == ForOneRow().uuid() != other.uuid()
