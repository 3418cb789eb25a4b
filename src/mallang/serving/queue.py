"""Requests that wait for a worker, and which of them become one batch.

A free worker takes what waits, without any timer: while all workers are busy, requests gather by themselves. The oldest
request decides; others join it if they ask for the same run, verb and options, whatever stands between them.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mallang.serving.answers import RequestError
from mallang.serving.answers import to_json as key_of
from mallang.serving.messages import Call, Continue

MOST_ITEMS = 32
"""Items per batch until a worker says how many its device can serve at once."""
NUMBERS = itertools.count(1)


@dataclass(eq=False)
class Job:
    """A request on its way: waiting, in a worker, or answered."""

    run: str
    verb: str
    items: Sequence[Any]
    options: Mapping[str, Any]
    merges: bool = True
    """Whether it may share a batch: not if its outputs depend on the places in the batch."""
    is_stepped: bool = False
    """Whether its outputs are generated step by step, with those of others."""
    stream: bool = False
    """Whether parts of the outputs are wanted while they grow."""
    alternatives: int = -1
    """The number of most probable tokens that are wanted beside each token; −1: no log-probabilities at all."""
    number: int = field(default_factory=lambda: next(NUMBERS))
    arrived: float = field(default_factory=time.monotonic)
    tries: int = 0
    """How many workers have ended while they served it."""
    events: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)
    """What comes of it: parts, and at last results or a failure."""
    is_over: bool = False
    sent: dict[int, str] = field(default_factory=dict)
    """The text of each output that was sent, in case another worker must begin again."""

    first: bool = False
    """Whether its first part was sent."""

    @property
    def size(self) -> int:
        """The number of outputs that share a step, or of items."""
        return len(self.items) * (int(self.options.get("nbest", 1)) if self.is_stepped else 1)

    @property
    def kind(self) -> tuple[Any, ...]:
        """Requests of one kind may share a batch."""
        if self.is_stepped:
            return (self.run, "steps")
        return (self.run, self.verb, key_of(self.options)) if self.merges else (self.number,)


class Waiting:
    """A bounded queue, oldest first."""

    def __init__(self, most: int) -> None:
        self.most, self.jobs = most, deque[Job]()

    def __len__(self) -> int:
        return len(self.jobs)

    def put(self, job: Job, retry_after: float) -> None:
        """Add a request, or refuse it where the queue is full."""
        if len(self.jobs) >= self.most:
            raise RequestError(
                429,
                f"{len(self.jobs)} requests wait already; try again in {retry_after:.0f} s",
                code="queue_full",
                headers={"retry-after": f"{max(1, round(retry_after))}"},
            )
        self.jobs.append(job)

    def put_back(self, jobs: Sequence[Job]) -> None:
        """Requests whose worker has ended go first."""
        self.jobs.extendleft(reversed(jobs))

    def drop(self, job: Job) -> None:
        """Forget a request that nobody waits for any more."""
        if job in self.jobs:
            self.jobs.remove(job)

    def take(self, room: int, share: int = 1) -> list[Job]:
        """The oldest request, and others of its kind: at most `room` items, and one of `share` equal parts of them.

        A request larger than the room goes alone.
        """
        if not self.jobs:
            return []
        kind = self.jobs[0].kind
        alike = [job for job in self.jobs if job.kind == kind]
        fair = -(-sum(job.size for job in alike) // max(1, share))
        taken, size = list[Job](), 0
        for job in alike:
            if taken and (size + job.size > room or size >= fair):
                break
            taken.append(job)
            size += job.size
        chosen = set(map(id, taken))
        self.jobs = deque(job for job in self.jobs if id(job) not in chosen)
        return taken


def as_message(jobs: Sequence[Job]) -> Call | list[Continue]:
    """What a worker gets for some requests of one kind."""
    first = jobs[0]
    if first.is_stepped:
        return [Continue(job.number, job.run, job.items, job.options, job.stream, job.alternatives) for job in jobs]
    return Call(first.run, first.verb, first.options, [(job.number, job.items) for job in jobs])
