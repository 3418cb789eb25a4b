"""Two processes, started as a person starts them, do what one process with twice the accumulation does."""

from __future__ import annotations

import itertools
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import nn

from commands.running import (
    TINY,
    Ended,
    Job,
    environment,
    mallang,
    metrics,
    scratch,
    start_cold,
    wait_until,
    write_corpus,
)
from mallang.data.loader import BatchRequest, Position, Source, requests
from mallang.errors import UserError
from mallang.runs import beginning
from mallang.runs.beginning import await_run, locked
from mallang.runs.folder import Run
from mallang.training import checkpoint as checkpoints
from mallang.training import distributed
from mallang.training.checkpoint import Checkpoint
from mallang.training.distributed import World, buckets, connect, disconnect, naming_lost_process, number, own_device
from mallang.training.loop import Loop
from mallang.training.options import Config
from mallang.training.stopping import Stop
from training.test_loop import make

RECIPE = (
    "train", "transformer", *TINY, "model.dropout=0.2", "train.steps=12", "train.log_every=1", "train.validate_every=6",
    "train.workers=0",
)  # fmt: skip
RUN = Path("runs", "transformer")


def torchrun(*arguments: str, cwd: Path) -> Ended:
    """`torchrun --nproc-per-node 2 -m mallang …` to its end."""
    return launch(*arguments, cwd=cwd).wait()


def launch(*arguments: str, cwd: Path, restarts: int = 0, env: Mapping[str, str | None] = {}) -> Job:
    """`torchrun --nproc-per-node 2 -m mallang …` under way."""
    folder = Path(tempfile.mkdtemp(dir=scratch()))
    for name in ("in", "out", "err"):
        folder.joinpath(name).touch()
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    launcher += ["--max-restarts", str(restarts), "-m", "mallang"]
    env = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1" if restarts else None, **env}
    return start_cold([*launcher, *arguments], cwd, environment(cwd, env), folder)


def test_two_processes_equal_one(tmp_path: Path) -> None:
    """The loss and the gradient's length at every step, dropout on; validation; the weights at the end."""
    one, two = tmp_path / "one", tmp_path / "two"
    for home in (one, two):
        home.mkdir()
        write_corpus(home)
    assert mallang(*RECIPE, "train.gradient_accumulation=2", cwd=one).code == 0
    ended = torchrun(*RECIPE, cwd=two)
    assert ended.code == 0, ended.err
    expected, found = metrics(one / RUN), metrics(two / RUN)
    assert [(entry["kind"], entry["step"]) for entry in found] == [(entry["kind"], entry["step"]) for entry in expected]
    assert sum(entry["kind"] == "train" for entry in found) == 12
    for left, right in zip(found, expected, strict=True):
        assert left.keys() == right.keys()
        for key in left.keys() - {"kind"}:
            assert left[key] == pytest.approx(right[key], abs=1e-6, rel=1e-6), (key, left["step"])
    there = load_file(two / RUN / "model.safetensors")
    for name, weight in load_file(one / RUN / "model.safetensors").items():
        # Adam divides by tiny second moments, which makes the last bits of a gradient count.
        assert there[name].sub(weight).abs().max() < 1e-4, name


@pytest.mark.slow
def test_a_signal_to_the_launcher_saves(tmp_path: Path) -> None:
    """`torchrun` hands Ctrl-C and `kill` on; both processes leave, one speaks, and the same command goes on."""
    write_corpus(tmp_path)
    recipe = (*RECIPE, "train.steps=100000", "train.save_every=5")
    job = launch(*recipe, cwd=tmp_path)
    job.until(lambda: list((tmp_path / RUN / "checkpoints").glob("step-*")))
    job.send(signal.SIGTERM)
    ended = job.wait()
    assert ended.code != 0
    assert ended.err.count("stopped and saved at step") == 1, ended.err
    assert "this is a bug" not in ended.err
    last = max(int(path.name[5:]) for path in (tmp_path / RUN / "checkpoints").glob("step-*"))
    assert f"stopped and saved at step {last};" in ended.err
    wait_until(lambda: not job.group())


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_is_lost_is_started_anew(tmp_path: Path, number: signal.Signals) -> None:
    """Killed, or alive without an answer: the launcher starts both again, and the weights are those of one process."""
    one, two = tmp_path / "one", tmp_path / "two"
    recipe = [*RECIPE, "train.steps=400", "train.micro_batches=2", "train.save_every=10", "train.batch_tokens=64"]
    for home in (one, two):
        home.mkdir()
        write_corpus(home)
    assert mallang(*recipe, cwd=one).code == 0
    job = launch(*recipe, cwd=two, restarts=3, env={"MALLANG_PATIENCE": "8"})
    job.until(lambda: (two / RUN / "checkpoints" / "step-000000020").exists())
    os.kill(children(job.pid)[-1], number)
    ended = job.wait()
    assert ended.code == 0, ended.err
    assert ended.err.count("resuming from step") == 1, ended.err
    if number == signal.SIGSTOP:
        assert "another process of this training is lost: Timed out" in ended.err
    assert metrics(two / RUN) == metrics(one / RUN)
    assert (two / RUN / "model.safetensors").read_bytes() == (one / RUN / "model.safetensors").read_bytes()


