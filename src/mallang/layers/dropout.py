"""Dropout (Srivastava et al. 2014): training sets every value to zero with a probability and scales the others up."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from mallang.kernels.dropout import dropout, dropout_mask

__all__ = ["Dropout", "VariationalDropout", "dropout_mask", "drops"]


class Dropout(nn.Dropout):
    """Dropout whose random numbers are drawn faster on a CPU than torch's."""

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """The new x."""
        return dropout(x, self.p) if self.training and self.p else x


class VariationalDropout(nn.Dropout):
    """The same values of a row dropped at every time (variational dropout: Gal and Ghahramani 2016, arXiv:1512.05287).

    What was dropped once stays dropped to the end of the text, so that the noise a recurrent layer reads is constant.
    """

    def forward(self, x: Float[Tensor, "rows time dim"]) -> Float[Tensor, "rows time dim"]:
        """The new x."""
        if not self.training or self.p == 0:
            return x
        return x * dropout_mask(x[:, :1], self.p)


def drops(model: nn.Module) -> bool:
    """Whether anything is dropped while the model trains."""
    return any(isinstance(part, nn.Dropout) and part.p > 0 for part in model.modules())
