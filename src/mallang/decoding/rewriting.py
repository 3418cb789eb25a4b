"""How the graph of a step for a single row is rewritten before it is compiled.

Not in compiling.py, since the compiler takes two seconds to import; and not in a function of it, so that compiled code
can be kept under the name of the class and found again.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx import Graph, Node

from mallang.layers import norm_linear

LINEAR: Any = torch._C._nn.linear
JOINED: Any = torch.ops.mallang.norm_linear.default


class ForOneRow(CustomGraphPass):
    """Norms go into the linear maps after them, and the biases of all others become sums of their own."""

    def __init__(self) -> None:
        norm_linear.works()  # tried now: while a compiler is at work nothing can be

    def __call__(self, graph: Graph) -> None:
        """Rewrite it in place."""
        join_norms(graph)
        set_biases_apart(graph)

    def uuid(self) -> str:
        """What compiled code is filed under: to be changed with what is done here."""
        return "mallang: norms joined, biases apart 1"


def join_norms(graph: Graph) -> None:
    """Write every linear map of a norm, where a kernel takes both, as that kernel."""
    for node in graph.find_nodes(op="call_function", target=LINEAR):
        source, weight, bias = (*node.args, None)[:3]
        while source.op == "call_method" and source.target == "reshape":
            source = source.args[0]
        if source.op != "call_function" or source.target is not F.layer_norm:
            continue
        x, shape, gain, shift, epsilon = norm_arguments(*source.args, **source.kwargs)
        if len(shape) == 1 and gain is not None and norm_linear.is_made_for(value_of(x), value_of(weight)):
            with graph.inserting_before(node):
                joined = graph.call_function(JOINED, (x, gain, shift, epsilon, weight, bias))
                shaped = graph.call_method("reshape", (joined, tuple(value_of(node).shape)))
            node.replace_all_uses_with(shaped)
            graph.erase_node(node)


def norm_arguments(input: Node, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """What `layer_norm` was called with, by name or by place."""
    return input, normalized_shape, weight, bias, eps


def set_biases_apart(graph: Graph) -> None:
    """Write every x Wᵀ + b of a graph as a product and a sum."""
    for node in graph.find_nodes(op="call_function", target=LINEAR):
        if len(node.args) == 3 and node.args[2] is not None:
            with graph.inserting_before(node):
                product = graph.call_function(LINEAR, node.args[:2])
                total = graph.call_function(torch.add, (product, node.args[2]))
            node.replace_all_uses_with(total)
            graph.erase_node(node)


def value_of(node: Node) -> Any:
    """A tensor of the shape that it will have."""
    return node.meta["example_value"]
