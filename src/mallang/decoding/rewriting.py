"""Graph rewriting for the compiled decode step of a single row: fuses norms into linear layers, separates biases.

This is not in compiling.py, since the compiler takes two seconds to import; and not inside a function there, so that
compiled code can be cached under the name of the class.

The graph may contain in-place writes, so the order of nodes matters: a norm is fused into the linear layer after it
only if no node between the two could change the input of the norm."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch.fx import Graph, Node

from mallang.kernels import norm_linear

LINEAR: Any = torch._C._nn.linear
JOINED: Any = torch.ops.mallang.norm_linear.default


class ForOneRow(CustomGraphPass):
    """A graph pass: fuses norms into the linear layers after them, and makes the biases of all others separate adds."""

    def __init__(self) -> None:
        self.joins = norm_linear.works()  # tested here, since no kernel can run during compilation

    def __call__(self, graph: Graph) -> None:
        """Rewrite the graph in place."""
        if self.joins:
            join_norms(graph)
        set_biases_apart(graph)

    def uuid(self) -> Any:
        """The cache key of compiled code: everything that this pass depends on."""
        return get_hash_for_files((__file__, norm_linear.__file__), str(self.joins))


class Linear(NamedTuple):
    """The arguments of a linear layer's call, positional or named."""

    input: Node
    weight: Node
    bias: Node | None = None


class Norm(NamedTuple):
    """The arguments of a layer norm's call, positional or named."""

    input: Node
    normalized_shape: tuple[int, ...]
    weight: Node | None = None
    bias: Node | None = None
    eps: float = 1e-5


def join_norms(graph: Graph) -> None:
    """Replace every layer norm and linear layer that the fused kernel supports by a call of that kernel."""
    for node in graph.find_nodes(op="call_function", target=LINEAR):
        linear = Linear(*node.args, **node.kwargs)
        norm = norm_before(node, linear.input)
        if norm is None or not are_made_for(norm, linear, node):
            continue
        with graph.inserting_before(node):
            given = norm.input, norm.weight, norm.bias, norm.eps, linear.weight, linear.bias
            joined = graph.call_function(JOINED, given)
            shaped = graph.call_method("reshape", (joined, tuple(value_of(node).shape)))
        shaped.meta.update(node.meta)
        node.replace_all_uses_with(shaped)
        graph.erase_node(node)


def norm_before(node: Node, source: Node) -> Norm | None:
    """The norm before a linear layer, if only linear layers read it and no node in between could write to memory."""
    while is_reshape(source):
        source = source.args[0]  # type: ignore[assignment]
    if source.op != "call_function" or source.target is not F.layer_norm:
        return None
    # `view_as` reads the shape only.
    if not all(is_reshape(user) or user.target in (LINEAR, JOINED, "view_as") for user in source.users):
        return None
    between = node.prev
    while is_reshape(between) or between.op == "get_attr" or between.target in (LINEAR, JOINED):
        between = between.prev
    return Norm(*source.args, **source.kwargs) if between is source else None  # type: ignore[arg-type]


def is_reshape(node: Node) -> bool:
    """Whether a node is a reshape."""
    return node.op == "call_method" and node.target == "reshape"


def are_made_for(norm: Norm, linear: Linear, node: Node) -> bool:
    """Whether the fused kernel supports this norm and this linear layer, with equal results."""
    parts = norm.input, norm.weight, norm.bias, linear.weight, linear.bias
    if norm.weight is None or any(part is not None and value_of(part) is None for part in (*parts, node)):
        return False
    if any(part is not None and part.op not in ("placeholder", "get_attr") for part in parts[1:]):
        return False  # computed inside the graph: only the weights of a model are fused
    values: list[Any] = [None if part is None else value_of(part) for part in parts]
    x, _, _, weight, _ = values
    whole = tuple(norm.normalized_shape) == tuple(weight.shape[1:])
    return whole and value_of(node).dtype == x.dtype and norm_linear.is_made_for(*values)


def value_of(node: Node) -> Any:
    """The example tensor of a node, which has its shape and dtype; None if unknown."""
    return node.meta.get("example_value")


def set_biases_apart(graph: Graph) -> None:
    """Split every linear layer x Wᵀ + b of a graph into a matmul and an add."""
    for node in graph.find_nodes(op="call_function", target=LINEAR):
        linear = Linear(*node.args, **node.kwargs)
        if linear.bias is not None:
            with graph.inserting_before(node):
                matmul = graph.call_function(LINEAR, (linear.input, linear.weight))
                total = graph.call_function(torch.add, (matmul, linear.bias))
            node.replace_all_uses_with(total)
            graph.erase_node(node)
