"""Decode several batches at once on a CPU, one worker each.

A step of a small model is hundreds of short operations. Shared among the cores each of them waits for its slowest
part; given to one core alone they run through. So batches go side by side instead: the cores meet only at the end.
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
"""Workers; beyond, they would wait for Python more than they compute. More cores are shared out among them."""


def workers(config: Config, device: torch.device) -> int:
    """How many batches may be searched at once.

    One where the search makes a copy of the model or records its attention: others would see that.
    """
    if device.type != "cpu" or config.coverage or config.precision == "bf16":
        return 1
    return min(MOST, torch.get_num_threads())


def spread(model: object, work: Callable[[Work], Found], pieces: Sequence[Work], count: int) -> list[Found]:
    """What the work makes of each piece, in order, with `count` workers if there are as many pieces."""
    keep_pages()
    count = min(count, len(pieces))
    if count <= 1:
        return [work(piece) for piece in pieces]
    threads = torch.get_num_threads()
    # The mode of the model is set here, once: a worker would give it back while others still need it.
    with inference(model):
        try:
            share = threads // count
            with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(share,)) as pool:
                return list(pool.map(work, pieces))
        finally:
            torch.set_num_threads(threads)  # what a worker says holds for all who come after it
