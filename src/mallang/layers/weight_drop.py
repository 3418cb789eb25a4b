"""A regularized recurrent stack: variational dropout between its layers, weight drop on the recurrent weights U.

Weight drop (DropConnect on U: Wan et al. 2013; for LSTMs Merity et al. 2017, arXiv:1708.02182) sets single recurrent
weights to zero, once per forward for all time steps. The recurrence stays one call of cuDNN, which dropout of the
state between its steps would rule out.
"""

from __future__ import annotations

from torch import Tensor

from mallang.layers.dropout import VariationalDropout, dropout_mask
from mallang.layers.recurrent import Cell, Recurrent


class WeightDropped(Recurrent):
    """Recurrent layers of one size with weight drop on their recurrent matrices in training."""

    def __init__(
        self,
        kind: Cell,
        input_dim: int,
        dim: int,
        layers: int = 1,
        dropout: float = 0.0,
        weight_dropout: float = 0.0,
        variational: bool = True,
    ) -> None:
        super().__init__(kind, input_dim, dim, layers, dropout)
        if variational:
            self.between = VariationalDropout(dropout)
        self.weight_dropout = weight_dropout

    @property
    def drops_weights(self) -> bool:
        """Whether weight drop is active."""
        return self.training and self.weight_dropout > 0

    def weights(self) -> list[Tensor]:
        """Input weights W, recurrent weights U after weight drop and both biases of every layer."""
        own = super().weights()
        if self.drops_weights:
            own[1::4] = [u * dropout_mask(u, self.weight_dropout) for u in own[1::4]]
        return own

    def is_flattened(self, weights: list[Tensor]) -> bool:
        """Whether these are the weights that torch flattened for cuDNN: not after weight drop, which makes new ones."""
        return not self.drops_weights and super().is_flattened(weights)
