"""Several batches at once on a CPU, one worker each.

A step of a small model is hundreds of short operations. Shared among the cores each of them waits for its slowest
part; given to one core alone they run through. So batches go side by side instead: the cores meet only at the end.

A worker is a copy of this process, which takes no time to make and shares its memory: threads would take turns at
Python, some thousand times a second. Where a process must not be copied, workers are threads all the same.
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import torch

from mallang.decoding.contract import Config, inference
from mallang.layers.pages import keep_pages

Work = TypeVar("Work")
Found = TypeVar("Found")
MOST = 32
"""Workers; each has memory of its own for its batch."""
MOST_THREADS = 8
"""Workers that are threads: more would wait for Python more than they compute. Further cores are shared among them."""


def workers(config: Config, device: torch.device) -> int:
    """How many batches may be searched at once.

    One where the search makes a copy of the model or records its attention: others would see that.
    """
    if device.type != "cpu" or config.coverage or config.precision == "bf16":
        return 1
    return min(MOST, torch.get_num_threads())


def cut(lengths: Sequence[int], tokens: int, parts: int) -> list[list[int]]:
    """Which texts are searched together: those of like length, the longest first.

    A group has at most so many padded tokens, or one text; where there are enough texts there are at least so many
    groups.
    """
    order = sorted(range(len(lengths)), key=lambda place: (lengths[place], place))
    most = -(-len(order) // parts)
    groups = []
    while order:
        size = max(1, min(most, tokens // lengths[order[-1]]))
        groups.append(order[-size:])
        order = order[:-size]
    return groups


def spread(model: object, work: Callable[[Work], Found], pieces: Sequence[Work], count: int) -> list[Found]:
    """What the work makes of each piece, in order, with `count` workers if there are as many pieces."""
    keep_pages()
    count = min(count, len(pieces))
    if count <= 1:
        return [work(piece) for piece in pieces]
    threads = torch.get_num_threads()
    # The mode of the model is set here, once: a thread would give it back while others still need it.
    with inference(model):
        try:
            return (by_copies if can_copy() else by_threads)(work, pieces, count)
        finally:
            torch.set_num_threads(threads)  # what a worker says holds for all who come after it


def can_copy() -> bool:
    """Whether a copy of this process would work: another thread's locks, or a GPU, would be lost in it."""
    alone = threading.active_count() == 1 and not multiprocessing.current_process().daemon
    return sys.platform == "linux" and alone and not torch.cuda.is_initialized()  # type: ignore[no-untyped-call]


def by_threads(work: Callable[[Work], Found], pieces: Sequence[Work], count: int) -> list[Found]:
    """With threads."""
    count = min(count, MOST_THREADS)
    share = torch.get_num_threads() // count
    with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(share,)) as pool:
        return list(pool.map(work, pieces))


def by_copies(work: Callable[[Work], Found], pieces: Sequence[Work], count: int) -> list[Found]:
    """With copies of this process, which works as well; whoever is free takes the next piece."""
    fork = multiprocessing.get_context("fork")
    following = fork.Value("l", 0)
    torch.set_num_threads(1)  # the threads of a pool are not copied: who waits for them waits for ever

    def do_a_share() -> dict[int, Found]:
        found: dict[int, Found] = {}
        while True:
            with following.get_lock():
                place, following.value = following.value, following.value + 1
            if place >= len(pieces):
                return found
            found[place] = work(pieces[place])

    def send_a_share(connection: Connection) -> None:
        try:
            connection.send(do_a_share())
        except Exception as error:
            connection.send(error)
        except KeyboardInterrupt:
            pass  # the first process has heard it too, and says so

    children: list[tuple[Any, Connection]] = []
    try:
        for _ in range(count - 1):
            receiver, sender = fork.Pipe(duplex=False)
            child = fork.Process(target=send_a_share, args=(sender,), daemon=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of copying threads: those of torch stand idle
                child.start()
            sender.close()
            children.append((child, receiver))
        found = do_a_share()
        for child, receiver in children:
            found |= received(child, receiver)
    finally:
        for child, receiver in children:
            receiver.close()
            child.terminate()
            child.join()
    return [found[place] for place in range(len(pieces))]


def received(child: Any, receiver: Connection) -> Any:
    """What a copy has found; its mistakes are raised here."""
    try:
        found = receiver.recv()
    except EOFError:
        child.join()
        reason = "no memory was left" if child.exitcode == -9 else f"it ended with {child.exitcode}"
        raise MemoryError(f"a process that searched was stopped: {reason}") from None
    if isinstance(found, Exception):
        raise found
    return found
