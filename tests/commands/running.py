"""Running the real command from tests: `mallang("train", ...)` to its end, or `start` and look on."""

from __future__ import annotations

import atexit
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mallang.training import record

TINY = (
    "model.size=tiny",
    "model.layers=1",
    "text.vocabulary=160",
    "data.train=train.tsv",
    "data.valid=valid.tsv",
    "data.test=valid.tsv",
    "data.max_length=40",
    "train.batch_tokens=256",
    "train.log_every=5",
    "schedule.warmup=20",
    "optimizer.learning_rate=0.005",
)
"""A recipe that trains in seconds, on files that `write_corpus` makes."""
WORDS = {
    "subject": {"민수는": "Minsu", "지호는": "Jiho", "소라는": "Sora", "유나는": "Yuna"},
    "object": {"사과를": "apples", "책을": "books", "고양이를": "cats", "물을": "water"},
    "verb": {"먹는다": "eats", "본다": "sees", "좋아한다": "likes", "산다": "buys"},
}


def write_corpus(folder: Path, rows: int = 200) -> None:
    """Pairs of one to three clauses, as train.tsv and valid.tsv."""
    draw = random.Random(1)
    for name, count in (("train.tsv", rows), ("valid.tsv", 20)):
        pairs = (clauses(draw, draw.randint(1, 3)) for _ in range(count))
        folder.joinpath(name).write_text("".join(f"{ko}\t{en}\n" for ko, en in pairs), encoding="utf-8")


def clauses(draw: random.Random, count: int) -> tuple[str, str]:
    """A sentence of so many clauses, in both languages."""
    korean, english = [], []
    for _ in range(count):
        subject, thing, verb = (draw.choice(list(WORDS[role].items())) for role in ("subject", "object", "verb"))
        korean.append(f"{subject[0]} {thing[0]} {verb[0]}")
        english.append(f"{subject[1]} {verb[1]} {thing[1]}")
    return " 그리고 ".join(korean) + ".", " and ".join(english) + "."


@dataclass(frozen=True)
class Ended:
    """What a command left behind."""

    code: int
    out: str
    err: str


class Job:
    """A command under way; its output goes to files, so that nothing that outlives it can hold a pipe open."""

    def __init__(self, folder: Path, pid: int, wait: Callable[[], int]) -> None:
        self.folder, self.pid, self._wait = folder, pid, wait

    @property
    def err(self) -> str:
        return self.folder.joinpath("err").read_text("utf-8")

    def wait(self) -> Ended:
        code = self._wait()
        return Ended(code, self.folder.joinpath("out").read_text("utf-8"), self.err)

    def until(self, is_so: Callable[[], object]) -> None:
        """Let it run until something has become true; that it ended before is a failure."""
        wait_until(lambda: is_so() or not Path("/proc", str(self.pid)).exists())
        assert is_so(), self.err

    def send(self, number: signal.Signals, *, to_group: bool = False) -> None:
        (os.killpg if to_group else os.kill)(self.pid, number)

    def group(self) -> list[int]:
        """The processes of its group that still live."""
        return [int(path.name) for path in Path("/proc").glob("[0-9]*") if group_of(path) == self.pid]


def group_of(process: Path) -> int | None:
    """The process group of a living process."""
    try:
        state, _, group = process.joinpath("stat").read_text("utf-8").rpartition(")")[2].split()[:3]
    except OSError:
        return None
    return None if state == "Z" else int(group)


def mallang(*arguments: str | Path, cwd: Path, **options: object) -> Ended:
    """Run a command to its end."""
    return start(*arguments, cwd=cwd, **options).wait()  # type: ignore[arg-type]


def ran(*arguments: str | Path, cwd: Path) -> Ended:
    """Run a command that must succeed."""
    ended = mallang(*arguments, cwd=cwd)
    assert ended.code == 0, ended.err
    return ended


