"""Clients of a server under load: each sends its next request when the answer has come, and looks at the answer."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.contest import ROOT

NEAR = 2e-3
"""How far the log-probability of another output may lie from that of the expected one: float32 has ties."""


@dataclass(frozen=True)
class Request:
    """A request, and what the library answers to its text alone."""

    path: str
    body: dict[str, Any]
    output: str | None
    score: float
    tokens: int

    def for_peer(self) -> Request:
        """This request for a server with OpenAI's API alone; whether its samples are right cannot be said."""
        greedy = self.body["method"] == "greedy"
        body = {
            "model": "PEER", "prompt": self.body["prompts"], "max_tokens": self.tokens,
            "temperature": 0.0 if greedy else 1.0,
        }  # fmt: skip
        return replace(self, path="/v1/completions", body=body, output=None)

    def is_answered_by(self, answer: Any) -> bool:
        """Whether an answer is the expected one."""
        if self.path.startswith("/v1"):
            return bool(answer["choices"][0]["text"]) and answer["usage"]["completion_tokens"] == self.tokens
        result = answer["results"][0]
        return result["output"] == self.output or math.isclose(result["score"], self.score, abs_tol=NEAR)


@dataclass
class Load:
    """What a server did under load."""

    seconds: float
    times: list[float] = field(default_factory=list)
    tokens: int = 0
    lost: int = 0
    wrong: int = 0
    memory: list[float] = field(default_factory=list)
    """MiB of all its processes, at regular times."""

    @property
    def rate(self) -> float:
        """Right answers per second."""
        return (len(self.times) - self.wrong) / self.seconds

    def percentile(self, share: float) -> float:
        """The time within which this share of the answers came."""
        return (
            sorted(self.times)[min(len(self.times) - 1, math.ceil(share * len(self.times)) - 1)]
            if self.times
            else math.inf
        )

    def middle_and_end(self) -> tuple[float, float]:
        """Memory in the third and in the last quarter."""
        size = max(1, len(self.memory) // 4)
        return statistics.mean(self.memory[2 * size : 3 * size] or self.memory), statistics.mean(self.memory[-size:])

    def row(self) -> tuple[float | int, ...]:
        """As a row of the table."""
        times = (round(self.percentile(0.5), 3), round(self.percentile(0.99), 3))
        memory = (round(each) for each in self.middle_and_end())
        return (round(self.rate, 2), round(self.tokens / self.seconds, 1), *times, self.lost, self.wrong, *memory)

    def signature(self) -> str:
        """All but the rate, in words."""
        middle, end = self.middle_and_end()
        return (
            f"{len(self.times)} answers, {self.lost} lost, {self.wrong} wrong|p50 {self.percentile(0.5):.3f} s, "
            f"p99 {self.percentile(0.99):.3f} s|{self.tokens / self.seconds:.1f} tokens/s|"
            f"{middle:.0f} MiB in the third quarter, {end:.0f} in the last|Python {sys.version.split()[0]}"
        )


class Server:
    """A server in a process of its own."""

    def __init__(self, command: Sequence[str], model: str = "", environment: dict[str, str] | None = None) -> None:
        own = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src"), "HF_HUB_OFFLINE": "1", **(environment or {})}
        self.command, self.environment, self.model = command, {**os.environ, **own}, model
        self.port = 0

    @classmethod
    def ours(cls, run: Path, batching: str) -> Server:
        """`mallang serve`, with one worker per core."""
        return cls([sys.executable, "-m", "mallang", "serve", str(run), "--port", "0", "--device", "cpu",
                    "--batching", batching, "--timeout", "600"])  # fmt: skip

    @classmethod
    def transformers(cls, python: str, folder: Path, workers: int) -> Server:
        """`transformers serve`: one process, with all cores; it has no workers."""
        program = Path(python).with_name("transformers")
        command = [str(program), "serve", str(folder), "--device", "cpu", "--dtype", "float32", "--port", "8917"]
        return cls([*command, "--continuous-batching"] if os.environ.get("MALLANG_PEER_BATCHES") else command,
                   str(folder), {"OMP_NUM_THREADS": str(workers)})  # fmt: skip

    def __enter__(self) -> Server:
        self.process = subprocess.Popen(self.command, env=self.environment, stderr=subprocess.PIPE, text=True)
        if self.model:
            self.port = int(self.command[self.command.index("--port") + 1])
            self.wait()
            return self
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.search(r"http://\S+:(\d+)", line):
                self.port = int(found[1])
                return self
        raise RuntimeError(f"{' '.join(self.command)} ended")

    def wait(self) -> None:
        """Wait until it answers."""
        for _ in range(600):
            if self.process.poll() is not None:
                raise RuntimeError(f"{' '.join(self.command)} ended")
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2).read()
                return
            except OSError:
                time.sleep(0.5)
        raise RuntimeError(f"{' '.join(self.command)} does not answer")

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(60)
        if self.process.stderr is not None:
            self.process.stderr.close()

    def memory(self) -> float:
        """MiB of its own: of all its processes, pages that several share counted once."""
        return sum(own_pages(each) for each in descendants(self.process.pid)) / 1024


