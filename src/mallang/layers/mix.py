"""A learned mix of the layers of an encoder (Peters et al. 2018, ELMo, arXiv:1802.05365, eq. 1).

    mix = γ · Σ softmax(scores)ₖ · layerₖ

All layers weigh the same at first, and γ is 1. Each task learns its own: which layer serves it best shows in the
weights, and γ scales the vectors to what the head expects. The feature-based use of BERT compares such sums (Devlin et
al. 2018, section 5.3).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn


class LayerMix(nn.Module):
    """The weighted sum of several layers with learned weights."""

    def __init__(self, layers: int, *, dropout: float = 0.0, l2: float = 0.0) -> None:
        """`dropout`: probability that a layer is left out of the mix in training; `l2`: the weight of the penalty."""
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(layers))
        self.scale = nn.Parameter(torch.ones(()))
        self.dropout, self.l2 = dropout, l2

    def forward(self, layers: Sequence[Float[Tensor, "*batch dim"]]) -> Float[Tensor, "*batch dim"]:
        """The mix of layers of one size."""
        if len(layers) != len(self.scores):
            raise ValueError(f"this mix is of {len(self.scores)} layers, not of {len(layers)}")
        weights = self.weights().to(layers[0].dtype)
        mixed = layers[0] * weights[0]
        for layer, weight in zip(layers[1:], weights[1:], strict=True):
            mixed = mixed + layer * weight
        return mixed * self.scale.to(mixed.dtype)

    def weights(self) -> Float[Tensor, " layers"]:
        """The weight of every layer, from the lowest to the highest; they sum to 1. With dropout some are 0."""
        scores = self.scores.float()
        if self.training and self.dropout:
            kept = torch.rand_like(scores) >= self.dropout
            scores = scores.masked_fill(~(kept | ~kept.any()), -torch.inf)  # all of them where none is left
        return scores.softmax(dim=0)

    def penalty(self) -> Float[Tensor, ""]:
        """l2 · Σₖ scoresₖ²: it pulls the mix towards the mean of the layers."""
        return self.l2 * self.scores.float().square().sum()
