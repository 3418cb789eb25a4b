"""Batches side by side: the same work, and everything as it was afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from mallang.decoding.contract import Config
from mallang.decoding.workers import MOST, spread, workers


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_work_comes_back_in_order_from_single_threads() -> None:
    meeting = threading.Barrier(2, timeout=60)

    def work(piece: int) -> tuple[int, int, bool]:
        meeting.wait()  # both must be there at once
        return piece, torch.get_num_threads(), torch.is_grad_enabled()

    found = spread(nn.Linear(1, 1), work, list(range(6)), 2)
    assert [each[:2] for each in found] == [(place, 1) for place in range(6)]
    assert torch.get_num_threads() == 2


def test_the_mode_is_that_of_use_until_the_last_is_done() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Dropout())
    model[1].eval()
    seen = spread(model, lambda _: [part.training for part in model.modules()], list(range(8)), 2)
    assert seen == [[False] * 3] * 8
    assert [part.training for part in model.modules()] == [True, True, False]


def test_a_mistake_comes_out_and_leaves_all_as_it_was() -> None:
    model = nn.Dropout()

    def work(piece: int) -> int:
        if piece == 3:
            raise ValueError("three")
        return piece

    with pytest.raises(ValueError, match="three"):
        spread(model, work, list(range(6)), 2)
    assert torch.get_num_threads() == 2
    assert model.training


def test_one_piece_keeps_all_threads() -> None:
    assert spread(nn.Linear(1, 1), lambda _: torch.get_num_threads(), [0], 2) == [2]
    assert spread(nn.Linear(1, 1), lambda _: torch.get_num_threads(), [], 2) == []


def test_how_many() -> None:
    cpu = torch.device("cpu")
    assert workers(Config(), cpu) == 2
    assert workers(Config(), torch.device("cuda")) == 1
    assert workers(Config(coverage=0.2), cpu) == 1
    torch.set_num_threads(2 * MOST)
    assert workers(Config(), cpu) == MOST
