"""An LSTM layer with a highway connection around every step, in one direction over padded rows.

    i, f, g, o = σ, σ, tanh, σ (W x + U h + b)     c' = f∘c + i∘g     r = σ(V x + R h + a)
    h' = r∘(o∘tanh(c')) + (1 − r)∘T x

The output of the highway is the state of the next step (Zhang et al. 2016, arXiv:1510.08983, as in He et al. 2017), so
that no fused LSTM can run it: it is a loop over time. In training one dropout mask per row falls on the state at all
steps (Gal and Ghahramani 2016, arXiv:1512.05287), and so on the output.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.kernels.recurrent import lstm_update
from mallang.layers.dropout import dropout_mask
from mallang.layers.projected_lstm import reversed_rows


class HighwayLSTM(nn.Module):
    """One layer; `backwards` it reads every row from its last word to its first."""

    def __init__(self, input_dim: int, dim: int, dropout: float = 0.0, *, backwards: bool = False) -> None:
        super().__init__()
        self.dim, self.backwards = dim, backwards
        self.dropout = nn.Dropout(dropout)
        self.inputs = nn.Linear(input_dim, 5 * dim)
        """W and V with b and a: the gates i, f, g, o of the LSTM, then r of the highway."""
        self.recurrent = nn.Linear(dim, 5 * dim, bias=False)
        """U and R."""
        self.carry = nn.Linear(input_dim, dim, bias=False)
        """T."""
        self.reset_parameters()

    def forward(
        self, x: Float[Tensor, "rows time inputs"], lengths: Int[Tensor, " rows"]
    ) -> Float[Tensor, "rows time dim"]:
        """The state at every word, from a zero state before the first one that is read."""
        if self.backwards:
            return reversed_rows(self.read(reversed_rows(x, lengths)), lengths)
        return self.read(x)

    def read(self, x: Float[Tensor, "rows time inputs"]) -> Float[Tensor, "rows time dim"]:
        """The state at every position, read from the first on."""
        gates, carried = self.inputs(x), self.carry(x)
        hidden = cell = gates.new_zeros(len(x), self.dim)
        mask = dropout_mask(hidden, self.dropout.p) if self.training and self.dropout.p else None
        outputs = []
        for own, straight in zip(gates.unbind(1), carried.unbind(1), strict=True):
            lstm, highway = (own + self.recurrent(hidden)).split([4 * self.dim, self.dim], dim=-1)
            new, cell = lstm_update(lstm, cell)
            hidden = torch.lerp(straight, new, highway.sigmoid())
            hidden = hidden if mask is None else hidden * mask
            outputs.append(hidden)
        return torch.stack(outputs, dim=1)

    def reset_parameters(self) -> None:
        """Orthonormal matrices, gate by gate; zero biases, but 1 for the forget gate."""
        for matrix in (self.inputs.weight, self.recurrent.weight, self.carry.weight):
            for gate in torch.split(matrix.detach(), self.dim):
                nn.init.orthogonal_(gate)
        nn.init.zeros_(self.inputs.bias)
        nn.init.ones_(self.inputs.bias.detach()[self.dim : 2 * self.dim])
