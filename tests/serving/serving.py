"""Servers for tests: runs with random weights, and the real command in a process of its own."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from mallang import recipe as recipes
from mallang.find import find
from mallang.interop.imported_run import write_imported
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer

ADDRESS = re.compile(r"http://\S+:(\d+)")
TEXTS = ["민수는 사과를 먹었다.", "유나는 지난주에 배를 탔다.", "나는 물을 마신다.", "그녀는 학교에 갔다."]


def write_run(folder: Path, name: str, *changes: str) -> Path:
    """A run with random weights, sharp enough that the most probable token is clear."""
    torch.manual_seed(3)
    resolved = recipes.read(name, ["model.size=tiny", "model.layers=1", *changes]).build()
    tokenizer = Tokenizer.train(LINES, TextConfig(unit="bpe", vocabulary=120))
    task = find("tasks", resolved.task_name)
    columns = ("source", "target") if resolved.task_name in ("translation", "dialogue") else ("text",)
    built = task.Task(resolved.task, dict.fromkeys(columns, tokenizer))
    model = built.build(find("models", resolved.model_name), resolved.model)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(3.0)
    write_imported(folder, resolved, tokenizer, model, about="random", sources={}, fresh=True)
    return folder


LINES = [*TEXTS, "Minsu ate an apple.", "Yuna took a boat last week.", "I drink water.", "She went to school."] * 3


@dataclass
class Client:
    """A client of a server: no library between the test and HTTP."""

    port: int
    headers: Mapping[str, str] = field(default_factory=dict)

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        sent = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        given = {
            **({"content-type": "application/json"} if sent is not None else {}),
            **self.headers,
            **(headers or {}),
        }
        with contextlib.closing(connection):
            connection.request(method, path, sent, given)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()

    def get(self, path: str) -> Any:
        status, _, body = self.ask("GET", path)
        assert status == 200, body
        return json.loads(body)

    def post(self, path: str, **fields: Any) -> tuple[int, Any]:
        status, _, body = self.ask("POST", path, fields)
        return status, json.loads(body)


@dataclass
class Running:
    """A server in a process of its own, and what it has said."""

    process: subprocess.Popen[bytes]
    log: Path
    at_last: str = ""
    """What it has said when it has ended."""

    def said(self) -> str:
        return self.at_last or self.log.read_text("utf-8")

    def workers(self) -> list[int]:
        """The processes of the workers: a forkserver, which the server starts, is their parent."""
        found = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        parents = {int(pid): int(parent) for pid, parent in map(str.split, found.splitlines())}
        return [pid for pid, parent in parents.items() if parents.get(parent) == self.process.pid]


@contextlib.contextmanager
def serving(*arguments: str | Path, **environment: str) -> Iterator[tuple[Client, Running]]:
    """The command `mallang serve` in a process of its own, on a free port."""
    with started("mallang", "serve", *arguments, "--port", "0", **environment) as found:
        yield found


@contextlib.contextmanager
def slow_serving(
    *runs: str | Path, limits: Mapping[str, float], **environment: str
) -> Iterator[tuple[Client, Running]]:
    """A server whose models can be told to be slow (slow.py)."""
    with started("serving.slow", json.dumps(limits), *runs, **environment) as found:
        yield found


@contextlib.contextmanager
def started(module: str, *arguments: str | Path, **environment: str) -> Iterator[tuple[Client, Running]]:
    """A module that serves, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *map(str, arguments)], stderr=stream,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path), **environment},
            )  # fmt: skip
        running = Running(process, log)
        try:
            until(lambda: process.poll() is not None or ADDRESS.search(running.said()), 120)
            found = ADDRESS.search(running.said())
            assert found is not None, running.said()
            yield Client(int(found[1])), running
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise AssertionError(f"the server did not stop: {running.said()}") from None
            running.at_last = running.said()


def until(is_true: Any, seconds: float = 60) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
