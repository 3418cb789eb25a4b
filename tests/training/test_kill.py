"""A training that was killed, at any moment and in any way, and started again ends as if nothing had happened."""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from commands.running import TINY, Ended, Job, mallang, metrics, start, wait_until, write_corpus

RECIPE = (
    "train", "transformer", *TINY, "model.dropout=0.2", "train.steps=24", "train.save_every=3", "train.log_every=4",
    "train.validate_every=8", "train.batch_tokens=128",
)  # fmt: skip
RUN = Path("runs", "transformer")


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the run was trained without any interruption, its batches made in between."""
    home = tmp_path_factory.mktemp("untouched")
    write_corpus(home)
    ended = mallang(*RECIPE, "train.workers=0", cwd=home)
    assert ended.code == 0, ended.err
    assert {entry["kind"] for entry in metrics(home / RUN)} == {"train", "valid"}
    return home


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with the same corpus and nothing else."""
    write_corpus(tmp_path)
    return tmp_path


def assert_same(home: Path, untouched: Path) -> None:
    """Weights bit by bit, every measurement, and what is remembered of the data."""
    assert (home / RUN / "model.safetensors").read_bytes() == (untouched / RUN / "model.safetensors").read_bytes()
    assert metrics(home / RUN) == metrics(untouched / RUN)
    here, there = (json.loads((folder / RUN / "run.json").read_text("utf-8")) for folder in (home, untouched))
    apart = {"seconds": 0, "trained_in": None}
    assert {**here, **apart} == {**there, **apart}


def newest_step(home: Path) -> int:
    """The step of the newest checkpoint."""
    return max((int(path.name[5:]) for path in (home / RUN / "checkpoints").glob("step-*")), default=0)


def finish(home: Path, workers: int) -> Ended:
    """Give the same command until its end."""
    ended = mallang(*RECIPE, f"train.workers={workers}", cwd=home)
    assert ended.code == 0, ended.err
    return ended


def nobody_left(job: Job) -> None:
    """Loader workers notice within seconds that their trainer has gone."""
    wait_until(lambda: not job.group(), seconds=20)


# SIGKILL: no time to save


@pytest.mark.parametrize("workers", [0, 2])
def test_two_kills(home: Path, untouched: Path, workers: int) -> None:
    for step in (1, 9):
        job = start(*RECIPE, f"train.workers={workers}", cwd=home)
        job.until(lambda step=step: newest_step(home) >= step)
        job.send(signal.SIGKILL)
        assert job.wait().code == -signal.SIGKILL
        assert not (home / RUN / "model.safetensors").exists()
    assert "resuming from step" in finish(home, workers).err
    nobody_left(job)
    assert_same(home, untouched)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_ten_kills_at_random_moments(home: Path, workers: int) -> None:
    """New Pythons, killed three times while they start and seven times while they train and save."""
    command = (*RECIPE, f"train.workers={workers}", "train.steps=150")
    untouched = home / "untouched"
    untouched.mkdir()
    write_corpus(untouched)
    began = time.monotonic()
    trial = start(*command, cwd=untouched, cold=True)
    trial.until(lambda: newest_step(untouched))
    starting = time.monotonic() - began
    assert trial.wait().code == 0
    training = time.monotonic() - began - starting
    seed = random.randrange(10**6)
    draw = random.Random(seed)
    reached = []
    for number in range(10):
        job = start(*command, cwd=home, cold=True)
        if number < 3:
            time.sleep(draw.uniform(0, starting))
        else:
            job.until(lambda job=job, number=number: newest_step(home) and (number == 3 or "resuming from" in job.err))
            time.sleep(draw.uniform(0, 1.5 * training / 7))
        job.send(signal.SIGKILL)
        assert job.wait().code in (-signal.SIGKILL, 0), job.err
        reached.append(newest_step(home))
        if (home / RUN / "model.safetensors").exists():
            break
    print(f"seed {seed}, {starting:.1f} s to start, {training:.1f} s to train; steps reached: {reached}")
    assert len(set(reached)) > 3  # it was killed in the midst of training
    ended = mallang(*command, cwd=home)
    assert ended.code == 0 or "is finished" in ended.err, ended.err
    nobody_left(job)
    assert_same(home, untouched)


def test_a_kill_in_the_first_moments(home: Path, untouched: Path) -> None:
    """What a kill leaves behind before there is a run.json is taken up again, however much of it was written."""
    recipe = (untouched / RUN / "recipe.toml").read_bytes()
    for content in (b"", recipe[:300], recipe):
        shutil.rmtree(home / RUN, ignore_errors=True)
        (home / RUN).mkdir(parents=True)
        (home / RUN / "recipe.toml").write_bytes(content)
        (home / RUN / ".draft-run.json").write_text('{"format"')
        (home / RUN / ".lock").touch()
        job = start(*RECIPE, "train.workers=0", cwd=home)
        job.until(lambda: (home / RUN / "tokenizer.json").exists())
        job.send(signal.SIGKILL)
        job.wait()
    finish(home, 0)
    assert_same(home, untouched)


# SIGINT and SIGTERM: save and leave


@pytest.mark.parametrize("to_group", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves(home: Path, untouched: Path, number: signal.Signals, to_group: bool) -> None:
    workers = 2 if to_group else 0
    job = start(*RECIPE, f"train.workers={workers}", cwd=home)
    job.until(lambda: newest_step(home) >= 6)
    job.send(number, to_group=to_group)
    ended = job.wait()
    assert ended.code == 128 + number, ended.err
    assert "Traceback" not in ended.err
    step = newest_step(home)
    assert f"stopped and saved at step {step}; the same command resumes" in ended.err
    nobody_left(job)
    assert f"resuming from step {step}" in finish(home, workers).err
    assert_same(home, untouched)


def test_a_signal_before_the_first_step(home: Path, untouched: Path) -> None:
    """Ctrl-C while the data is made ready leaves nothing half-done in the way."""
    job = start(*RECIPE, "train.workers=0", cwd=home)
    job.until(lambda: (home / RUN / "recipe.toml").exists())
    job.send(signal.SIGINT)
    ended = job.wait()
    assert ended.code == 130
    assert "Traceback" not in ended.err
    finish(home, 0)
    assert_same(home, untouched)


# Damaged checkpoints


@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing"])
def test_a_damaged_checkpoint(home: Path, untouched: Path, damage: str) -> None:
    job = start(*RECIPE, "train.workers=0", cwd=home)
    job.until(lambda: newest_step(home) >= 6)
    job.send(signal.SIGINT)
    job.wait()
    before, last = sorted((home / RUN / "checkpoints").glob("step-*"))[-2:]
    spoil(
        last / {"truncated": "model.safetensors", "flipped": "optimizer.safetensors"}.get(damage, "state.json"), damage
    )
    ended = finish(home, 0)
    assert f"the checkpoint {last.name} is damaged" in ended.err
    assert f"resuming from step {int(before.name[5:])}" in ended.err
    assert_same(home, untouched)


def test_all_checkpoints_damaged(home: Path, untouched: Path) -> None:
    job = start(*RECIPE, "train.workers=0", cwd=home)
    job.until(lambda: newest_step(home) >= 6)
    job.send(signal.SIGKILL)
    job.wait()
    for path in (home / RUN / "checkpoints").glob("step-*"):
        spoil(path / "manifest.json", "truncated")
    assert finish(home, 0).err.count("is damaged") >= 2
    assert_same(home, untouched)


def spoil(path: Path, damage: str) -> None:
    """Damage a file."""
    content = path.read_bytes()
    middle = len(content) // 2
    if damage == "missing":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(content[:middle])
    else:
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
