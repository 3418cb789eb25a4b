"""Batches made in the background, in an order that no number of workers can change.

Batches are numbered through all epochs. Batch n is made from rows that the plan of its epoch names and from random
numbers that depend on (seed, n) alone, so a run that starts again at batch n sees just what it would have seen.
"""

from __future__ import annotations

import atexit
import itertools
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset

from mallang.data.batch import Batch, Shapes
from mallang.data.sampler import Rows, generator

PREPARE = 1
"""Sets the random numbers of batch making apart from those of batch planning."""


@dataclass(frozen=True)
class Source:
    """Where batches come from."""

    examples: Callable[[int], Sequence[Any]]
    """The examples of an epoch."""
    plan: Callable[[int], Sequence[Rows]]
    """The batches of an epoch."""
    prepare: Callable[[list[tuple[Any, ...]], np.random.Generator], Batch]
    """Rows of examples to a padded batch."""
    seed: int
    shapes: Shapes | None = None
    """The rectangles that batches are padded to; none given: just as wide as their longest row."""


@dataclass(frozen=True)
class BatchRequest:
    """One batch to be made: its number through all epochs, its epoch and the examples of its rows."""

    number: int
    epoch: int
    rows: Rows


@dataclass(frozen=True)
class Position:
    """Where reading goes on: the next batch's number, its epoch, and its place in that epoch."""

    number: int = 0
    epoch: int = 0
    place: int = 0


def requests(
    source: Source, start: Position, *, rank: int = 0, processes: int = 1, step: int | None = None
) -> Iterator[tuple[BatchRequest, Position]]:
    """This process's batches from a position on, without end.

    The batches of a step, one a process unless `step` says how many, are dealt out one after the other. A batch comes
    with the position after its whole step, which is the same in all processes and where a checkpoint may go on.
    """
    number, first, whole = start.number, start.place, step or processes
    mine: list[BatchRequest] = []
    for epoch in itertools.count(start.epoch):
        plan = source.plan(epoch)
        for place in range(first, len(plan)):
            turn = (number - start.number) % whole
            if turn % processes == rank:
                mine.append(BatchRequest(number, epoch, plan[place]))
            number += 1
            if turn == whole - 1:
                is_last = place + 1 == len(plan)
                after = Position(number, epoch + is_last, 0 if is_last else place + 1)
                yield from ((request, after) for request in mine)
                mine = []
        first = 0


def load(
    source: Source,
    start: Position,
    *,
    workers: int = 0,
    rank: int = 0,
    processes: int = 1,
    step: int | None = None,
    pin_memory: bool = False,
) -> Iterator[tuple[Batch, Position]]:
    """This process's batches from a position on, without end, made by `workers` background processes."""
    loader = DataLoader(
        BatchDataset(source),
        sampler=InfiniteSampler(source, start, rank, processes, step),
        batch_size=None,
        collate_fn=as_it_is,
        worker_init_fn=leave_signals,
        num_workers=workers,
        pin_memory=pin_memory,
        prefetch_factor=4 if workers else None,
    )
    batches = iter(loader)
    # Workers do not hear the signal by which Python ends what still runs when it leaves: they are told before.
    end = getattr(batches, "_shutdown_workers", None)
    if end is not None:
        atexit.register(end)
    try:
        yield from batches
    finally:
        if end is not None:
            atexit.unregister(end)


def leave_signals(worker: int) -> None:
    """A Ctrl-C or `kill` that reaches the whole group is for the trainer, which saves; a worker ends when it does."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


@dataclass(frozen=True)
class InfiniteSampler:
    """What the loader iterates over to learn which batch is next."""

    source: Source
    start: Position
    rank: int
    processes: int
    step: int | None

    def __iter__(self) -> Iterator[tuple[BatchRequest, Position]]:
        return requests(self.source, self.start, rank=self.rank, processes=self.processes, step=self.step)


def as_it_is(made: Any) -> Any:
    """What the loader does to a finished batch: nothing."""
    return made


class BatchDataset(Dataset[tuple[Batch, Position]]):
    """Makes the batches that were ordered."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.epoch = -1
        self.examples: Sequence[Any] = ()

    def __getitem__(self, wanted: tuple[BatchRequest, Position]) -> tuple[Batch, Position]:
        request, after = wanted
        if request.epoch != self.epoch:
            self.examples, self.epoch = self.source.examples(request.epoch), request.epoch
        batch = self.source.prepare(
            gather(self.examples, request.rows), generator(self.source.seed, PREPARE, request.number)
        )
        return (batch if self.source.shapes is None else self.source.shapes.fill(batch)), after


def gather(examples: Any, rows: Rows) -> list[tuple[Any, ...]]:
    """The examples of a batch; all at once where they can be had so, and as rows where they are windows of a text."""
    if hasattr(examples, "gather"):
        return list(examples.gather(rows))
    if not hasattr(examples, "many"):
        return [tuple([examples[i] for i in row]) for row in rows]
    found = iter(examples.many([i for row in rows for i in row]))
    return [tuple([next(found) for _ in row]) for row in rows]
