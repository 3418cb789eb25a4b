"""How the graph of a step for a single row is rewritten before it is compiled.

Not in compiling.py, since the compiler takes two seconds to import; and not in a function of it, so that compiled code
can be kept under the name of the class and found again.

Such a graph may write into tensors, so it matters where a node stands: a norm goes into the linear layer after it only
if nothing between the two could change what it reads."""

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
    """Norms go into the linear layers after them, and the biases of all others become sums of their own."""

    def __init__(self) -> None:
        self.joins = norm_linear.works()  # tried now: while a compiler is at work nothing can be

    def __call__(self, graph: Graph) -> None:
        """Rewrite it in place."""
        if self.joins:
            join_norms(graph)
        set_biases_apart(graph)

    def uuid(self) -> Any:
        """What compiled code is filed under: all that decides what is done here."""
        return get_hash_for_files((__file__, norm_linear.__file__), str(self.joins))


class Linear(NamedTuple):
    """What a linear layer was called with, by name or by place."""

    input: Node
    weight: Node
    bias: Node | None = None


class Norm(NamedTuple):
    """The same of a norm."""

    input: Node
    normalized_shape: tuple[int, ...]
    weight: Node | None = None
    bias: Node | None = None
    eps: float = 1e-5


def join_norms(graph: Graph) -> None:
    """Write every linear layer of a norm, where a kernel takes both, as that kernel."""
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
    """The norm that a linear layer reads, if nobody but linear layers needs it and nothing is written in between."""
    while is_reshape(source):
        source = source.args[0]  # type: ignore[assignment]
    if source.op != "call_function" or source.target is not F.layer_norm:
        return None
    # `view_as` asks for its shape only.
    if not all(is_reshape(user) or user.target in (LINEAR, JOINED, "view_as") for user in source.users):
        return None
    between = node.prev
    while is_reshape(between) or between.op == "get_attr" or between.target in (LINEAR, JOINED):
        between = between.prev
    return Norm(*source.args, **source.kwargs) if between is source else None  # type: ignore[arg-type]


def is_reshape(node: Node) -> bool:
    """Whether it gives the same numbers in another shape."""
    return node.op == "call_method" and node.target == "reshape"


def are_made_for(norm: Norm, linear: Linear, node: Node) -> bool:
    """Whether the kernel takes both, and gives what they give."""
    parts = norm.input, norm.weight, norm.bias, linear.weight, linear.bias
    if norm.weight is None or any(part is not None and value_of(part) is None for part in (*parts, node)):
        return False
    if any(part is not None and part.op not in ("placeholder", "get_attr") for part in parts[1:]):
        return False  # computed on the way: the kernel reads it before what came before has ended
    values: list[Any] = [None if part is None else value_of(part) for part in parts]
    x, _, _, weight, _ = values
    whole = tuple(norm.normalized_shape) == tuple(weight.shape[1:])
    return whole and value_of(node).dtype == x.dtype and norm_linear.is_made_for(*values)


def value_of(node: Node) -> Any:
    """A tensor of the shape that it will have, if that is known."""
    return node.meta.get("example_value")


def set_biases_apart(graph: Graph) -> None:
    """Write every x Wᵀ + b of a graph as a product and a sum."""
    for node in graph.find_nodes(op="call_function", target=LINEAR):
        linear = Linear(*node.args, **node.kwargs)
        if linear.bias is not None:
            with graph.inserting_before(node):
                product = graph.call_function(LINEAR, (linear.input, linear.weight))
                total = graph.call_function(torch.add, (product, linear.bias))
            node.replace_all_uses_with(total)
            graph.erase_node(node)
