"""Refuses work that cannot fit into memory, by a lower bound of what it needs.

A GPU raises an error when its memory is full. On a CPU the system overcommits memory and kills the process without a
message when it is used: so the sizes that decide, those of weights and beams, are computed beforehand.
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
"""Where Linux exposes the memory limit of a container."""
SMALL = 1 << 30
"""Bytes that every machine has: requests below this are not checked."""


def available() -> int | None:
    """The bytes of available main memory, within the limit of a container; None if unknown."""
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
    """The page cache of a container, in bytes: counted as used memory, but reclaimed when needed."""
    try:
        lines = [line.split() for line in (CGROUP / "memory.stat").read_text("utf-8").splitlines()]
        return sum(int(line[1]) for line in lines if line and line[0] in ("active_file", "inactive_file"))
    except (OSError, ValueError, IndexError):
        return 0


def check_room(needed: int, device: torch.device, what: str, todo: str) -> None:
    """Refuse work that needs more bytes than are available; a GPU raises its own error."""
    if needed < SMALL or device.type != "cpu":
        return
    free = available()
    if free is not None and needed > free:
        has = f"and this machine has {free / GIGABYTE:,.1f} GB free"
        raise UserError(f"{what} needs at least {needed / GIGABYTE:,.1f} GB of memory, {has}", todo=todo)


def check_weights(build: Callable[[], nn.Module], sizes: Iterable[Any], copies: int, device: torch.device) -> None:
    """Refuse a model whose weights, times `copies`, cannot fit; `build` is called on the meta device.

    A matrix has two of the model's `sizes`: where an upper bound from the largest two is small, nothing is built.
    """
    largest = sorted((size for size in sizes if isinstance(size, int)), reverse=True)
    if math.prod(largest[:2]) * (1 + sum(largest[2:])) * 4 * copies < SMALL:
        return  # the first tensor on the meta device loads much of torch, which takes a second
    try:
        with torch.device("meta"):
            count = sum(parameter.numel() for parameter in build().parameters())
    except (
        NotImplementedError,
        RuntimeError,
        TypeError,
    ):  # its constructor reads tensor values, which the meta device does not have
        return
    check_room(
        4 * copies * count,
        device,
        f"training {count:,} parameters (with their gradients and the optimizer's state)",
        "a smaller model: model.size, model.dim, model.layers or text.vocabulary",
    )
