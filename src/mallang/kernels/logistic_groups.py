"""Groups of input and output vectors with logistic losses, and their updates in plain torch.

    score = input · output        loss = −Σ log σ(score) where the label is 1, −Σ log σ(−score) where it is 0
    output += rate · (label − σ(score)) · input          input += rate · (label − σ(score)) · output

A group has some rows of the input table and some of the output table; every input is scored with every output. In
skip-gram with negative sampling a group is one position of the text: the inputs are the words around it, the outputs
are the word there, with label 1, and the negative samples, with label 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float32, Float64, Int, Int32
from torch import Tensor

Pooling = Literal["none", "mean", "bag"]
"""Every input by itself; the mean of all; the mean of all, whose gradient is not divided by their number (fastText)."""


@dataclass(frozen=True)
class Groups:
    """Rows of the two tables; −1 stands for no row."""

    inputs: Int32[Tensor, "groups inputs"]
    outputs: Int32[Tensor, "groups outputs"]
    labels: Float32[Tensor, "groups outputs"]
    """1 for outputs that belong to the inputs, 0 for others."""

    def __len__(self) -> int:
        return len(self.inputs)

    def blocks(self, size: int) -> Iterator[Groups]:
        """Consecutive groups."""
        for first in range(0, len(self), size):
            part = slice(first, first + size)
            yield Groups(self.inputs[part], self.outputs[part], self.labels[part])


def plain_logistic_updates_(
    inputs: Float32[Tensor, "input_rows dim"],
    outputs: Float32[Tensor, "output_rows dim"],
    groups: Groups,
    rates: Float32[Tensor, " blocks"],
    block: int,
    pooling: Pooling,
) -> Float64[Tensor, " groups"]:
    """Update both tables in plain torch; see `logistic_updates_`."""
    losses = [torch.empty(0, dtype=torch.float64, device=inputs.device)]
    for rate, some in zip(rates, groups.blocks(block), strict=True):
        found = differentiate(inputs, outputs, some, pooling)
        add_rows_(inputs, some.inputs, found.inputs.mul_(rate).expand(-1, some.inputs.shape[1], -1))
        add_rows_(outputs, some.outputs, found.outputs.mul_(rate))
        losses.append(found.losses)
    return torch.cat(losses)


@dataclass(frozen=True)
class Gradients:
    """The losses of groups, and what they add to each row at a learning rate of 1."""

    losses: Float64[Tensor, " groups"]
    inputs: Float[Tensor, "groups inputs dim"]
    """One for all inputs of a group where they are pooled."""
    outputs: Float[Tensor, "groups outputs dim"]


def differentiate(
    inputs: Float[Tensor, "input_rows dim"], outputs: Float[Tensor, "output_rows dim"], groups: Groups, pooling: Pooling
) -> Gradients:
    """The losses of groups and their negative gradients."""
    x, y = rows_of(inputs, groups.inputs), rows_of(outputs, groups.outputs)
    has_input, count = groups.inputs >= 0, (groups.inputs >= 0).sum(dim=1).clamp_min(1)[:, None, None]
    if pooling != "none":
        x, has_input = x.sum(dim=1, keepdim=True) / count, has_input.any(dim=1, keepdim=True)
    asked = has_input[:, :, None] & (groups.outputs >= 0)[:, None, :]
    signs = (2 * groups.labels - 1)[:, None, :]
    scores = x @ y.mT * signs
    slopes = scores.neg().sigmoid_() * signs * asked
    losses = (F.softplus(-scores) * asked).sum(dim=(1, 2), dtype=torch.float64)
    of_inputs = slopes @ y
    return Gradients(losses, of_inputs / count if pooling == "mean" else of_inputs, slopes.mT @ x)


def rows_of(table: Float[Tensor, "rows dim"], rows: Int[Tensor, "groups width"]) -> Float[Tensor, "groups width dim"]:
    """Rows of a table; zeros where there is none."""
    return table[rows.clamp_min(0)] * (rows >= 0)[:, :, None]


def add_rows_(
    table: Float[Tensor, "rows dim"], rows: Int[Tensor, "groups width"], updates: Float[Tensor, "groups width dim"]
) -> None:
    """Add updates to rows of a table, in the order of the groups."""
    there: Bool[Tensor, "groups width"] = rows >= 0
    table.index_put_((rows[there].long(),), updates[there], accumulate=True)
