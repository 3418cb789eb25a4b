"""Soft and hard attention to the regions of an image, step by step (Xu et al. 2015, arXiv:1502.03044, section 4).

    soft    context = Σ_i α_i a_i
    hard    context = a_s       in training s is drawn from α, else it is the most probable one

The draw has no gradient. REINFORCE needs log α_s of each step instead, which is kept beside the weights.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mallang.layers.scores import ScoredAttention


class Attended(NamedTuple):
    """What a captioner says of a batch, and where it looked."""

    hidden: Float[Tensor, "batch time dim"]
    weights: Float[Tensor, "batch time regions"]
    """α of every step."""
    drawn: Float[Tensor, "batch time"] | None
    """log α_s of the region that was drawn at every step; 0 for images without a draw; None if nothing is drawn."""
    is_drawn: Bool[Tensor, " batch"] | None
    """The images for which regions were drawn."""


class Steps:
    """Attention to the regions of each image for queries that come step by step."""

    def __init__(
        self,
        attention: ScoredAttention,
        keys: Float[Tensor, "images regions key"],
        memory: Float[Tensor, "images regions dim"],
        is_drawn: Bool[Tensor, " images"] | None,
        is_hard: bool,
    ) -> None:
        self.attention, self.memory, self.is_drawn, self.is_hard = attention, memory, is_drawn, is_hard
        self.compare = attention.score.against(keys)
        self.scores: list[Tensor] = []
        self.weights: list[Tensor] = []
        self.drawn: list[Tensor] = []

    def __call__(self, queries: Float[Tensor, "rows key"]) -> Float[Tensor, "rows dim"]:
        """The context of one query per row; rows may be images × width."""
        scores = self.compare(queries.reshape(len(self.memory), -1, queries.shape[-1])).float()
        weights = scores.softmax(dim=-1)
        self.scores.append(scores)
        self.weights.append(weights)
        mixed = self.chosen(weights, scores) if self.is_hard else weights
        return (mixed.to(self.memory.dtype) @ self.memory).flatten(0, 1)

    def chosen(
        self, weights: Float[Tensor, "images width regions"], scores: Float[Tensor, "images width regions"]
    ) -> Float[Tensor, "images width regions"]:
        """1 for the region that hard attention takes; in training the weights themselves for images without a draw."""
        if self.is_drawn is None:
            return torch.zeros_like(weights).scatter_(-1, weights.argmax(dim=-1, keepdim=True), 1.0)
        noise = -torch.empty_like(scores).exponential_().log()  # Gumbel noise: its argmax is a draw from the softmax
        region = (scores.detach() + noise).argmax(dim=-1, keepdim=True)
        self.drawn.append(scores.log_softmax(dim=-1).gather(-1, region)[:, 0, 0] * self.is_drawn)
        single = torch.zeros_like(weights).scatter_(-1, region, 1.0)
        return torch.where(self.is_drawn[:, None, None], single, weights)

    def all_weights(self) -> Float[Tensor, "rows time regions"]:
        """The weights of all steps."""
        return torch.stack([each.flatten(0, 1) for each in self.weights], dim=1)

    def all_drawn(self) -> Float[Tensor, "rows time"] | None:
        """log α_s of all steps, where regions were drawn."""
        return torch.stack(self.drawn, dim=1) if self.drawn else None

    def end(self) -> None:
        """Pass scores and weights of all steps to the recorders."""
        if self.attention.recorders:
            both = (torch.stack(side, dim=2).flatten(1, 2) for side in (self.scores, self.weights))
            self.attention.record(*both)
