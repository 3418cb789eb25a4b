"""Benchmarked systems run in separate processes and are timed in turn, so that other load slows all of them alike.

Each process sets up its system, then runs one timed turn for every line it is sent. Its peak memory is that of the
process, or on a GPU the memory allocated there. A large matmul is timed in the same run, so that every speed can be
reported as a share of what the machine can compute.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[1]
PEERS = ROOT / ".peers"
"""Where `python -m benchmarks.peers` installs the other systems."""
SIZE = {"cpu": 2048, "cuda": 8192}
"""The side of the square matrices of the timed matmul."""
LOCK = Path(tempfile.gettempdir(), f"mallang-benchmarks-{os.getuid()}.lock")
"""Benchmarks that run side by side share this lock during setup; timed turns hold it exclusively."""
DECIDE = ("torch", "transformers", "ctranslate2", "joeynmt", "gensim", "flair")
"""Packages whose versions are part of a signature."""


@dataclass(frozen=True)
class Entrant:
    """A benchmarked system: a function `module.name(**options)` that returns a turn."""

    label: str
    place: str
    """Such as `benchmarks.module:function`."""
    options: Mapping[str, Any]
    needs: tuple[str, ...] = ()
    """Packages it needs, in this Python's environment or in one below `.peers`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of its process."""
    tree: Path = ROOT
    """The folder that its process runs in: another one for the code of another commit."""


@dataclass(frozen=True)
class Outcome:
    """The measurements of a benchmarked system."""

    rate: float
    """The median rate of its turns: tokens, sentences or operations per second."""
    peak: int
    """Peak memory in bytes."""
    signature: str
    """The versions of Python and of its packages."""


def race(entrants: Sequence[Entrant], rounds: int) -> dict[str, Outcome]:
    """Time every system once per round, in rotating order; those that cannot run are reported and skipped."""
    with ExitStack() as stack:
        lock = stack.enter_context(beside_others())
        running: dict[str, Runner] = {}
        for entrant in entrants:
            if (python := python_with(entrant.needs)) is None:
                message = f"{entrant.label} is not measured: {', '.join(entrant.needs)} is not installed"
                print(f"{message}; python -m benchmarks.peers installs it", file=sys.stderr)
                continue
            running[entrant.label] = stack.enter_context(Runner(entrant, python))
        for runner in running.values():  # all set up at the same time: compiling takes some of them a minute
            runner.get_ready()
        fcntl.flock(lock, fcntl.LOCK_EX)
        labels = list(running)
        for number in range(rounds):
            for label in labels[number % len(labels) :] + labels[: number % len(labels)]:
                running[label].turn()
        return {label: runner.outcome() for label, runner in running.items()}


@contextmanager
def beside_others() -> Iterator[IO[str]]:
    """Wait until no benchmark times turns, then hold the lock shared: for setup, and for untimed work."""
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield lock


class Runner:
    """The process of a benchmarked system, seen from outside."""

    def __init__(self, entrant: Entrant, python: str) -> None:
        self.entrant = entrant
        command = [python, "-m", "benchmarks.contest", entrant.place, json.dumps(dict(entrant.options))]
        self.process = subprocess.Popen(
            command, cwd=entrant.tree, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, **entrant.environment},
        )  # fmt: skip
        self.signature = ""
        self.rates: list[float] = []

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()

    def get_ready(self) -> None:
        """Wait until the system is built and warmed up."""
        self.signature = self.answer()["signature"]

    def turn(self) -> None:
        """Run one turn and note the rate that it reports."""
        self.rates.append(float(self.ask("go")["rate"]))

    def outcome(self) -> Outcome:
        """The median rate and peak memory of all turns so far."""
        return Outcome(statistics.median(self.rates), int(self.ask("peak")["peak"]), self.signature)

    def ask(self, word: str) -> dict[str, Any]:
        """Send a line and wait for the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """The next line of its output, decoded."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.entrant.label} ended with code {self.process.wait()}; see above")
        answered: dict[str, Any] = json.loads(line)
        return answered


Turn = Callable[[], float]
"""A repeatable piece of work; it returns how much was done, such as a number of tokens."""


def for_a_second(turn: Turn) -> Turn:
    """Repeat a turn until a second has passed: a GPU that another process has just left is slow at first."""

    def turns() -> float:
        began, work = time.monotonic(), 0.0
        while time.monotonic() - began < 1:
            work += turn()
        return work

    return turns


def serve(place: str, options: Mapping[str, Any]) -> None:
    """The benchmarked process: set up, run two turns to warm up, then answer line by line."""
    # Whatever a library prints goes to stderr: stdout carries only the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    module, _, function = place.partition(":")
    turn: Turn = getattr(importlib.import_module(module), function)(**options)
    for _ in range(2):
        turn()
    print(json.dumps({"signature": signature()}), file=answers, flush=True)
    while word := sys.stdin.readline():
        # A turn that runs another program measures the peak memory of that program itself.
        peak = getattr(turn, "peak", peak_memory)
        answer = {"peak": peak()} if word == "peak\n" else {"rate": rate_of(turn)}
        print(json.dumps(answer), file=answers, flush=True)


def rate_of(turn: Turn) -> float:
    """Work per second, with the GPU synchronized before and after."""
    torch = sys.modules.get("torch")
    wait = torch.cuda.synchronize if torch is not None and torch.cuda.is_available() else lambda: None
    wait()
    began = time.perf_counter()
    work = turn()
    wait()
    return work / (time.perf_counter() - began)


def peak_memory() -> int:
    """The peak memory of this process in bytes: on the GPU where there is one."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    return high_water("self") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def high_water(process: int | str) -> int:
    """The peak memory of a process since its program began; 0 where the system does not report it.

    `getrusage` may report that of the process which started it.
    """
    try:
        lines = Path(f"/proc/{process}/status").read_text("utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def signature() -> str:
    """The versions of Python and of the loaded packages that matter."""
    loaded = [name for name in DECIDE if name in sys.modules]
    return "|".join([f"python {platform.python_version()}", *(f"{name} {version(name)}" for name in loaded)])


def matmul(device: str, dtype: str) -> Turn:
    """A large square matmul, whose work is counted in floating-point operations."""
    import torch

    size, times = SIZE[device], 20 if device == "cuda" else 3
    left, right = (torch.randn(size, size, device=device, dtype=getattr(torch, dtype)) for _ in range(2))
    result = torch.empty_like(left)

    def run() -> float:
        for _ in range(times):
            torch.mm(left, right, out=result)
        return 2.0 * size**3 * times

    return run


def large_matmul(device: str) -> Entrant:
    """The matmul that speeds are compared with: float32 on a CPU, bfloat16 on a GPU."""
    dtype = "bfloat16" if device == "cuda" else "float32"
    return Entrant(f"{SIZE[device]}³ {dtype} matmul", "benchmarks.contest:matmul", {"device": device, "dtype": dtype})


@cache
def python_with(needs: tuple[str, ...]) -> str | None:
    """A Python that has these packages: this one, or that of an environment below `.peers`."""
    if all(importlib.util.find_spec(package) for package in needs):
        return sys.executable
    check = f"import importlib.util as u, sys; sys.exit(not all(u.find_spec(n) for n in {needs!r}))"
    for python in sorted(PEERS.glob("*/bin/python")):
        if subprocess.run([python, "-c", check], cwd=ROOT).returncode == 0:
            return str(python)
    return None


if __name__ == "__main__":
    serve(sys.argv[1], json.loads(sys.argv[2]))
