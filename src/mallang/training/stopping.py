"""Ctrl-C and `kill` (SIGINT, SIGTERM) make a training run save and exit; a second Ctrl-C stops it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class Stop:
    """Whether a stop was requested, and by which signal."""

    asked: bool = False
    signal: int = 0


@contextmanager
def listening() -> Iterator[Stop]:
    """While the block runs, SIGINT and SIGTERM set a flag that the loop reads between two steps."""
    stop = Stop()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.asked, stop.signal = True, number

    if threading.current_thread() is not threading.main_thread():
        yield stop  # Python delivers signals to the main thread only
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