def children(parent: int) -> list[int]:
    """The processes that a process has started, the oldest first."""
    found = Path("/proc", str(parent), "task", str(parent), "children").read_text("utf-8")
    return sorted(map(int, found.split()))


@pytest.mark.slow
def test_a_run_that_is_finished_is_a_success_after_a_restart(tmp_path: Path) -> None:
    """A process may be lost after the end; then all are started again, and find that nothing is left to do."""
    write_corpus(tmp_path)
    recipe = [*RECIPE, "train.steps=2", "train.validate_every=2"]
    assert mallang(*recipe, cwd=tmp_path).code == 0
    before = (tmp_path / RUN / "run.json").read_bytes()
    ended = launch(*recipe, cwd=tmp_path, restarts=1).wait()
    assert ended.code == 0, ended.err
    assert (tmp_path / RUN / "run.json").read_bytes() == before
    refused = mallang(*recipe, cwd=tmp_path)
    assert refused.code == 2 and "is finished" in refused.err
    fresh = mallang(*recipe, "--fresh", cwd=tmp_path, env={"TORCHELASTIC_MAX_RESTARTS": "3"})
    assert fresh.code == 2 and "every restart would begin again" in fresh.err


@pytest.mark.parametrize(
    ("option", "told"),
    [("train.nope=1", "train.nope"), ("train.micro_batches=1", "train.micro_batches = 1 leaves nothing to do")],
)
def test_a_wrong_option_is_told_once(tmp_path: Path, option: str, told: str) -> None:
    write_corpus(tmp_path)
    ended = torchrun(*RECIPE, option, cwd=tmp_path)
    assert ended.code != 0 and ended.err.count("mallang: ") == ended.err.count(told) == 1, ended.err


# Without other processes


@pytest.fixture(
    params=["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]
)
def alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world of one process that talks to itself: by gloo, and by NCCL where there is a GPU."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    for name, value in (("MASTER_ADDR", "localhost"), ("MASTER_PORT", str(port)), ("RANK", "0"), ("WORLD_SIZE", "1")):
        monkeypatch.setenv(name, value)
    device = torch.device(request.param, 0) if request.param == "cuda" else torch.device("cpu")
    monkeypatch.setattr(distributed, "BUCKET", 10)
    yield connect(device, even_alone=True)
    disconnect()
    assert not dist.is_initialized()


def test_what_a_world_adds_up(alone: World) -> None:
    device = torch.device("cuda", 0) if "nccl" in dist.get_backend_config() else torch.device("cpu")
    for world in (alone, alone.hurried()):
        assert (world.rank, world.size, world.is_first) == (0, 1, True)
        world.barrier()
        assert world.sum_numbers([3, 1 << 40]) == [3, 1 << 40]
        assert world.share({"말": [1, None, 2.5]}) == {"말": [1, None, 2.5]}
        tensor = torch.arange(3.0, dtype=torch.float64, device=device)
        world.sum_tensor(tensor)
        assert tensor.tolist() == [0, 1, 2]
        parameters = [nn.Parameter(torch.zeros(size, device=device)) for size in ((4, 2), (3,), (25,), (), (2, 2))]
        for place, parameter in enumerate(parameters[:4]):
            parameter.grad = torch.full_like(parameter, place + 1.0)
        kept = [parameter.grad for parameter in parameters[:4]]
        world.sum_gradients(parameters)
        assert [parameter.grad for parameter in parameters[:4]] == kept  # the same tensors, as recorded graphs need
        assert [float(p.grad.mean()) for p in parameters if p.grad is not None] == [1, 2, 3, 4, 0]


def test_restarts_need_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it torchrun's restarts fail now and then, or wait for ever: better to say so at the start."""
    for name, value in (
        ("WORLD_SIZE", "2"),
        ("TORCHELASTIC_MAX_RESTARTS", "3"),
        ("TORCHELASTIC_USE_AGENT_STORE", "True"),
    ):
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError) as caught:
        connect(torch.device("cpu"))
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 torchrun" in str(caught.value.todo)


