"""What cannot fit into the memory of this machine is refused before any work, by how much it needs at the least.

A GPU says itself that its memory is full. On a CPU the system promises more memory than there is, and ends the process
without a word when it is used: so the few numbers that decide, weights and beams, are multiplied beforehand.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mallang.errors import UserError

GIGABYTE = 1e9
CGROUP = Path("/sys/fs/cgroup")
"""Where the system tells a container what it is given."""
SMALL = 1 << 30
"""Bytes that every machine has: the system is not asked about them."""


def available() -> int | None:
    """The bytes of main memory that are still to be had, less where a container is given less; None if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text("utf-8").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        try:
            free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (AttributeError, ValueError, OSError):
            return None
    try:
        most, used = (int((CGROUP / name).read_text("utf-8")) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):  # no container, or one without a limit
        return free
    return min(free, max(0, most - max(0, used - page_cache())))


def page_cache() -> int:
    """The bytes of a container's memory that hold copies of files: counted as used, and given up when needed."""
    try:
        lines = [line.split() for line in (CGROUP / "memory.stat").read_text("utf-8").splitlines()]
        return sum(int(line[1]) for line in lines if line and line[0] in ("active_file", "inactive_file"))
    except (OSError, ValueError, IndexError):
        return 0


def check_room(needed: int, device: torch.device, what: str, todo: str) -> None:
    """Refuse what needs more bytes than there are; on a GPU its own memory says so."""
    if needed < SMALL or device.type != "cpu":
        return
    free = available()
    if free is not None and needed > free:
        has = f"and this machine has {free / GIGABYTE:,.1f} GB free"
        raise UserError(f"{what} needs at least {needed / GIGABYTE:,.1f} GB of memory, {has}", todo=todo)


def check_weights(build: Callable[[], nn.Module], sizes: Iterable[Any], copies: int, device: torch.device) -> None:
    """Refuse a model whose weights, with so many copies of their size, cannot fit; `build` is called without memory.

    A matrix has two of the model's `sizes`: where the largest two, times all others, are little, nothing is built.
    """
    largest = sorted((size for size in sizes if isinstance(size, int)), reverse=True)
    if math.prod(largest[:2]) * (1 + sum(largest[2:])) * 4 * copies < SMALL:
        return  # the first tensor without memory loads much of torch, which takes a second
    try:
        with torch.device("meta"):
            count = sum(parameter.numel() for parameter in build().parameters())
    except (
        NotImplementedError,
        RuntimeError,
        TypeError,
    ):  # it looks at its numbers while it is built: build it at once
        return
    check_room(
        4 * copies * count,
        device,
        f"training {count:,} parameters (their gradients and the optimizer's state counted)",
        "a smaller model: model.size, model.dim, model.layers or text.vocabulary",
    )
