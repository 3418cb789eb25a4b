"""What cannot fit is refused before it is tried, by the memory that there is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from mallang.errors import UserError
from mallang.kernels import memory

CPU = torch.device("cpu")


def test_there_is_some_memory() -> None:
    free = memory.available()
    assert free is None or 1 << 26 < free < 1 << 50


def test_the_page_cache_of_a_container_can_be_had(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    whole = memory.available()
    assert whole is not None
    (tmp_path / "memory.max").write_text("50000000\n")
    (tmp_path / "memory.current").write_text("40000000\n")
    assert memory.available() == 10_000_000
    (tmp_path / "memory.stat").write_text("anon 9000000\nfile 31000000\ninactive_file 20000000\nactive_file 5000000\n")
    assert memory.available() == 35_000_000
    (tmp_path / "memory.stat").write_text("inactive_file 41000000\n")  # read a moment later
    assert memory.available() == 50_000_000
    (tmp_path / "memory.stat").write_text("inactive_file\n")
    assert memory.available() == 10_000_000
    (tmp_path / "memory.current").write_text("60000000\n")
    assert memory.available() == 0
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available() > 50_000_000  # type: ignore[operator]


def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: 10**9)
    memory.check_room(10**9, CPU, "this", "less")
    with pytest.raises(UserError, match=r"this needs at least 1\.5 GB of memory, and this machine has 1\.0 GB") as said:
        memory.check_room(1_500_000_000, CPU, "this", "less")
    assert said.value.todo == "less"
    memory.check_room(10**18, torch.device("cuda"), "a GPU says so itself", "")
    monkeypatch.setattr(memory, "available", lambda: None)
    memory.check_room(10**18, CPU, "nobody knows how much there is", "")


def test_weights_are_counted_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: 10**9)
    memory.check_weights(lambda: nn.Linear(1000, 1000), (1000, 1000), 4, CPU)
    with pytest.raises(UserError, match="training 10,000,001,000,000 parameters"):
        memory.check_weights(lambda: nn.Linear(10**7, 10**6), (10**7, 10**6), 4, CPU)
    memory.check_weights(lambda: nn.Linear(11_000, 11_000), (11_000, 11_000, 9), 2, CPU)
    with pytest.raises(UserError, match=r"1\.9 GB"):
        memory.check_weights(lambda: nn.Linear(11_000, 11_000), (11_000, 11_000, 9), 4, CPU)


def test_a_small_model_is_not_even_counted() -> None:
    memory.check_weights(lambda: pytest.fail("nothing needs to be built"), (512, 64, 4, None, "all", 0.1), 4, CPU)


def test_a_model_that_looks_at_its_numbers_is_left_alone() -> None:
    def build() -> nn.Module:
        made = nn.Linear(2, 2)
        assert made.weight.sum().item() is not None
        return made

    memory.check_weights(build, (10**6, 10**6), 4, CPU)
