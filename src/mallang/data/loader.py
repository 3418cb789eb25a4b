"""Batches prepared in the background, in an order that does not depend on the number of workers.

Batches are numbered through all epochs. Batch n depends only on the plan of its epoch and on random numbers from
(seed, n), so a run that resumes at batch n reads exactly what it would have read without the interruption.
"""

from __future__ import annotations

import atexit
import itertools
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from torch.utils.data import DataLoader, Dataset

from mallang.data.batch import Batch, Shapes
from mallang.data.sampler import Rows, generator

Steps: TypeAlias = Callable[[int], int]
"""How many batches a step has, over all processes; steps count from 0 at the position that reading begins at."""
PREPARE = 1
"""Separates the random numbers of batch preparation from those of batch planning."""


@dataclass(frozen=True)
class Source:
    """The functions that make batches."""

    examples: Callable[[int], Sequence[Any]]
    """The examples of an epoch."""
    plan: Callable[[int], Sequence[Rows]]
    """The batches of an epoch."""
    prepare: Callable[[list[tuple[Any, ...]], np.random.Generator], Batch]
    """Collates examples into a padded batch."""
    seed: int
    shapes: Shapes | None = None
    """The shapes that batches are padded to; none: each is as wide as its longest row."""


@dataclass(frozen=True)
class BatchRequest:
    """A batch to be prepared: its number through all epochs, its epoch and the examples of its rows."""

    number: int
    epoch: int
    rows: Rows


@dataclass(frozen=True)
class Position:
    """The data position: the next batch's number, its epoch, and its index in that epoch."""

    number: int = 0
    epoch: int = 0
    place: int = 0


def requests(
    source: Source, start: Position, *, rank: int = 0, processes: int = 1, steps: Steps | None = None
) -> Iterator[tuple[BatchRequest, Position]]:
    """The infinite sequence of this process's batch requests from a position on.

    The batches of a step, one per process unless `steps` says how many, are distributed round-robin. A batch comes with
    the position after its whole step, which is the same in all processes and from which a checkpoint may resume.
    """
    number, first, step, turn = start.number, start.place, 0, 0
    mine: list[BatchRequest] = []
    for epoch in itertools.count(start.epoch):
        plan = source.plan(epoch)
        for place in range(first, len(plan)):
            if turn % processes == rank:
                mine.append(BatchRequest(number, epoch, plan[place]))
            number, turn = number + 1, turn + 1
            if turn == (processes if steps is None else steps(step)):
                is_last = place + 1 == len(plan)
                after = Position(number, epoch + is_last, 0 if is_last else place + 1)
                yield from ((request, after) for request in mine)
                mine, step, turn = [], step + 1, 0
        first = 0


def load(
    source: Source,
    start: Position,
    *,
    workers: int = 0,
    rank: int = 0,
    processes: int = 1,
    steps: Steps | None = None,
    pin_memory: bool = False,
) -> Iterator[tuple[Batch, Position]]:
    """The infinite sequence of this process's batches from a position on, prepared by `workers` processes.

    Workers are forked: they share the corpus, and the task, which may hold tensors on a GPU, need not be pickled. Where
    no process can be forked safely, batches are prepared in this process; they are the same.
    """
    workers = workers if can_fork() else 0
    loader = DataLoader(
        BatchDataset(source),
        sampler=InfiniteSampler(source, start, rank, processes, steps),
        batch_size=None,
        collate_fn=as_it_is,
        worker_init_fn=leave_signals,
        num_workers=workers,
        pin_memory=pin_memory,
        multiprocessing_context="fork" if workers else None,
        prefetch_factor=4 if workers else None,
    )
    batches = iter(loader)
    # Workers ignore the signal by which Python ends child processes at exit: they are shut down before.
    end = getattr(batches, "_shutdown_workers", None)
    if end is not None:
        atexit.register(end)
    try:
        yield from batches
    finally:
        if end is not None:
            atexit.unregister(end)


def can_fork() -> bool:
    """Whether a process with threads may be forked: on Linux; frameworks of macOS do not survive it."""
    return sys.platform == "linux"


def leave_signals(worker: int) -> None:
    """Ignore Ctrl-C and `kill` in a worker: the trainer handles them, saves, and ends its workers."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


@dataclass(frozen=True)
class InfiniteSampler:
    """An infinite sampler of batch requests."""

    source: Source
    start: Position
    rank: int
    processes: int
    steps: Steps | None

    def __iter__(self) -> Iterator[tuple[BatchRequest, Position]]:
        return requests(self.source, self.start, rank=self.rank, processes=self.processes, steps=self.steps)


def as_it_is(made: Any) -> Any:
    """The collate function of the loader: the identity, as batches are complete."""
    return made


class BatchDataset(Dataset[tuple[Batch, Position]]):
    """A dataset indexed by requests: it prepares the batch that a request names."""

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
    """The examples of a batch; in one call where the examples support it, and as windows where they are a stream."""
    if hasattr(examples, "gather"):
        return list(examples.gather(rows))
    if not hasattr(examples, "many"):
        return [tuple([examples[i] for i in row]) for row in rows]
    found = iter(examples.many([i for row in rows for i in row]))
    return [tuple([next(found) for _ in row]) for row in rows]
