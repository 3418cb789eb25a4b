"""Training steps of word vectors on a CPU, in C. See word_vectors.c.

Op by op every vector of a block is copied several times; here it is read where it is, and its updates stay in the cache
until they are added.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float32, Float64
from torch import Tensor

from mallang.kernels import c_library
from mallang.kernels.c_library import Count, Pointer

if TYPE_CHECKING:
    from mallang.kernels.word_vectors import Groups

POOLING = {"none": 0, "mean": 1, "bag": 2}


class LogisticArguments(ctypes.Structure):
    """The arguments of `logistic_updates`, as declared in word_vectors.c."""

    _fields_ = [
        ("inputs", Pointer), ("outputs", Pointer), ("dim", Count), ("input_rows", Pointer), ("output_rows", Pointer),
        ("labels", Pointer), ("rates", Pointer), ("groups", Count), ("input_width", Count), ("output_width", Count),
        ("block", Count), ("pooling", Count), ("input_updates", Pointer), ("output_updates", Pointer),
        ("losses", Pointer),
    ]  # fmt: skip


def c_logistic_updates_(
    inputs: Float32[Tensor, "input_rows dim"],
    outputs: Float32[Tensor, "output_rows dim"],
    groups: Groups,
    rates: Float32[Tensor, " blocks"],
    block: int,
    pooling: str,
) -> Float64[Tensor, " groups"]:
    """Update both tables in place; the loss of every group."""
    kernels, dim = c_library.library(), inputs.shape[1]
    assert kernels is not None
    assert inputs.is_contiguous() and outputs.is_contiguous() and outputs.shape[1] == dim
    rows = [each.to(torch.int32).contiguous() for each in (groups.inputs, groups.outputs)]
    labels, rates = groups.labels.contiguous(), rates.contiguous()
    for table, named in zip((inputs, outputs), rows, strict=True):
        if named.numel() and int(named.max()) >= len(table):
            raise IndexError(f"row {int(named.max())} of a table of {len(table)}")  # it would write out of bounds
    width, others = rows[0].shape[1], rows[1].shape[1]
    updates = [inputs.new_empty(block * (1 if POOLING[pooling] else width) * dim), inputs.new_empty(block * others * dim)]
    losses = torch.empty(len(groups), dtype=torch.float64)
    given = LogisticArguments(
        inputs=inputs.data_ptr(), outputs=outputs.data_ptr(), dim=dim, input_rows=rows[0].data_ptr(),
        output_rows=rows[1].data_ptr(), labels=labels.data_ptr(), rates=rates.data_ptr(), groups=len(groups),
        input_width=width, output_width=others, block=block, pooling=POOLING[pooling],
        input_updates=updates[0].data_ptr(), output_updates=updates[1].data_ptr(), losses=losses.data_ptr(),
    )  # fmt: skip
    kernels.logistic_updates(ctypes.byref(given), c_library.threads(len(groups) * width * others * dim))
    return losses
