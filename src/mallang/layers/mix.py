"""A learned mix of the layers of an encoder (Peters et al. 2018, ELMo, arXiv:1802.05365, eq. 1).

    mix = γ · Σ softmax(scores)ₖ · layerₖ

All layers weigh the same at first, and γ is 1. The feature-based use of BERT compares such sums (Devlin et al. 2018,
section 5.3).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn


class LayerMix(nn.Module):
    """The weighted sum of several layers with learned weights."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(layers))
        self.scale = nn.Parameter(torch.ones(()))

    def weights(self) -> Float[Tensor, " layers"]:
        """The weight of every layer, from the lowest to the highest; they sum to 1."""
        return self.scores.softmax(dim=0)

    def forward(self, layers: Sequence[Float[Tensor, "*batch dim"]]) -> Float[Tensor, "*batch dim"]:
        """The mix."""
        weighted = [weight * layer for weight, layer in zip(self.weights(), layers, strict=True)]
        return self.scale * torch.stack(weighted).sum(dim=0)
