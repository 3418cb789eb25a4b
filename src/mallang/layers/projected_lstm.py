"""An LSTM with a projection: many cells, but a small state that is carried on and given to the next layer.

    i, f, g, o = W x + U r + b       c' = f∘c + i∘g       r' = P (o∘tanh(c'))

The recurrent matrix works on r = P h, so that an LSTM with the recurrent matrix U·P and the output P h is the same
network: the fused kernels of a plain LSTM run it. (Sak, Senior, Beaufays 2014, arXiv:1402.1128.)
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.kernels.recurrent import Memory, run_layers


class ProjectedLSTM(nn.Module):
    """One layer that reads every row from its first position, from a zero state."""

    def __init__(self, input_dim: int, cells: int, dim: int | None = None) -> None:
        """`dim` is the size of the projection; None: there is none, and the state has as many numbers as cells."""
        super().__init__()
        self.cells = cells
        self.weight_ih = nn.Parameter(torch.empty(4 * cells, input_dim))
        self.weight_hh = nn.Parameter(torch.empty(4 * cells, cells if dim is None else dim))
        self.bias = nn.Parameter(torch.empty(4 * cells))
        self.projection = None if dim is None else nn.Linear(cells, dim, bias=False)
        self.reset_parameters()

    def forward(self, x: Float[Tensor, "rows time inputs"]) -> Float[Tensor, "rows time dim"]:
        """The output at every position."""
        zeros = x.new_zeros(len(x), 1, self.cells)
        recurrent = self.weight_hh if self.projection is None else self.weight_hh @ self.projection.weight
        weights = [self.weight_ih, recurrent, self.bias, torch.zeros_like(self.bias)]
        outputs, _ = run_layers("lstm", x, Memory(zeros, zeros), weights, False)
        return outputs if self.projection is None else self.projection(outputs)

    def reset_parameters(self) -> None:
        """Xavier for W and P, orthogonal for U, gate by gate; zero biases, but 1 for the forget gate."""
        for gate in torch.split(self.weight_ih.detach(), self.cells):
            nn.init.xavier_uniform_(gate)
        for gate in torch.split(self.weight_hh.detach(), self.cells):
            nn.init.orthogonal_(gate)
        nn.init.zeros_(self.bias)
        nn.init.ones_(self.bias.detach()[self.cells : 2 * self.cells])
        if self.projection is not None:
            nn.init.xavier_uniform_(self.projection.weight)


def reversed_rows(x: Tensor, lengths: Int[Tensor, " rows"]) -> Tensor:
    """Every row from its last position to its first; padding stays behind it. Applied twice it changes nothing."""
    places = torch.arange(x.shape[1], device=x.device).expand(len(x), -1)
    order = torch.where(places < lengths[:, None], lengths[:, None] - 1 - places, places)
    return x.gather(1, order if x.dim() == 2 else order[:, :, None].expand_as(x))
