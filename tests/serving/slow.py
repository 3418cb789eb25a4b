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


def main(limits: str, *runs: str) -> None:
    """Serve with these limits."""
    pool.work = work
    options = ServerOptions(
        [Path(run) for run in runs], port=0, workers=1, device="cpu", limits=Limits(**json.loads(limits)),
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )  # fmt: skip
    serve(options)


if __name__ == "__main__":
    from serving import slow

    slow.main(*sys.argv[1:])  # not that of __main__, whose functions a worker cannot import
