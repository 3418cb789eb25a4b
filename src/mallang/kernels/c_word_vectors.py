"""Training steps of word vectors on a CPU, in C. See word_vectors.c.

Op by op every vector of a block is copied several times; here it is read where it is, and its updates stay in the cache
until they are added.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float32, Float64, Int32
from torch import Tensor

from mallang.kernels import c_library
from mallang.kernels.c_library import Count, Pointer

if TYPE_CHECKING:
    from mallang.kernels.glove import Entries, Table
    from mallang.kernels.word_vectors import Groups

POOLING = {"none": 0, "mean": 1, "bag": 2}
ALONE_AGAIN, TOGETHER_AGAIN = 64, 16
"""Calls after which one thread, or all of them, are timed again."""


@dataclass
class Pace:
    """Seconds per multiplication, by one thread and by all.

    On a busy machine threads that share a block wait for each other, and one alone is faster. The number of threads
    changes no bit of the result, so that time may decide.
    """

    alone: float = math.inf
    together: float = 0.0
    calls: int = 0

    @contextmanager
    def threads(self, multiplications: int) -> Iterator[int]:
        """The number of threads for a call, which is timed."""
        most = c_library.threads(multiplications)
        self.calls += 1
        is_faster = self.together <= self.alone and self.calls % ALONE_AGAIN != 2
        chosen = most if is_faster or self.calls % TOGETHER_AGAIN == 0 else 1
        began = time.perf_counter()
        yield chosen
        pace = (time.perf_counter() - began) / max(1, multiplications)
        if chosen > 1:
            self.together = pace
        elif most > 1:
            self.alone = pace


LOGISTIC, GLOVE = Pace(), Pace()


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
        check_rows(named, len(table), least=-1)
    width, others = rows[0].shape[1], rows[1].shape[1]
    updates = [
        inputs.new_empty(block * (1 if POOLING[pooling] else width) * dim),
        inputs.new_empty(block * others * dim),
    ]
    losses = torch.empty(len(groups), dtype=torch.float64)
    given = LogisticArguments(
        inputs=inputs.data_ptr(), outputs=outputs.data_ptr(), dim=dim, input_rows=rows[0].data_ptr(),
        output_rows=rows[1].data_ptr(), labels=labels.data_ptr(), rates=rates.data_ptr(), groups=len(groups),
        input_width=width, output_width=others, block=block, pooling=POOLING[pooling],
        input_updates=updates[0].data_ptr(), output_updates=updates[1].data_ptr(), losses=losses.data_ptr(),
    )  # fmt: skip
    with LOGISTIC.threads(len(groups) * width * others * dim) as threads:
        kernels.logistic_updates(ctypes.byref(given), threads)
    return losses


class GloveArguments(ctypes.Structure):
    """The arguments of `glove_updates`, as declared in word_vectors.c."""

    _fields_ = [
        ("tables", Pointer * 2), ("squares", Pointer * 2), ("rows", Pointer * 2), ("logs", Pointer),
        ("weights", Pointer), ("entries", Count), ("dim", Count), ("block", Count), ("fixed", Count * 2),
        ("rate", ctypes.c_float), ("heads", Pointer * 2), ("scratch", Pointer), ("slopes", Pointer),
        ("gradients", Pointer), ("losses", Pointer),
    ]  # fmt: skip


def c_glove_updates_(rows: Table, columns: Table, entries: Entries, rate: float, block: int) -> Float64[Tensor, " _"]:
    """Update both tables in place; the loss of every entry."""
    kernels, dim = c_library.library(), rows.values.shape[1]
    assert kernels is not None
    tables, named = (rows, columns), [entries.rows.int().contiguous(), entries.columns.int().contiguous()]
    for table, numbers in zip(tables, named, strict=True):
        assert table.values.is_contiguous() and table.squares.is_contiguous()
        assert table.values.shape == table.squares.shape and table.values.shape[1] == dim
        check_rows(numbers, len(table.values), least=0)
    logs, weights, values = entries.logs.contiguous(), entries.weights.contiguous(), rows.values
    heads = [torch.full((len(table.values),), -1, dtype=torch.int32) for table in tables]
    scratch, slopes = torch.empty(6 * block, dtype=torch.int32), values.new_empty(block)
    gradients, losses = values.new_empty(2 * block * dim), torch.empty(len(entries), dtype=torch.float64)
    both = Pointer * 2
    given = GloveArguments(
        tables=both(*(table.values.data_ptr() for table in tables)),
        squares=both(*(table.squares.data_ptr() for table in tables)),
        rows=both(*(numbers.data_ptr() for numbers in named)), logs=logs.data_ptr(), weights=weights.data_ptr(),
        entries=len(entries), dim=dim, block=block, fixed=(Count * 2)(rows.fixed, columns.fixed), rate=rate,
        heads=both(*(each.data_ptr() for each in heads)), scratch=scratch.data_ptr(), slopes=slopes.data_ptr(),
        gradients=gradients.data_ptr(), losses=losses.data_ptr(),
    )  # fmt: skip
    with GLOVE.threads(len(entries) * dim) as threads:
        kernels.glove_updates(ctypes.byref(given), threads)
    return losses


def check_rows(rows: Int32[Tensor, "*shape"], size: int, least: int) -> None:
    """Refuse rows outside a table: the kernels would write out of bounds."""
    if rows.numel() and not (least <= int(rows.min()) and int(rows.max()) < size):
        raise IndexError(f"rows {int(rows.min())} to {int(rows.max())} of a table of {size}")