def test_a_world_of_one_needs_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    world = connect(torch.device("cpu"))
    assert not dist.is_initialized()
    assert world.hurried() is world
    assert world.share([1]) == [1] and world.sum_numbers([2]) == [2]


@given(st.lists(st.integers(0, 30), max_size=12))
def test_buckets_hold_every_gradient_once_in_order(sizes: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distributed, "BUCKET", 20)
        gradients = [torch.zeros(size, dtype=torch.float16 if size == 7 else torch.float32) for size in sizes]
        made = list(buckets(gradients))
    assert [id(each) for each in itertools.chain(*made)] == [id(each) for each in gradients]
    for bucket in made:
        assert len({gradient.dtype for gradient in bucket}) == 1
        assert len(bucket) == 1 or sum(gradient.numel() for gradient in bucket) <= 20


def test_a_lost_process_is_told_in_plain_words() -> None:
    gloo = "[/x/pair.cc:537] Read error [10.0.0.2]:11455: Connection reset by peer. This is typically caused by\na bug"
    with pytest.raises(UserError) as caught, naming_lost_process():
        raise RuntimeError(gloo)
    said = "another process of this training is lost: Read error [10.0.0.2]:11455: Connection reset by peer"
    assert caught.value.what == said
    assert "last checkpoint" in str(caught.value.todo)


def test_each_process_takes_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert own_device("cpu") == torch.device("cpu")
    with pytest.raises(UserError, match="one GPU for 2 processes"):
        own_device("cuda:0")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UserError, match="2 processes were started on a machine with 1 GPU"):
        own_device("auto")
    monkeypatch.setenv("LOCAL_RANK", "one")
    with pytest.raises(UserError, match="LOCAL_RANK is 'one'"):
        own_device("cpu")
    assert number("NOT_SET_ANYWHERE", 7) == 7


def test_a_process_leaves_when_its_launcher_dies() -> None:
    """The launcher starts a process and dies; the process gets the signal that lets a training run save."""
    child = (
        "import signal, sys, time; from mallang.training.distributed import follow_parent; "
        "signal.signal(signal.SIGTERM, lambda *_: (print('asked', flush=True), sys.exit())); "
        "follow_parent(); print('ready', flush=True); time.sleep(100)"
    )
    launcher = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}]).wait()"
    process = subprocess.Popen([sys.executable, "-c", launcher], stdout=subprocess.PIPE, text=True, env={**os.environ})
    assert process.stdout is not None
    with process.stdout as said:
        assert said.readline() == "ready\n"
        process.kill()
        assert said.readline() == "asked\n"
        assert said.readline() == ""  # it has gone
    process.wait()


# What several machines see of one folder


def test_a_lock_is_waited_for(tmp_path: Path) -> None:
    holder = (
        "import sys, time; from pathlib import Path; from mallang.runs.beginning import locked\n"
        f"with locked(Path({str(tmp_path)!r})):\n    print('locked', flush=True); sys.stdin.readline()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ}
    )
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    with pytest.raises(UserError, match="another process is training"), locked(tmp_path):
        pass
    release = threading.Timer(0.5, lambda: process.communicate("\n"))
    release.start()
    began = time.monotonic()
    with locked(tmp_path, patience=60.0):
        assert time.monotonic() - began > 0.2
    release.join()


def test_what_another_machine_wrote_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = {"status": "training", "task": "translation", "data": {"train": "x"}}
    late = threading.Timer(0.3, lambda: Run(tmp_path, {}).update(**info))
    late.start()
    assert await_run(tmp_path, info).info == info
    made = Checkpoint(7, {"a": 1}, {"model": {"w": torch.ones(2)}, "optimizer": {}})
    late = threading.Timer(0.3, lambda: checkpoints.write(tmp_path / "checkpoints", made))
    late.start()
    assert checkpoints.await_step(tmp_path / "checkpoints", 7).state == {"a": 1}
    monkeypatch.setattr(beginning, "PATIENCE", 0.0)
    monkeypatch.setattr(checkpoints, "PATIENCE", 0.0)
    with pytest.raises(UserError, match="as the first one wrote it"):
        await_run(tmp_path, {**info, "data": {"train": "y"}})
    with pytest.raises(UserError, match="cannot read it: manifest.json is missing"):
        checkpoints.await_step(tmp_path / "checkpoints", 8)


