"""Dropout (Srivastava et al. 2014) and variational dropout (Gal and Ghahramani 2016)."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from mallang.kernels.dropout import dropout, dropout_mask

__all__ = ["Dropout", "VariationalDropout", "dropout_mask", "drops"]


class Dropout(nn.Dropout):
    """Dropout, with a faster random generator than torch's on a CPU."""

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """The new x."""
        return dropout(x, self.p) if self.training and self.p else x


class VariationalDropout(nn.Dropout):
    """Variational dropout: one dropout mask per row for all time steps (Gal and Ghahramani 2016, arXiv:1512.05287).

    The noise that a recurrent layer reads is thereby constant over time.
    """

    def forward(self, x: Float[Tensor, "rows time dim"]) -> Float[Tensor, "rows time dim"]:
        """The new x."""
        if not self.training or self.p == 0:
            return x
        return x * dropout_mask(x[:, :1], self.p)


def drops(model: nn.Module) -> bool:
    """Whether a model has a dropout layer with a probability above 0."""
    return any(isinstance(part, nn.Dropout) and part.p > 0 for part in model.modules())