def descendants(process: int) -> list[int]:
    """A process and all that it has started."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    children: dict[int, list[int]] = {}
    for line in listed.splitlines():
        child, parent = map(int, line.split())
        children.setdefault(parent, []).append(child)
    found = [process]
    for each in found:
        found += children.get(each, [])
    return found


def own_pages(process: int) -> int:
    """The proportional set size of a process in KiB; 0 once it has ended."""
    try:
        return int(re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{process}/smaps_rollup").read_text(), re.MULTILINE)[1])  # type: ignore[index]
    except OSError:
        return 0


def load(server: Server, requests: Sequence[Request], clients: int, seconds: float) -> Load:
    """Send requests by so many clients for so long; what was sent by then is waited for."""
    if server.model:
        requests = [replace(each, body={**each.body, "model": server.model}) for each in requests]
    return asyncio.run(under_load(server, requests, clients, seconds))


async def under_load(server: Server, requests: Sequence[Request], clients: int, seconds: float) -> Load:
    """All clients at once, and somebody who looks at the memory."""
    found, coming = Load(0.0), itertools.cycle(requests)
    warm = [client(server, itertools.islice(coming, 4), Load(0.0), math.inf) for _ in range(4)]
    await asyncio.gather(*warm)
    begun = time.monotonic()

    async def look() -> None:
        while True:
            found.memory.append(await asyncio.to_thread(server.memory))
            await asyncio.sleep(max(0.5, seconds / 40))

    looking = asyncio.create_task(look())
    await asyncio.gather(*(client(server, coming, found, begun + seconds) for _ in range(clients)))
    found.seconds = time.monotonic() - begun
    looking.cancel()
    return found


async def client(server: Server, coming: Any, found: Load, end: float) -> None:
    """One client with one connection, which it opens again when it is closed."""
    connection: Any = None
    for request in coming:
        if time.monotonic() > end:
            break
        begun = time.monotonic()
        try:
            connection = connection or await asyncio.open_connection("127.0.0.1", server.port)
            status, answer, is_open = await ask(*connection, request)
            found.times.append(time.monotonic() - begun)
            found.tokens += request.tokens
            found.wrong += status != 200 or not request.is_answered_by(answer)
            if not is_open:
                connection = None
        except (OSError, asyncio.IncompleteReadError, ValueError):
            found.lost += 1
            connection = None


async def ask(reader: Any, writer: Any, request: Request) -> tuple[int, Any, bool]:
    """The status and the JSON of an answer, and whether the connection stays open."""
    body = json.dumps(request.body).encode()
    head = f"POST {request.path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
    answer = await reader.readexactly(int(headers["content-length"]))
    return int(lines[0].split()[1]), json.loads(answer), headers.get("connection") != "close"
