"""Position embeddings: sinusoidal (Vaswani et al. 2017, section 3.5), learned, none, and rotary (RoPE).

Rotary positions (Su et al. 2021, arXiv:2104.09864) add nothing to a token embedding. They rotate queries and keys, two
values at a time, by an angle proportional to the position, so that the dot product of a query and a key depends on
their distance and not on their absolute positions.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.errors import UserError

Size = int | torch.SymInt
"""A number of positions; in an exported graph it is symbolic."""


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
        self, time: Size, start: int | Int[Tensor, "*_"] = 0, most: int | None = None
    ) -> Float[Tensor, "*_ positions {self.dim}"]:
        """The vectors of the positions start … start + time − 1; the table grows when a text is longer.

        Where `start` is a tensor, its value is not known to the host, and `most` is the maximum length of a text. It
        may hold a position for every row.
        """
        end = start + time if isinstance(start, int) else most
        if end is not None and end > len(self.table):
            with torch.inference_mode(False):  # the next to use it may be training
                self.table = sinusoids(2 * int(end), self.dim).to(self.table)
        return rows_from(self.table, start, time)


class LearnedPositions(nn.Module):
    """One learned vector for each of the first `max_length` positions."""

    def __init__(self, dim: int, max_length: int) -> None:
        super().__init__()
        self.dim, self.max_length = dim, max_length
        self.table = nn.Embedding(max_length, dim)

    def forward(
        self, time: Size, start: int | Int[Tensor, "*_"] = 0, most: int | None = None
    ) -> Float[Tensor, "*_ positions {self.dim}"]:
        """The vectors of the positions start … start + time − 1; a start that is a tensor cannot be checked here."""
        if isinstance(start, int):
            check_length(start + time, self.max_length)
        return rows_from(self.table.weight, start, time)

    def at(self, places: Int[Tensor, "batch time"]) -> Float[Tensor, "batch time dim"]:
        """The vectors of these positions, each row with its own."""
        check_length(places.shape[1], self.max_length)
        vectors: Tensor = self.table(places)
        return vectors


class NoPositions(nn.Module):
    """No position information, as zeros: self-attention without a causal mask then sees a bag of words."""

    table: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.register_buffer("table", torch.zeros(1, dim), persistent=False)

    def forward(
        self, time: Size, start: int | Int[Tensor, "*_"] = 0, most: int | None = None
    ) -> Float[Tensor, "*_ positions {self.dim}"]:
        """`time` rows of zeros, whatever the start."""
        return self.table.expand(time, self.dim)

    def at(self, places: Int[Tensor, "rows time"]) -> Float[Tensor, "rows time {self.dim}"]:
        """A row of zeros for every place."""
        return self.table.expand(*places.shape, self.dim)


class RotaryPositions(SinusoidalPositions):
    """Sine and cosine of the RoPE angles: position / 10000^(2i/dim) for the values i and i + dim/2 of a head."""

    def forward(
        self, time: Size, start: int | Int[Tensor, "*_"] = 0, most: int | None = None
    ) -> Float[Tensor, "*_ {time} half 2"]:
        """The angles of the positions start … start + time − 1."""
        angles = super().forward(time, start, most)
        return angles.view(*angles.shape[:-1], -1, 2)


def rotate(
    x: Float[Tensor, "*batch time dim"], angles: Float[Tensor, "*_ #time half 2"]
) -> Float[Tensor, "*batch time dim"]:
    """Queries or keys, each pair of values rotated by its angle; rows may have angles of their own."""
    sine, cosine = (angles if angles.ndim == 3 else angles.unsqueeze(1)).unbind(-1)  # the same for all heads of a row
    left, right = x.chunk(2, dim=-1)
    rotated = torch.cat((left * cosine - right * sine, right * cosine + left * sine), dim=-1)
    return rotated.to(x.dtype)


def places_within(segments: Int[Tensor, "batch time"]) -> Int[Tensor, "batch time"]:
    """The position of every token of packed rows within its own segment."""
    places = torch.arange(segments.shape[1], device=segments.device).expand_as(segments)
    begins = torch.nn.functional.pad(segments[:, 1:] != segments[:, :-1], (1, 0), value=True)
    return places - (places * begins).cummax(dim=1).values


def check_length(tokens: Size, most: int) -> None:
    """Refuse a text that has more tokens than a model has learned positions for."""
    if tokens > most:
        raise UserError(
            f"a text has {tokens} tokens, but the model learned only {most} positions",
            todo="shorten or split the text, or train with a larger model.max_length",
        )


def rows_from(table: Float[Tensor, "length dim"], start: int | Int[Tensor, "*_"], time: Size) -> Tensor:
    """`time` rows of a table from row `start`; a `start` tensor beyond the table is clamped to its last row.

    Where `start` holds several numbers, `time` rows from each of them.
    """
    if isinstance(start, int):
        return table[start : start + time]
    if start.ndim:
        return table[(start[:, None] + torch.arange(time, device=start.device)).clamp(max=len(table) - 1)]  # type: ignore[arg-type]
    rows = start[None] if time == 1 else start + torch.arange(time, device=start.device)  # type: ignore[arg-type]
    return table.index_select(0, rows.clamp(max=len(table) - 1))


def sinusoids(length: int, dim: int) -> Float[Tensor, "length dim"]:
    """The first `length` rows of the table, computed in float64, since angles lose precision as positions grow."""
    frequencies = 10000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1).float()
