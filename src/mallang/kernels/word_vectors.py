"""Training steps of word vectors: blocks of groups of input and output vectors with logistic losses or a softmax.

All groups of a block read the tables as they were before the block (mini-batch gradient descent), and every row takes
its updates in the order of the groups. So the result depends neither on the number of threads nor, beyond rounding, on
which version runs: plain torch (logistic_groups.py), C (c_word_vectors.py) or triton (gpu_word_vectors.py).
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Float32, Float64
from torch import Tensor

from mallang.kernels import c_library
from mallang.kernels.c_word_vectors import c_logistic_updates_
from mallang.kernels.dispatch import is_off
from mallang.kernels.gpu_word_vectors import gpu_logistic_updates_, is_at_hand
from mallang.kernels.logistic_groups import (
    Groups,
    Pooling,
    add_rows_,
    differentiate,
    plain_logistic_updates_,
    rows_of,
)  # fmt: skip

__all__ = ["Groups", "logistic_losses", "logistic_updates_", "softmax_updates_", "words_at_once"]


def words_at_once(device: torch.device) -> int:
    """The words of a text that are prepared together: few stay in the cache of a CPU, many let a GPU run ahead."""
    return 2**19 if device.type == "cuda" else 2**16


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
    if len(groups) and is_at_hand(inputs, outputs, groups, pooling):
        return gpu_logistic_updates_(inputs, outputs, groups, rates, block, pooling)
    return plain_logistic_updates_(inputs, outputs, groups, rates, block, pooling)


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
