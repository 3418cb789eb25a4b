"""Training steps of word vectors on a GPU, in triton: the same updates as word_vectors.py, block by block.

    gradients     one program per group reads its rows of both tables and writes what each row shall take
    adding        one program per distinct row of the block sums what the row takes, in the order of the groups

Two programs never write the same row, so no atomics are needed, and a seed always gives the same bits. Which rows are
distinct is found by one sort before the first block. Kernels of a block are short and many, so a few blocks are
captured as a CUDA graph, which is replayed until the text ends; `first` holds where in the text it is.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, no_type_check

import torch
from jaxtyping import Float32, Float64, Int, Int32, Int64
from torch import Tensor

from mallang.kernels.dispatch import tl, triton

if TYPE_CHECKING:
    from mallang.kernels.word_vectors import Groups

CAPTURED = 32
"""Blocks in a captured graph."""
WORTH_IT = 2 * CAPTURED
"""Blocks from which on a graph is captured."""
LARGEST_TILE = 2**14
"""Values of a group's rows of one table that a program can hold."""
SMALLEST = 16
"""Rows of a tile: the least that triton's matmul takes."""
TILE = 8
"""Updates of one row that are read together."""


def fits(
    inputs: Float32[Tensor, "input_rows dim"], outputs: Float32[Tensor, "output_rows dim"], groups: Groups, pooling: str
) -> bool:
    """Whether the kernels can update tables of these sizes."""
    if not inputs.is_cuda or not inputs.is_contiguous() or not outputs.is_contiguous():
        return False
    rows = SMALLEST if pooling != "none" else max(tile(groups.inputs.shape[1]), tile(groups.outputs.shape[1]))
    return rows * tile(inputs.shape[1]) <= LARGEST_TILE


@dataclass(frozen=True)
class Sorted:
    """The rows that groups name, sorted within each block; slots of one row stay in the order of the groups."""

    rows: Int32[Tensor, " slots"]
    """−1 comes last."""
    slots: Int32[Tensor, " slots"]
    """Where in its block each was: group · width + place."""

    @classmethod
    def of(cls, rows: Int[Tensor, "groups width"], block: int, table_rows: int) -> Sorted:
        """Sort by block and row."""
        flat, size = rows.reshape(-1).long(), block * rows.shape[1]
        number = torch.arange(len(flat), device=rows.device)
        keys = number // size * (table_rows + 1) + torch.where(flat < 0, table_rows, flat)
        order = keys.sort(stable=True).indices
        return cls(flat[order].int(), (order % size).int())


