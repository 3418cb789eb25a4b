"""A server whose models can be told to be slow, to hang or to end: what tests of faults need, and no user.

    python -m serving.slow '{"seconds": 2}' RUN...

A text `sleep 0.5` takes so many seconds, `hang` takes for ever, and `die` ends the worker. `generate` takes STEP
seconds per step.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from mallang.serving import pool, worker
from mallang.serving.guard import Limits
from mallang.serving.server import ServerOptions, serve

STEP = "MALLANG_TEST_STEP"


def work(*given: Any) -> None:
    """A worker with these models."""
    from mallang.serving import calls, steps

    call, step = calls.call, steps.Steps.step

    def slow_call(verbs: Any, verb: str, items: Any, options: Any) -> Any:
        for item in items:
            obey(item)
        return call(verbs, verb, items, options)

    def slow_step(self: Any) -> Any:
        time.sleep(float(os.environ.get(STEP, "0")))
        return step(self)

    calls.call, steps.Steps.step = slow_call, slow_step  # type: ignore[assignment, method-assign]
    worker.work(*given)


def obey(item: Any) -> None:
    if isinstance(item, str) and item.startswith("sleep "):
        time.sleep(float(item.split()[1]))
    elif item == "hang":
        time.sleep(1000)
    elif item == "die":
        os._exit(9)


if __name__ == "__main__":
    from serving import slow

    pool.work = slow.work  # by this name a worker can import it
    limits, *runs = sys.argv[1:]
    say = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
    workers = int(os.environ.get("MALLANG_TEST_WORKERS", "1"))
    options = ServerOptions([Path(run) for run in runs], port=0, workers=workers, device="cpu", say=say)
    from dataclasses import replace

    serve(
        replace(
            options, limits=Limits(**json.loads(limits)), batching=os.environ.get("MALLANG_TEST_BATCHING", "joining")
        )
    )  # type: ignore[arg-type]