# Which micro-batches make a step


def plan_source(batches: int) -> Source:
    """Epochs of so many batches, named by their epoch and place."""
    return Source(
        examples=lambda epoch: [],
        plan=lambda epoch: [[(epoch, place)] for place in range(batches)],
        prepare=lambda rows, random: None,  # type: ignore[arg-type, return-value]
        seed=1,
    )


@given(st.integers(1, 9), st.integers(1, 4), st.integers(0, 5), st.integers(1, 4))
def test_any_number_of_processes_reads_the_same_steps(batches: int, first: int, extra: int, then: int) -> None:
    """A step is the same micro-batches however many processes share it, also when their number changes on the way."""
    step = max(first, then) + extra
    alone = [
        order
        for order, _ in itertools.islice(requests(plan_source(batches), Position(), steps=lambda _: step), 6 * step)
    ]
    read: list[BatchRequest] = []
    position = Position()
    for processes in (first, then):
        streams = [
            requests(plan_source(batches), position, rank=rank, processes=processes, steps=lambda _: step)
            for rank in range(processes)
        ]
        for _ in range(3):
            dealt = [
                list(itertools.islice(stream, len(range(rank, step, processes)))) for rank, stream in enumerate(streams)
            ]
            after = {position for mine in dealt for _, position in mine}
            assert len(after) == 1  # all may continue from the same place
            (position,) = after
            read += [dealt[turn % processes][turn // processes][0] for turn in range(step)]
    assert read == alone
    assert position.number == 6 * step


def test_too_many_ways_to_say_how_many_micro_batches() -> None:
    with pytest.raises(ValueError, match="micro_batches and gradient_accumulation"):
        Config(micro_batches=4, gradient_accumulation=2)
    with pytest.raises(ValueError, match="micro_batches must be at least 1"):
        Config(micro_batches=0)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"first_micro_batches": 2}, "must be larger, not None"),
        ({"first_micro_batches": 4, "micro_batches": 4, "steps": 9}, "must be larger, not 4"),
        ({"first_micro_batches": 1, "micro_batches": 4, "epochs": 2}, "first_micro_batches needs steps"),
        ({"first_micro_batches": 0, "micro_batches": 4, "steps": 9}, "first_micro_batches must be at least 1"),
        ({"first_micro_batches": 1, "micro_batches": 4, "steps": 9, "batch_growth": 0.0}, "above 0"),
        ({"batch_growth": 0.3}, "no effect without first_micro_batches"),
    ],
)
def test_micro_batches_that_cannot_grow(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Config(**given)


class StopAt(Stop):
    """Asks to stop before the given step."""

    def __init__(self, loop: Loop, step: int) -> None:
        self.loop, self.last = loop, step

    @property
    def asked(self) -> bool:  # type: ignore[override]
        return self.loop.step >= self.last


@pytest.mark.parametrize("sizes", [(2, 1), (1, 3), (3, 2)])
def test_epochs_are_what_is_read_though_the_number_of_processes_changes(tmp_path: Path, sizes: tuple[int, int]) -> None:
    """Processes that only count on each other: the first of each world is enough to see what is read."""
    before, after = sizes
    begun = make(tmp_path, steps=None, epochs=4, validate_every=1000)
    begun.world = World(0, before)
    assert begun.total == math.ceil(4 * begun.batches / before)
    assert not begun.run(StopAt(begun, 5))
    resumed = make(tmp_path, steps=None, epochs=4, validate_every=1000)
    resumed.world = World(0, after)
    assert resumed.run(Stop())
    assert resumed.total == resumed.step == 5 + math.ceil((4 * begun.batches - 5 * before) / after)
    assert 0 <= resumed.progress.position.number - 4 * begun.batches < after


def test_processes_without_work_are_refused(tmp_path: Path) -> None:
    loop = make(tmp_path, micro_batches=2)
    loop.world = World(2, 3)
    with pytest.raises(UserError, match="nothing to do for some of 3 processes"):
        loop.run(Stop())
