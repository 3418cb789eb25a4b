"""Decodes several batches in parallel on a CPU, one worker thread per batch.

A step of a small model is hundreds of short operations. If the cores share every operation, each one waits for the
slowest core; so every core decodes a batch of its own, and they synchronize only at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from mallang.decoding.contract import Config, inference
from mallang.kernels.allocator import keep_pages

Work = TypeVar("Work")
Found = TypeVar("Found")
MOST = 8
"""The maximum number of workers; more would wait for Python's lock. They share the remaining cores."""


def workers(config: Config, device: torch.device) -> int:
    """The number of batches that may be searched in parallel.

    One where the search copies the model or records its attention, which other workers would see.
    """
    if device.type != "cpu" or config.coverage or config.precision == "bf16":
        return 1
    return min(MOST, torch.get_num_threads())


def spread(model: object, work: Callable[[Work], Found], pieces: Sequence[Work], count: int) -> list[Found]:
    """The result of `work` for each piece, in order, computed by at most `count` workers."""
    keep_pages()
    count = min(count, len(pieces))
    if count <= 1:
        return [work(piece) for piece in pieces]
    threads = torch.get_num_threads()
    # The model's mode is set here, once: a worker would restore it while others still need it.
    with inference(model):
        try:
            share = threads // count
            with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(share,)) as pool:
                return list(pool.map(work, pieces))
        finally:
            torch.set_num_threads(threads)  # a worker's setting would apply to all later threads
