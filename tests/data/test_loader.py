"""No number of workers or processes changes what is read, and reading goes on anywhere."""

import itertools
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch

from mallang.data import loader
from mallang.data.batch import Batch, lengths_to_mask, pad_rows
from mallang.data.loader import Position, Source, load
from mallang.data.sampler import Buckets

LENGTHS = np.random.default_rng(0).integers(1, 9, size=(57, 1)).astype(np.int32)


def prepare(rows, random):
    noise = int(random.integers(100))
    tokens, lengths = pad_rows([example + noise for (example,) in rows])
    return Batch(tokens=tokens, lengths=lengths)


SOURCE = Source(
    examples=lambda epoch: [np.full(int(n), i + 1000 * epoch) for i, (n,) in enumerate(LENGTHS)],
    plan=lambda epoch: Buckets(LENGTHS, tokens=16, seed=5, epoch=epoch),
    prepare=prepare,
    seed=5,
)


def read(start=None, count=40, **options):
    return list(itertools.islice(load(SOURCE, start or Position(), **options), count))


def test_workers_change_nothing():
    alone, helped = read(), read(workers=2)
    assert all(torch.equal(a.tokens, b.tokens) and p == q for (a, p), (b, q) in zip(alone, helped, strict=True))


SPAWNING = """
import multiprocessing
from data.test_loader import *
multiprocessing.set_start_method("spawn")
alone, helped = read(count=4), read(count=4, workers=1)
assert all(torch.equal(a.tokens, b.tokens) for (a, _), (b, _) in zip(alone, helped))
"""


def test_workers_need_nothing_pickled_whatever_the_usual_start_method():
    """Python 3.14 no longer forks by itself."""
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    program = f"if __name__ == '__main__':\n{textwrap.indent(SPAWNING, '    ')}"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, timeout=60, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()


def test_where_nothing_is_forked_the_batches_are_the_same(monkeypatch):
    alone = read(count=4)
    monkeypatch.setattr(loader, "can_fork", lambda: False)
    monkeypatch.setattr(loader, "leave_signals", lambda worker: pytest.fail("a worker was started"))
    assert all(torch.equal(a.tokens, b.tokens) for (a, _), (b, _) in zip(alone, read(count=4, workers=2), strict=True))


@pytest.mark.parametrize("place", [1, 13, 27, 39])
def test_reading_goes_on_from_any_position(place):
    whole = read()
    rest = read(whole[place - 1][1], 40 - place)
    assert all(torch.equal(a.tokens, b.tokens) for (a, _), (b, _) in zip(whole[place:], rest, strict=True))


@pytest.mark.parametrize("processes", [2, 3])
def test_processes_share_the_same_batches(processes):
    whole = read(count=30)
    parts = [read(count=30 // processes, rank=rank, processes=processes) for rank in range(processes)]
    for number, (batch, _) in enumerate(whole):
        mine, after = parts[number % processes][number // processes]
        assert torch.equal(batch.tokens, mine.tokens)
        assert after == whole[number - number % processes + processes - 1][1], "all go on after the whole round"


def test_epochs_follow_each_other():
    length = len(SOURCE.plan(0))
    numbers = [after.number for _, after in read(count=2 * length)]
    assert numbers == list(range(1, 2 * length + 1))
    assert read(count=length)[-1][1] == Position(length, 1, 0)


def test_masks_show_what_is_real():
    for rows in ([], [[]], [[], []]):
        assert tuple(pad_rows(rows)[0].shape) == (len(rows), 0)
    rectangle, lengths = pad_rows([[7, 7], [], [7]])
    assert rectangle.tolist() == [[7, 7], [0, 0], [7, 0]]
    assert lengths_to_mask(lengths, 2).tolist() == [[True, True], [False, False], [True, False]]


ABANDONED = "from data.test_loader import *; batches = load(SOURCE, Position(), workers=1); next(batches)"


def test_a_program_that_leaves_does_not_wait_for_workers():
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    done = subprocess.run([sys.executable, "-c", ABANDONED], env={**os.environ, "PYTHONPATH": path}, timeout=60)
    assert done.returncode == 0
