"""Where a token stands, as a vector: computed from sines (Vaswani et al. 2017, section 3.5) or learned."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
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

    def forward(
        self, time: int, start: int | Int[Tensor, ""] = 0, most: int | None = None
    ) -> Float[Tensor, "{time} {self.dim}"]:
        """The vectors of the positions start … start + time − 1; the table grows when a text is longer.

        Where the start is known to the device alone, `most` says how long a text may become.
        """
        end = start + time if isinstance(start, int) else most
        if end is not None and end > len(self.table):
            with torch.inference_mode(False):  # the next to use it may be training
                self.table = sinusoids(2 * end, self.dim).to(self.table)
        return rows_from(self.table, start, time)


class LearnedPositions(nn.Module):
    """One learned vector for each of the first `max_length` positions."""

    def __init__(self, dim: int, max_length: int) -> None:
        super().__init__()
        self.dim, self.max_length = dim, max_length
        self.table = nn.Embedding(max_length, dim)

    def forward(
        self, time: int, start: int | Int[Tensor, ""] = 0, most: int | None = None
    ) -> Float[Tensor, "{time} {self.dim}"]:
        """The vectors of the positions start … start + time − 1; a start that is a tensor cannot be checked here."""
        if isinstance(start, int):
            check_length(start + time, self.max_length)
        return rows_from(self.table.weight, start, time)


def check_length(tokens: int, most: int) -> None:
    """Refuse a text that has more tokens than a model has learned positions for."""
    if tokens > most:
        raise UserError(
            f"a text has {tokens} tokens, but the model learned only {most} positions",
            todo="shorten or split the text, or train with a larger model.max_length",
        )


def rows_from(table: Float[Tensor, "length dim"], start: int | Int[Tensor, ""], time: int) -> Tensor:
    """`time` rows of a table from the row `start` on; past its end a tensor means the last row."""
    if isinstance(start, int):
        return table[start : start + time]
    rows = start[None] if time == 1 else start + torch.arange(time, device=start.device)
    return table.index_select(0, rows.clamp(max=len(table) - 1))


def sinusoids(length: int, dim: int) -> Float[Tensor, "length dim"]:
    """The first rows of the table; in double precision inside, since an angle loses digits as positions grow."""
    frequencies = 10000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1).float()
