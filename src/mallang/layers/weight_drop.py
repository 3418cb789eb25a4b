"""A recurrent stack that is kept from learning its text by heart: variational dropout between its layers, U dropped.

Weight drop (DropConnect on U: Wan et al. 2013; for LSTMs Merity et al. 2017, arXiv:1708.02182) sets single weights
from state to state to zero, once for a whole text. The recurrence itself stays one call of cuDNN: nothing happens
between its steps, as it would where the state was dropped.
"""

from __future__ import annotations

from torch import Tensor

from mallang.layers.dropout import VariationalDropout, dropout_mask
from mallang.layers.recurrent import Cell, Recurrent


class WeightDropped(Recurrent):
    """Recurrent layers of one size whose matrices from state to state lose a share of their weights in training."""

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
        """Whether some weights are zero for now."""
        return self.training and self.weight_dropout > 0

    def weights(self) -> list[Tensor]:
        """Of each layer: W, U with some of it dropped, and the biases of both."""
        own = super().weights()
        if self.drops_weights:
            own[1::4] = [u * dropout_mask(u, self.weight_dropout) for u in own[1::4]]
        return own

    def is_flattened(self, weights: list[Tensor]) -> bool:
        """Not where some of it was made again."""
        return not self.drops_weights and super().is_flattened(weights)