def gpu_logistic_updates_(
    inputs: Float32[Tensor, "input_rows dim"],
    outputs: Float32[Tensor, "output_rows dim"],
    groups: Groups,
    rates: Float32[Tensor, " blocks"],
    block: int,
    pooling: str,
) -> Float64[Tensor, " groups"]:
    """Update both tables in place; the loss of every group."""
    dim, is_pooled = inputs.shape[1], pooling != "none"
    in_width, out_width = groups.inputs.shape[1], groups.outputs.shape[1]
    rows = [each.int().contiguous() for each in (groups.inputs, groups.outputs)]
    labels, rates = groups.labels.contiguous(), rates.to(inputs.device)
    named = [Sorted.of(each, block, len(table)) for each, table in zip(rows, (inputs, outputs), strict=True)]
    dx = inputs.new_empty(block, 1 if is_pooled else in_width, dim)
    dy = inputs.new_empty(block, out_width, dim)
    losses = torch.empty(len(groups), dtype=torch.float64, device=inputs.device)
    first = torch.zeros((), dtype=torch.int64, device=inputs.device)
    sizes: dict[str, Any] = {"dim": dim, "in_width": in_width, "out_width": out_width, "d_tile": tile(dim)}
    warps = 4 if tile(dim) <= 128 else 8

    def run(number: int) -> None:
        """Launch the kernels of the block `number` after `first`."""
        ahead = number * block
        common = inputs, outputs, *rows, labels, rates, dx, dy, losses, first, ahead, len(groups), block
        if is_pooled:
            _pooled_gradients[(block,)](
                *common, **sizes, rows_tile=SMALLEST, divides=pooling == "mean", num_warps=warps
            )  # fmt: skip
        else:
            _gradients[(block,)](*common, **sizes, i_tile=tile(in_width), o_tile=tile(out_width), num_warps=warps)
        _add_rows[(block * (in_width + out_width),)](
            inputs, outputs, named[0].rows, named[1].rows, named[0].slots, named[1].slots, dx, dy, first, ahead,
            len(groups), block, **sizes, per_input=1 if is_pooled else in_width, tile=TILE, num_warps=1,
        )  # fmt: skip

    repeat(run, -(-len(groups) // block), first, block)
    return losses


def repeat(run: Callable[[int], None], blocks: int, first: Int64[Tensor, ""], block: int) -> None:
    """Run all blocks: launched one by one, or the first so and the others by replaying a graph."""
    if not first.is_cuda or blocks < WORTH_IT:
        for number in range(blocks):
            run(number)
        return
    run(0)  # compiles the kernels, which no capture may
    first += block
    graph, had = torch.cuda.CUDAGraph(), gc.isenabled()
    stream = torch.cuda.Stream(first.device)  # type: ignore[no-untyped-call, unused-ignore]
    stream.wait_stream(torch.cuda.current_stream())
    gc.disable()  # what it frees would end the capture
    try:
        with torch.cuda.stream(stream):
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                for number in range(CAPTURED):
                    run(number)
                first.add_(CAPTURED * block)
            finally:
                graph.capture_end()
    finally:
        if had:
            gc.enable()
    torch.cuda.current_stream().wait_stream(stream)
    for _ in range(-(-(blocks - 1) // CAPTURED)):
        graph.replay()


def tile(size: int) -> int:
    """The size of a tile that holds so many rows or columns."""
    return max(SMALLEST, 1 << (size - 1).bit_length())


if TYPE_CHECKING:
    _gradients: Any
    _pooled_gradients: Any
    _add_rows: Any
elif triton is not None:

    @triton.jit
    @no_type_check
    def _slopes(scores, labels, asked):
        """The negative gradient of the loss by each score, and the loss; 0 where nothing is asked."""
        signs = 2 * labels - 1
        scores = scores * signs
        small = tl.exp(-tl.abs(scores))
        wrong = tl.where(scores > 0, small, 1.0) / (1 + small)  # σ(−score)
        losses = tl.maximum(-scores, 0.0) + tl.log(1 + small)
        return tl.where(asked, wrong * signs, 0.0), tl.where(asked, losses, 0.0)

    @triton.jit(do_not_specialize=["ahead", "groups"])
    @no_type_check
    def _gradients(
        inputs, outputs, in_rows, out_rows, labels, rates, dx, dy, losses, first, ahead, groups, block,
        dim: tl.constexpr, in_width: tl.constexpr, out_width: tl.constexpr, d_tile: tl.constexpr,
        i_tile: tl.constexpr, o_tile: tl.constexpr,
    ):  # fmt: skip
        """The loss of one group and its updates; every input is scored with every output."""
        slot = tl.program_id(0).to(tl.int64)
        group = tl.load(first) + ahead + slot
        is_there = group < groups
        d, i, o = tl.arange(0, d_tile), tl.arange(0, i_tile), tl.arange(0, o_tile)
        ins, outs = tl.where(is_there, in_width, 0), tl.where(is_there, out_width, 0)
        x_rows = tl.load(in_rows + group * in_width + i, mask=i < ins, other=-1).to(tl.int64)
        y_rows = tl.load(out_rows + group * out_width + o, mask=o < outs, other=-1).to(tl.int64)
        x_here = (x_rows >= 0)[:, None] & (d < dim)[None, :]
        y_here = (y_rows >= 0)[:, None] & (d < dim)[None, :]
        x = tl.load(inputs + x_rows[:, None] * dim + d[None, :], mask=x_here, other=0.0)
        y = tl.load(outputs + y_rows[:, None] * dim + d[None, :], mask=y_here, other=0.0)
        label = tl.load(labels + group * out_width + o, mask=o < outs, other=0.0)
        scores = tl.dot(x, tl.trans(y), input_precision="ieee")
        asked = (x_rows >= 0)[:, None] & (y_rows >= 0)[None, :]
        slopes, lost = _slopes(scores, label[None, :], asked)
        tl.store(losses + group, tl.sum(tl.sum(lost, axis=1), axis=0).to(tl.float64), mask=is_there)
        slopes = slopes * tl.load(rates + group // block, mask=is_there, other=0.0)
        of_x = tl.dot(slopes, y, input_precision="ieee")
        of_y = tl.dot(tl.trans(slopes), x, input_precision="ieee")
        tl.store(dx + (slot * in_width + i[:, None]) * dim + d[None, :], of_x, mask=x_here)
        tl.store(dy + (slot * out_width + o[:, None]) * dim + d[None, :], of_y, mask=y_here)

    @triton.jit(do_not_specialize=["ahead", "groups"])
    @no_type_check
    def _pooled_gradients(
        inputs, outputs, in_rows, out_rows, labels, rates, dx, dy, losses, first, ahead, groups, block,
        dim: tl.constexpr, in_width: tl.constexpr, out_width: tl.constexpr, d_tile: tl.constexpr,
        rows_tile: tl.constexpr, divides: tl.constexpr,
    ):  # fmt: skip
        """The loss of one group and its updates; the mean of its inputs is scored with every output."""
        slot = tl.program_id(0).to(tl.int64)
        group = tl.load(first) + ahead + slot
        is_there = group < groups
        ins, outs = tl.where(is_there, in_width, 0), tl.where(is_there, out_width, 0)
        d, k = tl.arange(0, d_tile), tl.arange(0, rows_tile)
        x, count = tl.zeros([d_tile], tl.float32), tl.sum(tl.zeros([rows_tile], tl.float32), axis=0)
        for begin in range(0, in_width, rows_tile):
            rows = tl.load(in_rows + group * in_width + begin + k, mask=begin + k < ins, other=-1)
            here = (rows >= 0)[:, None] & (d < dim)[None, :]
            x += tl.sum(tl.load(inputs + rows.to(tl.int64)[:, None] * dim + d[None, :], mask=here, other=0.0), axis=0)
            count += tl.sum((rows >= 0).to(tl.float32), axis=0)
        x = x / tl.maximum(count, 1.0)
        rate = tl.load(rates + group // block, mask=is_there, other=0.0)
        of_x, loss = tl.zeros([d_tile], tl.float32), tl.sum(tl.zeros([rows_tile], tl.float32), axis=0)
        for begin in range(0, out_width, rows_tile):
            o = begin + k
            rows = tl.load(out_rows + group * out_width + o, mask=o < outs, other=-1)
            here = (rows >= 0)[:, None] & (d < dim)[None, :]
            y = tl.load(outputs + rows.to(tl.int64)[:, None] * dim + d[None, :], mask=here, other=0.0)
            label = tl.load(labels + group * out_width + o, mask=o < outs, other=0.0)
            slopes, lost = _slopes(tl.sum(x[None, :] * y, axis=1), label, tl.where(count > 0, rows, -1) >= 0)
            loss += tl.sum(lost, axis=0)
            slopes = slopes * rate
            of_x += tl.sum(slopes[:, None] * y, axis=0)
            tl.store(dy + (slot * out_width + o[:, None]) * dim + d[None, :], slopes[:, None] * x[None, :], mask=here)
        if divides:
            of_x = of_x / tl.maximum(count, 1.0)
        tl.store(losses + group, loss.to(tl.float64), mask=is_there)
        tl.store(dx + slot * dim + d, of_x, mask=d < dim)

    @triton.jit
    @no_type_check
    def _add_row(table, rows, slots, updates, begin, place, end, width: tl.constexpr, per_group: tl.constexpr,
                 dim: tl.constexpr, d_tile: tl.constexpr, tile: tl.constexpr):  # fmt: skip
        """Sum the updates of the row at a sorted place, if it is the first place of its row, and add them."""
        row = tl.load(rows + place, mask=place < end, other=-1).to(tl.int64)
        before = tl.load(rows + place - 1, mask=(place > begin) & (place < end), other=-1)
        d, k = tl.arange(0, d_tile), tl.arange(0, tile)
        is_first = (row >= 0) & (row != before)
        total, mine = tl.zeros([d_tile], tl.float32), is_first
        while mine:
            at = place + k
            same = (at < end) & (tl.load(rows + at, mask=at < end, other=-1) == row)
            slot = tl.load(slots + at, mask=same, other=0).to(tl.int64)
            slot = slot // width * per_group + slot % per_group
            here = same[:, None] & (d < dim)[None, :]
            total += tl.sum(tl.load(updates + slot[:, None] * dim + d[None, :], mask=here, other=0.0), axis=0)
            place += tile
            mine = tl.sum(same.to(tl.int32), axis=0) == tile
        here = d < tl.where(is_first, dim, 0)
        old = tl.load(table + row * dim + d, mask=here, other=0.0)
        tl.store(table + row * dim + d, old + total, mask=here)

    @triton.jit(do_not_specialize=["ahead", "groups"])
    @no_type_check
    def _add_rows(
        inputs, outputs, in_rows, out_rows, in_slots, out_slots, dx, dy, first, ahead, groups, block,
        dim: tl.constexpr, in_width: tl.constexpr, out_width: tl.constexpr, d_tile: tl.constexpr,
        per_input: tl.constexpr, tile: tl.constexpr,
    ):  # fmt: skip
        """Add the updates of a block: one program per sorted place of either table."""
        place = tl.program_id(0).to(tl.int64)
        group = tl.load(first) + ahead
        last = tl.minimum(group + block, groups)
        if place < block * in_width:
            begin = group * in_width
            _add_row(
                inputs, in_rows, in_slots, dx, begin, begin + place, last * in_width, in_width, per_input, dim, d_tile,
                tile,
            )  # fmt: skip
        else:
            begin = group * out_width
            _add_row(
                outputs, out_rows, out_slots, dy, begin, begin + place - block * in_width, last * out_width, out_width,
                out_width, dim, d_tile, tile,
            )  # fmt: skip
