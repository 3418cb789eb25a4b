"""Parts of models that read graphs: graph convolution, adjacency from paths, and bilinear attention.

    h_i' = relu(W_self h_i + b + 1/|N_i| Σ_{j ∈ N_i} W h_j)         N_i: the neighbors of node i

This is the relation-free graph convolution (GCN) of KagNet (Lin et al. 2019, arXiv:1909.02151, section 3.2), after Kipf
and Welling 2017, arXiv:1609.02907. Graphs are dense and padded: schema graphs have a few dozen nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mallang.kernels.attention import Observer


@dataclass(frozen=True)
class GraphSizes:
    """What a model must know of a knowledge graph."""

    concepts: int
    relations: int
    """Relations; each has a second number for edges that are walked backward."""
    max_edges: int
    """Edges of the longest path."""


class GraphConvolution(nn.Module):
    """One layer: every node gets its own vector and the mean of its neighbors', each after a linear layer."""

    def __init__(self, input_dim: int, dim: int) -> None:
        super().__init__()
        self.own = nn.Linear(input_dim, dim)
        self.neighbors = nn.Linear(input_dim, dim, bias=False)

    def forward(
        self, nodes: Float[Tensor, "batch nodes inputs"], adjacency: Float[Tensor, "batch nodes nodes"]
    ) -> Float[Tensor, "batch nodes dim"]:
        """The new vectors of the nodes; a node without neighbors has its own part alone."""
        shares = adjacency / adjacency.sum(dim=-1, keepdim=True).clamp(min=1.0)
        return F.relu(self.own(nodes) + shares.to(nodes.dtype) @ self.neighbors(nodes))


def adjacency_of(
    rows: Int[Tensor, " paths"], places: Int[Tensor, "paths places"], batch: int, nodes: int
) -> Float[Tensor, "batch nodes nodes"]:
    """1 where two nodes of a row are neighbors on one of its paths; a place below 0 is no node."""
    first, second = places[:, :-1], places[:, 1:]
    edges = (rows[:, None] * nodes + first) * nodes + second
    back = (rows[:, None] * nodes + second) * nodes + first
    nowhere = batch * nodes * nodes  # one more cell, for edges that are none
    indices = torch.where((first >= 0) & (second >= 0) & (rows[:, None] >= 0), torch.stack((edges, back)), nowhere)
    flat = torch.zeros(nowhere + 1, device=places.device)
    return flat.index_fill(0, indices.flatten(), 1.0)[:-1].view(batch, nodes, nodes)


class BilinearAttention(nn.Module):
    """Attention with the score qᵀ W k; its weights can be recorded. Where nothing may be seen the result is zero."""

    def __init__(self, query_dim: int, key_dim: int) -> None:
        super().__init__()
        self.key = nn.Linear(key_dim, query_dim, bias=False)
        self.recorders: list[Observer] = []

    def forward(
        self,
        queries: Float[Tensor, "*rows query_dim"],
        keys: Float[Tensor, "*rows seen key_dim"],
        values: Float[Tensor, "*rows seen value_dim"],
        mask: Bool[Tensor, "*rows seen"],
    ) -> Float[Tensor, "*rows value_dim"]:
        """The mean of the values, weighted by the softmax of the scores."""
        scores = (self.key(keys) @ queries[..., None]).squeeze(-1).float()
        weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=-1) * mask
        for record in self.recorders:
            shape = len(scores), 1, -1, scores.shape[-1]  # attention with one head, and a query for each pair
            record(scores.view(shape), weights.view(shape))
        found: Tensor = weights.to(values.dtype)[..., None, :] @ values
        return found.squeeze(-2)
