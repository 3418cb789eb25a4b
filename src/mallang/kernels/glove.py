"""Training steps of GloVe: weighted least squares on co-occurrence counts with AdaGrad, block by block.

    error = row · column − log count             loss = ½ weight · error²
    g = rate · Σ weight · error · column          of the entries of a block that share the row
    row −= g / √squares        squares += g²

Biases are columns of the two tables, each beside a column of ones in the other, which stay fixed. All entries of a
block read the tables as they were before it, so the result does not depend on the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float32, Float64, Int, Int32
from torch import Tensor

from mallang.kernels import c_library
from mallang.kernels.c_word_vectors import c_glove_updates_
from mallang.kernels.dispatch import is_off


@dataclass(frozen=True)
class Table:
    """Vectors with a bias and a column of ones, and the sums of their squared gradients."""

    values: Float32[Tensor, "words columns"]
    squares: Float32[Tensor, "words columns"]
    fixed: int
    """The column of ones."""


@dataclass(frozen=True)
class Entries:
    """Entries of the co-occurrence matrix."""

    rows: Int32[Tensor, " entries"]
    columns: Int32[Tensor, " entries"]
    logs: Float32[Tensor, " entries"]
    """The logarithm of each count."""
    weights: Float32[Tensor, " entries"]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, some: slice | Tensor) -> Entries:
        return Entries(self.rows[some], self.columns[some], self.logs[some], self.weights[some])


def glove_updates_(
    rows: Table, columns: Table, entries: Entries, rate: float, block: int
) -> Float64[Tensor, " entries"]:
    """Update both tables in place, block by block; the loss of every entry before that."""
    if not is_off("c-glove") and c_library.may_take(rows.values, columns.values):
        return c_glove_updates_(rows, columns, entries, rate, block)
    losses = [torch.empty(0, dtype=torch.float64, device=rows.values.device)]
    for first in range(0, len(entries), block):
        some = entries[first : first + block]
        x, y = rows.values[some.rows], columns.values[some.columns]
        errors = errors_of(x, y, some)
        losses.append(0.5 * some.weights.double() * errors.double().square())
        slopes = (rate * some.weights * errors)[:, None]
        descend_(rows, some.rows, slopes * y)
        descend_(columns, some.columns, slopes * x)
    return torch.cat(losses)


def errors_of(
    rows: Float32[Tensor, "entries columns"], columns: Float32[Tensor, "entries columns"], entries: Entries
) -> Float32[Tensor, " entries"]:
    """How far the dot product of each entry's vectors is from the logarithm of its count."""  # words: ok, its name
    return (rows * columns).sum(dim=1) - entries.logs


def descend_(table: Table, words: Int[Tensor, " entries"], gradients: Float32[Tensor, "entries columns"]) -> None:
    """One step of AdaGrad with the summed gradient of every word."""
    distinct, places = torch.unique(words, return_inverse=True)
    total = gradients.new_zeros(len(distinct), gradients.shape[1])
    total.index_put_((places,), gradients, accumulate=True)
    total[:, table.fixed] = 0.0
    squares = table.squares[distinct]
    table.values[distinct] -= total / squares.sqrt()
    table.squares[distinct] = squares + total.square()
