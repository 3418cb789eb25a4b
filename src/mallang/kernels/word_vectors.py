"""Training steps of word vectors: blocks of groups of input and output vectors with logistic losses.

    score = input · output        loss = −Σ log σ(score) where the label is 1, −Σ log σ(−score) where it is 0
    output += rate · (label − σ(score)) · input          input += rate · (label − σ(score)) · output

A group has some rows of the input table and some of the output table; every input is scored with every output. In
skip-gram with negative sampling a group is one position of the text: the inputs are the words around it, the outputs
are the word there, with label 1, and the negative samples, with label 0. All groups of a block read the tables as they
were before the block (mini-batch gradient descent), and every row takes its updates in the order of the groups. So the
result depends neither on the number of threads nor, beyond rounding, on which version runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float32, Float64, Int, Int32
from torch import Tensor

from mallang.kernels import c_library
from mallang.kernels.c_word_vectors import c_logistic_updates_
from mallang.kernels.dispatch import is_off, tried_once
from mallang.kernels.gpu_word_vectors import WORTH_IT, fits, gpu_logistic_updates_

Pooling = Literal["none", "mean", "bag"]
"""Every input by itself; the mean of all; the mean of all, whose gradient is not divided by their number (fastText)."""


def words_at_once(device: torch.device) -> int:
    """The words of a text that are prepared together: few stay in the cache of a CPU, many let a GPU run ahead."""
    return 2**19 if device.type == "cuda" else 2**16


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


def logistic_updates_(
    inputs: Float32[Tensor, "input_rows dim"],
    outputs: Float32[Tensor, "output_rows dim"],
    groups: Groups,
    rates: Float32[Tensor, " blocks"],
    block: int,
    pooling: Pooling = "none",
) -> Float64[Tensor, " groups"]:
    """Update both tables in place, block by block, each with its learning rate; the loss of every group before that."""
    assert len(rates) == -(-len(groups) // block)
    if not is_off("c-word-vectors") and c_library.may_take(inputs, outputs, groups.labels):
        return c_logistic_updates_(inputs, outputs, groups, rates, block, pooling)
    if len(groups) and fits(inputs, outputs, groups, pooling) and gpu_kernels_work():
        return gpu_logistic_updates_(inputs, outputs, groups, rates, block, pooling)
    return plain_logistic_updates_(inputs, outputs, groups, rates, block, pooling)


@tried_once("word-vectors")
def gpu_kernels_work() -> bool:
    """Self-test: whether the kernels of a GPU agree with the plain version, with a captured graph and without."""
    random = torch.Generator("cuda").manual_seed(1)
    x, y = (torch.rand(40, 20, generator=random, device="cuda") - 0.5 for _ in range(2))
    ins, outs = (torch.randint(-1, 40, (2 * WORTH_IT, 5), generator=random, device="cuda").int() for _ in range(2))
    groups, rates = Groups(ins, outs, (outs % 2).float()), torch.full((2 * WORTH_IT,), 0.1, device="cuda")
    wanted_x, wanted_y = x.clone(), y.clone()
    wanted = plain_logistic_updates_(wanted_x, wanted_y, groups, rates, 1, "none")
    losses = gpu_logistic_updates_(x, y, groups, rates, 1, "none")
    pairs = (x, wanted_x), (y, wanted_y), (losses, wanted)
    return all(torch.allclose(found, known, atol=1e-4) for found, known in pairs)


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


def logistic_losses(
    inputs: Float[Tensor, "input_rows dim"],
    outputs: Float[Tensor, "output_rows dim"],
    groups: Groups,
    block: int,
    pooling: Pooling = "none",
) -> Float64[Tensor, " groups"]:
    """The loss of every group; nothing is updated."""
    found = [differentiate(inputs, outputs, some, pooling).losses for some in groups.blocks(block)]
    return torch.cat(found) if found else torch.empty(0, dtype=torch.float64, device=inputs.device)


def softmax_updates_(
    inputs: Float32[Tensor, "input_rows dim"],
    outputs: Float32[Tensor, "output_rows dim"],
    groups: Groups,
    rates: Float32[Tensor, " blocks"],
    block: int,
    possible: Bool[Tensor, " output_rows"],
) -> Float64[Tensor, " groups"]:
    """Update both tables with the loss −Σ log softmax(mean of the inputs · all outputs)[output]; see `differentiate`.

    Only the rows that are `possible` take part in the softmax. With rates of 0 nothing changes.
    """
    losses = [torch.empty(0, dtype=torch.float64, device=inputs.device)]
    nowhere = torch.where(possible, 0.0, -torch.inf)
    for rate, some in zip(rates, groups.blocks(block), strict=True):
        asked = (some.outputs >= 0) & (some.inputs >= 0).any(dim=1, keepdim=True)
        count = (some.inputs >= 0).sum(dim=1).clamp_min(1)[:, None]
        x = rows_of(inputs, some.inputs).sum(dim=1) / count
        log_probs = torch.addmm(nowhere, x, outputs.T).log_softmax(dim=1)
        words = some.outputs.clamp_min(0).long()
        losses.append(-torch.where(asked, log_probs.gather(1, words), 0.0).sum(dim=1, dtype=torch.float64))
        slopes = log_probs.exp_().mul_(-asked.sum(dim=1, keepdim=True)).scatter_add_(1, words, asked.float())
        of_inputs = (slopes @ outputs / count * rate)[:, None].expand(-1, some.inputs.shape[1], -1)
        outputs.addmm_(slopes.T, x * rate)
        add_rows_(inputs, some.inputs, of_inputs)
    return torch.cat(losses)
