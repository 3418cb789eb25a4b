"""Two machines, played by two agents of torchrun: one is killed, and the training ends as if nothing had happened.

The model is slowed down, so that a training run lasts long enough on any machine to be disturbed.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from commands.running import TINY, Job, environment, mallang, metrics, scratch, start_cold, wait_until, write_corpus

pytestmark = pytest.mark.slow
PLUGIN = """
import time
from mallang.models.transformer import SIZES, Config, Transformer

class Model(Transformer):
    def forward(self, batch):
        time.sleep(0.03)
        return super().forward(batch)
"""
RECIPE = (
    "train", "slow", "--plugin", "slow.py", *TINY, "model.dropout=0.2", "train.steps=400", "train.micro_batches=2",
    "train.batch_tokens=64", "train.save_every=10", "train.log_every=10", "train.validate_every=200", "train.workers=0",
)  # fmt: skip
RUN = Path("runs", "slow")


def write_home(home: Path) -> Path:
    """The corpus and the model that every machine sees."""
    write_corpus(home)
    home.joinpath("slow.py").write_text(PLUGIN)
    return home


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of two agents that nothing disturbs."""
    home = write_home(tmp_path_factory.mktemp("calm"))
    port = free_port()
    for ended in [job.wait() for job in (agent(home, port), agent(home, port))]:
        assert ended.code == 0, ended.err
    return home


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return write_home(tmp_path)


def agent(home: Path, port: int, nodes: str = "2") -> Job:
    """One agent of torchrun, as it would be started on one machine."""
    folder = Path(tempfile.mkdtemp(prefix="agent-", dir=scratch()))
    for name in ("in", "out", "err"):
        folder.joinpath(name).touch()
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nnodes", nodes, "--nproc-per-node", "1",
        "--max-restarts", "9", "--rdzv-backend", "c10d", "--rdzv-id", "test", "--rdzv-endpoint", f"localhost:{port}",
        "--rdzv-conf", "last_call_timeout=2", "--monitor-interval", "0.2", "-m", "mallang", *RECIPE,
    ]  # fmt: skip
    env = environment(home, {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})
    return start_cold(command, home, env, folder)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return int(free.getsockname()[1])


def workers(job: Job) -> list[int]:
    """The processes that an agent has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = path.joinpath("stat").read_text("utf-8").rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == job.pid and state != "Z":
            found.append(int(path.name))
    return found


def newest_step(home: Path) -> int:
    return max((int(path.name[5:]) for path in (home / RUN / "checkpoints").glob("step-*")), default=0)


def until(is_so: Callable[[], object], job: Job) -> None:
    """Wait, with the patience that a busy machine needs."""
    wait_until(lambda: is_so() or not alive(job.pid), seconds=240)
    assert alive(job.pid), job.err


def alive(pid: int) -> bool:
    try:
        return Path("/proc", str(pid), "stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def kill(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def assert_same(home: Path, calm: Path) -> None:
    """Weights bit by bit, and every measurement."""
    assert (home / RUN / "model.safetensors").read_bytes() == (calm / RUN / "model.safetensors").read_bytes()
    assert metrics(home / RUN) == metrics(calm / RUN)


def test_one_process_does_the_same(home: Path, calm: Path) -> None:
    """`train.micro_batches` makes the number of processes a matter of time alone."""
    ended = mallang(*RECIPE, cwd=home)
    assert ended.code == 0, ended.err
    assert_same(home, calm)


def test_a_killed_agent_is_replaced(home: Path, calm: Path) -> None:
    """The one that is left says what happened, waits, and both continue from the last checkpoint."""
    port = free_port()
    left = agent(home, port)
    until(lambda: listens(port), left)
    lost = agent(home, port)
    until(lambda: newest_step(home) >= 30, left)
    kill([lost.pid, *workers(lost)])
    lost.wait()
    until(lambda: "another process of this training is lost" in left.err, left)
    assert not (home / RUN / "model.safetensors").exists()
    new = agent(home, port)
    for ended in (left.wait(), new.wait()):
        assert ended.code == 0, ended.err
    assert "this is a bug" not in left.err
    assert left.err.count("resuming from step") == 1
    assert "resuming from" not in new.err  # only the first process speaks
    assert_same(home, calm)


def test_the_others_go_on_and_a_new_one_may_join(home: Path, calm: Path) -> None:
    """Of `--nnodes 1:2` one agent is killed, and its process with it leaves; one trains alone, then two again."""
    port = free_port()
    left = agent(home, port, "1:2")
    until(lambda: listens(port), left)
    lost = agent(home, port, "1:2")
    until(lambda: newest_step(home) >= 30, left)
    orphans = workers(lost)
    assert len(orphans) == 1
    kill([lost.pid])
    lost.wait()
    until(lambda: "resuming from step" in left.err, left)
    assert not any(map(alive, orphans))
    step = newest_step(home)
    until(lambda: newest_step(home) > step, left)  # alone
    new = agent(home, port, "1:2")
    for ended in (left.wait(), new.wait()):
        assert ended.code == 0, ended.err
    assert left.err.count("resuming from step") == 2
    assert_same(home, calm)


def test_the_agent_where_all_meet_is_lost(home: Path, calm: Path) -> None:
    """Then no one can meet again: the other agent gives up, and both are started again."""
    port = free_port()
    host = agent(home, port)
    until(lambda: listens(port), host)
    other = agent(home, port)
    until(lambda: newest_step(home) >= 30, host)
    kill([host.pid, *workers(host)])
    host.wait()
    assert other.wait().code != 0
    assert not (home / RUN / "model.safetensors").exists()
    port = free_port()
    again = [agent(home, port), agent(home, port)]
    for ended in [job.wait() for job in again]:
        assert ended.code == 0, ended.err
    assert_same(home, calm)


def listens(port: int) -> bool:
    """Whether someone can be reached there."""
    with socket.socket() as visitor:
        return visitor.connect_ex(("localhost", port)) == 0
