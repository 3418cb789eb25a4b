"""A learned mix of the layers of an encoder: γ · Σ_j s_j h_j with s = softmax(w).

Each task learns its own: which layer serves it best shows in s, and γ scales the vectors to what the head expects.
(Peters et al. 2018, ELMo, arXiv:1802.05365, equation 1.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn


class LayerMix(nn.Module):
    """The weights w of the layers and the scale γ; at the start the mean of the layers."""

    def __init__(self, layers: int, *, dropout: float = 0.0, l2: float = 0.0) -> None:
        """`dropout`: probability that a layer is left out of the mix in training; `l2`: the weight of the penalty."""
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(layers))
        self.scale = nn.Parameter(torch.ones(()))
        self.dropout, self.l2 = dropout, l2

    def forward(self, layers: Sequence[Float[Tensor, "*batch dim"]]) -> Float[Tensor, "*batch dim"]:
        """The mix of layers of one size."""
        if len(layers) != len(self.weights):
            raise ValueError(f"this mix is of {len(self.weights)} layers, not of {len(layers)}")
        shares = self.shares().to(layers[0].dtype)
        mixed = layers[0] * shares[0]
        for layer, share in zip(layers[1:], shares[1:], strict=True):
            mixed = mixed + layer * share
        return mixed * self.scale.to(mixed.dtype)

    def shares(self) -> Float[Tensor, " layers"]:
        """The share s_j of every layer, 1 together; with dropout some have none."""
        weights = self.weights.float()
        if self.training and self.dropout:
            kept = torch.rand_like(weights) >= self.dropout
            weights = weights.masked_fill(~(kept | ~kept.any()), -torch.inf)  # all of them where none is left
        return weights.softmax(dim=0)

    def penalty(self) -> Float[Tensor, ""]:
        """l2 · Σ_j w_j²: it pulls the mix towards the mean of the layers."""
        return self.l2 * self.weights.float().square().sum()
