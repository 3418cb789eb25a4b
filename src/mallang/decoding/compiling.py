"""The step of a search, compiled for a GPU: fewer and larger kernels, which `runner` then captures."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch.fx import Graph

from mallang.decoding.progress import Progress


def compiled(rows: int) -> Any:
    """The step for so many rows; shapes beyond the first few that the compiler remembers run as they are."""
    return compiled_for_one() if rows == 1 else compiled_for_many()


@cache
def compiled_for_many() -> Any:
    """Matrix products are left to the library."""
    return torch.compile(Progress.advance, dynamic=False)


@cache
def compiled_for_one() -> Any:
    """The products of a single row become sums, which melt into what follows them and read the weights once.

    The compiler does so where it may search for the best blocks, and where a product has no bias.
    """
    # Not imported above: the compiler takes two seconds to import, and few searches need it.
    from torch._inductor.custom_graph_pass import CustomGraphPass

    class BiasesApart(CustomGraphPass):
        """The pass, and what compiled code is filed under."""

        def __call__(self, graph: Graph) -> None:
            set_biases_apart(graph)

        def uuid(self) -> str:
            return "mallang: biases apart 1"

    options: dict[str, Any] = {"coordinate_descent_tuning": True, "pre_grad_custom_pass": BiasesApart()}
    return torch.compile(Progress.advance, dynamic=False, options=options)


def set_biases_apart(graph: Graph) -> None:
    """Write every x Wᵀ + b of a graph as a product and a sum."""
    linear = torch._C._nn.linear
    for node in graph.find_nodes(op="call_function", target=linear):
        if len(node.args) == 3 and node.args[2] is not None:
            with graph.inserting_before(node):
                product = graph.call_function(linear, node.args[:2])
                total = graph.call_function(torch.add, (product, node.args[2]))
            node.replace_all_uses_with(total)
            graph.erase_node(node)
