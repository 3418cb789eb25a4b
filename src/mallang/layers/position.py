"""Where a token stands, as a vector: computed from sines (Vaswani et al. 2017, section 3.5) or learned."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mallang.errors import UserError


class SinusoidalPositions(nn.Module):
    """PE(pos, 2i) = sin(pos / 10000^(2i/dim)), PE(pos, 2i+1) = cos of the same: for texts of any length."""

    table: Tensor

    def __init__(self, dim: int, length: int = 1024) -> None:
        super().__init__()
        if dim % 2:
            raise ValueError(f"sinusoidal positions come in pairs of sine and cosine, but dim {dim} is odd")
        self.dim = dim
        self.register_buffer("table", sinusoids(length, dim), persistent=False)  # computed, so never saved

    def forward(self, time: int, start: int = 0) -> Float[Tensor, "{time} {self.dim}"]:
        """The vectors of the positions start … start + time − 1; the table grows when a text is longer."""
        if start + time > len(self.table):
            with torch.inference_mode(False):  # the next to use it may be training
                self.table = sinusoids(2 * (start + time), self.dim).to(self.table)
        return self.table[start : start + time]


class LearnedPositions(nn.Module):
    """One learned vector for each of the first `max_length` positions."""

    def __init__(self, dim: int, max_length: int) -> None:
        super().__init__()
        self.dim, self.max_length = dim, max_length
        self.table = nn.Embedding(max_length, dim)

    def forward(self, time: int, start: int = 0) -> Float[Tensor, "{time} {self.dim}"]:
        """The vectors of the positions start … start + time − 1."""
        if start + time > self.max_length:
            raise UserError(
                f"a text has {start + time} tokens, but the model learned only {self.max_length} positions",
                todo="shorten or split the text, train with a larger model.max_length, "
                'or with model.positions = "sinusoidal", which have no limit',
            )
        return self.table.weight[start : start + time]


def sinusoids(length: int, dim: int) -> Float[Tensor, "length dim"]:
    """The first rows of the table; in double precision inside, since an angle loses digits as positions grow."""
    frequencies = 10000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1).float()
