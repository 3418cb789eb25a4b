"""The workers of a server: processes that get batches, are replaced when they end, and are changed for a reload.

A worker is a process of its own: a crash, or memory that is full, ends one batch and no server. Requests of a worker
that ended go to the front of the queue again, but not for ever: a request that ends several workers is answered 500.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Literal

from mallang.errors import UserError
from mallang.serving.answers import RequestError
from mallang.serving.guard import Limits
from mallang.serving.messages import Broken, Cancel, Done, Failed, Part, Ready, ServedRun
from mallang.serving.metrics import Metrics
from mallang.serving.queue import MOST_ITEMS, Job, Waiting, as_message
from mallang.serving.worker import WorkerOptions, work

Batching = Literal["none", "waiting", "joining"]
"""Each request alone; those that wait together; or also those that come while others are generated."""
TRIES = 2
"""Workers that a request may end before it is refused."""
BREAK = 1.0
"""Seconds before a worker is replaced that ended before it was ready."""
WATCH = 1.0
"""Seconds between two looks for workers that hang."""


@dataclass(eq=False)
class Worker:
    """A process, the pipe to it, and the requests that it serves."""

    process: Any
    pipe: Connection
    version: int
    is_ready: bool = False
    jobs: dict[int, Job] = field(default_factory=dict)
    kind: tuple[Any, ...] = ()
    """The kind of the requests that it serves."""
    since: float = 0.0
    """When it got its batch."""
    silent: float | None = None
    """Since when something is expected of it, if anything is."""

    @property
    def items(self) -> int:
        """The number of items that it serves."""
        return sum(job.size for job in self.jobs.values())

    def send(self, message: Any) -> None:
        """Give it something; if it has ended, its reader notices."""
        with contextlib.suppress(BrokenPipeError, OSError):
            self.pipe.send(message)


class Pool:
    """Workers and the queue before them."""

    def __init__(
        self, options: WorkerOptions, count: int, limits: Limits, metrics: Metrics, batching: Batching = "joining"
    ) -> None:
        self.options, self.count, self.metrics = options, count, metrics
        self.is_batched, self.joins = batching != "none", batching == "joining"
        self.room = MOST_ITEMS if self.is_batched else 1
        self.waiting = Waiting(limits.waiting)
        self.patience = limits.hanging
        self.workers: list[Worker] = []
        self.runs: dict[str, ServedRun] = {}
        self.version, self.newest = 0, 0
        """The version of the weights that answer, and the one that was loaded last."""
        self.is_stopping, self.broken = False, ""
        self.reloads: set[asyncio.Future[None]] = set()
        self.changed, self.reloading = asyncio.Event(), asyncio.Lock()
        self.seconds = 1.0
        """The mean time of a batch, smoothed."""
        methods = multiprocessing.get_all_start_methods()
        self.context: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
        if "forkserver" in methods:
            self.context.set_forkserver_preload(["mallang.serving.preloaded"])

    async def start(self) -> None:
        """Start the workers, and wait until one is ready."""
        self.loop = asyncio.get_running_loop()
        for _ in range(self.count):
            self.add(self.version)
        self.loop.call_later(WATCH, self.watch)
        await self.until(lambda: bool(self.broken) or any(worker.is_ready for worker in self.workers))
        if self.broken:
            raise UserError(self.broken)

    @property
    def is_loading(self) -> bool:
        """Whether weights are loaded that have not answered yet."""
        return not self.runs or self.newest > self.version

    async def until(self, is_true: Callable[[], bool]) -> None:
        """Wait for a change of the workers."""
        while not is_true():
            self.changed.clear()
            await self.changed.wait()

    def add(self, version: int) -> Worker:
        """Start a worker, and a thread that reads what it sends."""
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=work, args=(theirs, self.options), daemon=True)
        process.start()
        theirs.close()
        worker = Worker(process, ours, version)
        self.workers.append(worker)
        threading.Thread(target=self.listen, args=(worker,), daemon=True).start()
        return worker

    def listen(self, worker: Worker) -> None:
        """Pass on what a worker sends, until it ends."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the server has ended
            with contextlib.suppress(EOFError, OSError):
                while True:
                    heard = worker.pipe.recv()
                    self.loop.call_soon_threadsafe(self.hear, worker, heard if isinstance(heard, list) else [heard])
            worker.pipe.close()
            self.loop.call_soon_threadsafe(self.ended, worker)

    def hear(self, worker: Worker, messages: list[Any]) -> None:
        """What a worker says."""
        for message in messages:
            if isinstance(message, Ready):
                self.begun(worker, message)
            elif isinstance(message, Broken):
                if worker.version == self.newest and self.is_loading:
                    self.broken = message.message
            elif isinstance(message, Part):
                if job := worker.jobs.get(message.job):
                    job.events.put_nowait(message)
            elif isinstance(message, Done | Failed) and (job := worker.jobs.pop(message.job, None)):
                job.is_over = True
                job.events.put_nowait(message)
                if not worker.jobs:
                    self.seconds += 0.2 * (time.monotonic() - worker.since - self.seconds)
        worker.silent = time.monotonic() if worker.jobs else None
        self.dispatch()

    def begun(self, worker: Worker, message: Ready) -> None:
        """A worker has loaded its runs: from now on the newest weights answer."""
        worker.is_ready = True
        self.room = message.room if self.is_batched else 1
        runs = {run.name: run for run in message.runs}
        if worker.version > self.version or not self.runs:
            self.version, self.runs = worker.version, runs
        elif worker.version == self.version and runs != self.runs and not self.reloading.locked():
            # A worker took the place of another after the run had changed: two versions must not answer by turns.
            self.reloads.add(task := asyncio.ensure_future(self.reload()))
            task.add_done_callback(self.forget)

    def forget(self, task: asyncio.Future[None]) -> None:
        """A reload that nobody has asked for is over."""
        self.reloads.discard(task)
        if not task.cancelled() and (error := task.exception()):
            logging.getLogger("mallang.serving").error("the runs are not loaded again: %s", error)

    def ended(self, worker: Worker) -> None:
        """A worker has ended: another takes its place, and its requests are served again."""
        if worker not in self.workers:
            return
        self.workers.remove(worker)
        again = []
        for job in worker.jobs.values():
            job.tries += 1
            if job.tries >= TRIES:
                job.events.put_nowait(Failed(job.number, 500, "two workers ended while they served this request"))
            elif not job.is_over:
                again.append(job)
        self.waiting.put_back(again)
        if not worker.is_ready and worker.version == self.newest and self.is_loading:
            self.broken = self.broken or "a worker ended while it loaded the runs"
        self.changed.set()
        if not self.is_stopping and worker.version in (self.version, self.newest) and not self.broken:
            self.metrics.replaced.add(1)
            self.loop.call_later(0.0 if worker.is_ready else BREAK, self.replace, worker.version)
        self.dispatch()

    def replace(self, version: int) -> None:
        """Start a worker in the place of one that ended, unless its weights are out of date by now."""
        if not self.is_stopping and version in (self.version, self.newest):
            self.add(version)

    def watch(self) -> None:
        """End workers that hang; they are replaced."""
        now = time.monotonic()
        for worker in self.workers:
            if worker.is_ready and worker.silent is not None and now - worker.silent > self.patience:
                worker.process.kill()
        if not self.is_stopping:
            self.loop.call_later(WATCH, self.watch)

    def submit(self, job: Job) -> None:
        """Queue a request; it is refused where the queue is full or the server is stopping."""
        if self.is_stopping:
            raise RequestError(503, "the server is stopping", code="stopping", headers={"retry-after": "5"})
        self.waiting.put(job, self.seconds * (1 + len(self.waiting) / MOST_ITEMS / max(1, self.count)))
        self.dispatch()

    def cancel(self, job: Job) -> None:
        """Nobody waits for a request any more."""
        self.waiting.drop(job)
        job.is_over = True
        for worker in self.workers:
            if job.number in worker.jobs and job.is_stepped:
                del worker.jobs[job.number]
                worker.send(Cancel(job.number))
        self.dispatch()

    def dispatch(self) -> None:
        """Give what waits to workers that are free, or that generate and have room for more."""
        while self.waiting.jobs:
            current = [worker for worker in self.workers if worker.is_ready and worker.version == self.version]
            free = [worker for worker in current if not worker.jobs]
            if free:
                self.give(free[0], self.waiting.take(self.room, len(free)))
            elif not self.join([worker for worker in current if worker.kind == self.waiting.jobs[0].kind]):
                break
        self.metrics.queued.put(len(self.waiting))
        self.retire()
        self.changed.set()

    def join(self, generating: list[Worker]) -> bool:
        """Let the oldest request join the outputs of a worker, if it may and there is room."""
        if not self.joins or not self.waiting.jobs[0].is_stepped or not generating:
            return False
        worker = min(generating, key=lambda each: each.items)
        if worker.items + self.waiting.jobs[0].size > self.room:
            return False
        self.give(worker, self.waiting.take(1))
        return True

    def give(self, worker: Worker, jobs: list[Job]) -> None:
        """Give requests to a worker."""
        now = time.monotonic()
        if not worker.jobs:
            worker.since = now
        worker.kind = jobs[0].kind
        for job in jobs:
            worker.jobs[job.number] = job
            self.metrics.waiting.observe(now - job.arrived, job.run, job.verb)
        self.metrics.batches.observe(worker.items, jobs[0].run, jobs[0].verb)
        worker.silent = worker.silent or now
        worker.send(as_message(jobs))

    async def reload(self) -> None:
        """Load the runs again in new workers; those with the earlier weights finish what they serve, then end."""
        async with self.reloading:
            self.newest += 1
            version = self.newest
            for _ in range(self.count):
                self.add(version)
            await self.until(lambda: bool(self.broken) or self.version == version or self.is_stopping)
            if self.is_stopping:
                raise RequestError(503, "the server is stopping", code="stopping", headers={"retry-after": "5"})
            if self.broken:
                what, self.broken, self.newest = self.broken, "", version + 1
                for worker in [each for each in self.workers if each.version == version]:
                    self.stop_worker(worker)
                raise RequestError(
                    500, f"the runs cannot be loaded again, the earlier ones are kept: {what.splitlines()[0]}"
                )
            self.dispatch()

    def retire(self) -> None:
        """End workers of an earlier version that have finished."""
        if any(worker.is_ready and worker.version == self.version for worker in self.workers):
            for worker in [each for each in self.workers if each.version < self.version and not each.jobs]:
                self.stop_worker(worker)

    def stop_worker(self, worker: Worker) -> None:
        """End a worker that has nothing to do."""
        self.workers.remove(worker)
        worker.process.terminate()

    def give_up(self) -> None:
        """Requests that are not answered by now get none: the server has to stop."""
        for job in [*self.waiting.jobs, *(job for worker in self.workers for job in worker.jobs.values())]:
            job.is_over = True
            job.events.put_nowait(Failed(job.number, 503, "the server has stopped"))
        self.waiting.jobs.clear()

    async def stop(self, seconds: float) -> None:
        """Serve what has been taken in, then end all workers."""
        self.is_stopping = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.until(lambda: not self.waiting.jobs and not any(worker.jobs for worker in self.workers))
        self.give_up()
        for worker in [*self.workers]:
            self.stop_worker(worker)
        await asyncio.sleep(0)