def start(
    *arguments: str | Path,
    cwd: Path,
    text: str | bytes = "",
    env: Mapping[str, str | None] = {},
    file_size: int = 0,
    missing: Sequence[str] = (),
    closed: Sequence[str] = (),
    cold: bool = False,
    nobody: bool = False,
) -> Job:
    """Start a command in a process group of its own; `cold` as `python -m mallang`, else from the warm process.

    `nobody` is a user who may not write where files belong to root.
    """
    folder = Path(tempfile.mkdtemp(prefix="command-", dir=scratch()))
    folder.joinpath("in").write_bytes(text.encode() if isinstance(text, str) else text)
    for name in ("out", "err"):
        folder.joinpath(name).touch()
    given = [str(argument) for argument in arguments]
    if cold:
        return start_cold([sys.executable, "-m", "mallang", *given], cwd, environment(cwd, env), folder)
    order = {
        "arguments": given,
        "cwd": str(cwd),
        "env": environment(cwd, env),
        "streams": [str(folder / name) for name in ("in", "out", "err")],
        "file_size": file_size,
        "missing": list(missing),
        "closed": list(closed),
        "nobody": nobody,
        "seconds": 120,
    }
    server = warm()
    assert server.stdin is not None and server.stdout is not None
    print(json.dumps(order), file=server.stdin, flush=True)
    pid = int(server.stdout.readline())
    return Job(folder, pid, lambda: int(server.stdout.readline()))  # type: ignore[union-attr]


def start_cold(command: list[str], cwd: Path, env: dict[str, str], folder: Path) -> Job:
    """Start any command, Python and all."""
    with (folder / "in").open("rb") as given, (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            command, stdin=given, stdout=out, stderr=err, cwd=cwd, env=env, start_new_session=True
        )
    return Job(folder, process.pid, lambda: process.wait(timeout=300))


def environment(cwd: Path, changes: Mapping[str, str | None]) -> dict[str, str]:
    """One thread of the CPU, a cache of its own, no data but what the test gives."""
    left_out = {"MALLANG_DATA", "TOKENIZERS_PARALLELISM"}
    base = {key: value for key, value in os.environ.items() if key not in left_out}
    base |= {
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "MALLANG_CACHE": str(cwd / "cache"),
        "NO_COLOR": "1",
        "COLUMNS": "200",
    }
    wanted = {**base, **changes}
    return {key: value for key, value in wanted.items() if value is not None}


@cache
def scratch() -> str:
    """Where the output of commands goes; removed at the end."""
    folder = tempfile.TemporaryDirectory(prefix="mallang-tests-")
    atexit.register(folder.cleanup)
    return folder.name


@cache
def warm() -> subprocess.Popen[str]:
    """The process that has torch imported."""
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("preloaded.py"))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(Path(scratch()), {}),
    )  # fmt: skip
    atexit.register(server.wait)
    atexit.register(server.terminate)  # first
    return server


def wait_until(is_so: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def metrics(run: Path) -> list[dict[str, object]]:
    """What a run measured, less what depends on the machine's speed."""
    return [record.without_clock(entry) for entry in record.read(run / record.FILE)]


def as_served(run: Path, verb: str, items: Sequence[object], **options: object) -> list[object]:
    """What the server answers to a request, as a client reads it; numbers are equal to five digits."""
    import pytest

    from mallang.loading import load
    from mallang.serving.answers import to_json
    from mallang.serving.calls import call
    from mallang.serving.openapi import document

    def near(value: object) -> object:
        if isinstance(value, dict):
            return {name: near(each) for name, each in value.items()}
        if isinstance(value, list):
            return [near(each) for each in value]
        return pytest.approx(value, rel=1e-4, abs=1e-5) if isinstance(value, float) else value

    found = json.loads(to_json(call(load(run, "cpu"), verb, list(items), options)))
    answer = document()["paths"][f"/api/{verb}"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    required = answer["allOf"][1]["properties"]["results"]["items"]["required"]
    assert all(set(required) <= set(each) for each in found), (required, found)
    return [near(each) for each in found]
