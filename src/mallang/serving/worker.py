"""A worker: a process that has loaded the runs and serves one batch at a time, until its pipe is closed."""

from __future__ import annotations

import logging
import os
import signal
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from mallang.errors import UserError
from mallang.serving.messages import Broken, Call, Cancel, Continue, Done, Failed, Ready, ServedRun
from mallang.serving.places import place_of
from mallang.serving.requests import REQUESTS


@dataclass(frozen=True)
class WorkerOptions:
    """What a worker needs to know."""

    runs: Mapping[str, str]
    """The folder of each run, by name."""
    device: str = "auto"
    int8: bool = False
    threads: int = 1
    plugins: tuple[str, ...] = ()


ROOM = defaultdict(lambda: 32, cuda=256)
"""Items that share a batch by device: beyond that a CPU gains little, and the first of a batch wait for the last."""
FAILED = "the model failed; the log of the server says where"


def work(pipe: Connection, options: WorkerOptions) -> None:
    """Load the runs, then serve what comes through the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which lets its workers finish
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch

    from mallang.kernels.allocator import keep_pages
    from mallang.runs.device import choose_device

    torch.set_num_threads(options.threads)
    keep_pages()
    try:
        models = load_all(options)
        runs = tuple(describe(name, options.runs[name], verbs) for name, verbs in models.items())
        pipe.send(Ready(runs, ROOM[choose_device(options.device).type]))
    except UserError as error:
        pipe.send(Broken(str(error)))
        return
    try:
        serve(pipe, models)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def serve(pipe: Connection, models: Mapping[str, Any]) -> None:
    """Serve batches, one after another."""
    steps: dict[str, Any] = {}
    later: deque[Any] = deque()
    while True:
        message = later.popleft() if later else pipe.recv()
        if isinstance(message, Call):
            pipe.send(list(answers(models[message.run], message)))
        elif isinstance(message, list):
            run = message[0].run
            if run not in steps:
                try:
                    steps[run] = begin_steps(models[run])
                except UserError as error:  # such as a precision that its weights cannot have
                    pipe.send([Failed(each.job, 400, said(error)) for each in message])
                    continue
            try:
                later += generate(pipe, steps[run], message)
            except (EOFError, OSError):
                raise
            except Exception as error:
                report(error)
                pipe.send([Failed(job, 500, FAILED) for job in steps.pop(run).finished])


def begin_steps(verbs: Any) -> Any:
    """What generates step by step; loaded when it is first asked for."""
    from mallang.serving.replies import Replies
    from mallang.serving.steps import Steps
    from mallang.tasks import translator

    return Replies(verbs) if isinstance(verbs, translator.Verbs) else Steps(verbs)


def generate(pipe: Connection, steps: Any, asked: list[Continue]) -> list[Any]:
    """Generate step by step until nothing is left; requests that come meanwhile join, and cancelled ones leave.

    Returns what came that is something else.
    """
    arrived: list[Any] = [asked]
    others: list[Any] = []
    run = asked[0].run
    while True:
        while pipe.poll():
            arrived.append(pipe.recv())
        for message in arrived:
            if isinstance(message, Cancel):
                steps.cancel(message.job)
            elif isinstance(message, list) and message[0].run == run:
                pipe.send([failed for each in message if (failed := added(steps, each))])
            else:
                others.append(message)
        arrived = []
        if steps.is_empty:
            pipe.send([])  # also where all was canceled: the pool hears that the worker is free
            return others
        if events := list(steps.step()):
            pipe.send(events)


def added(steps: Any, asked: Continue) -> Failed | None:
    """Begin with a request; what is wrong with it, if anything is."""
    try:
        steps.add(asked)
    except UserError as error:
        return Failed(asked.job, 400, said(error))
    return None


def load_all(options: WorkerOptions) -> dict[str, Any]:
    """The models by the names of their runs."""
    from mallang import find
    from mallang.loading import load

    for plugin in options.plugins:
        find.add_plugin(Path(plugin))
    weights: Any = "int8" if options.int8 else "float32"
    return {name: load(folder, options.device, weights) for name, folder in options.runs.items()}


def describe(name: str, folder: str, verbs: Any) -> ServedRun:
    """What the server should know of a run."""
    from mallang.decoding.joined import can_join
    from mallang.runs.folder import Run
    from mallang.serving.calls import wants_pairs
    from mallang.serving.shown import is_live
    from mallang.tasks import generation, language_modeling, translator

    run = Run.open(folder)
    config = verbs.config if isinstance(verbs, generation.Verbs | translator.Verbs) else None
    return ServedRun(
        name=name,
        task=run.task,
        model=str(run.info.get("model", "")),
        verbs=tuple(verb for verb in verbs.verbs if verb in REQUESTS),
        method=config.method if config else "",
        parameters=int(run.info.get("parameters", 0)),
        created=int((Path(folder) / "run.json").stat().st_mtime),
        is_stepped=isinstance(verbs, generation.Verbs) and can_join(verbs.model),
        settings=asdict(config) if config else {},
        reads_pairs=tuple(verb for verb in ("score", "classify") if verb in verbs.verbs and wants_pairs(verbs, verb)),
        is_live=is_live(verbs),
        chat=verbs.task.config.chat if isinstance(verbs.task, language_modeling.Task) else None,
    )


def answers(verbs: Any, asked: Call) -> Iterable[Done | Failed]:
    """The answers to the requests of a batch; if one of them is wrong, each is tried by itself."""
    from mallang.serving.calls import call, tokens_read

    items = [item for _, part in asked.parts for item in part]
    try:
        results = iter(call(verbs, asked.verb, items, asked.options))
        done = []
        for job, part in asked.parts:
            own = [next(results) for _ in part]
            tokens = sum(len(each.get("tokens", ())) for each in own if isinstance(each, dict))
            done.append(Done(job, own, tokens, tokens_read(verbs, asked.verb, part)))
        return done
    except UserError as error:
        if len(asked.parts) == 1:
            return [Failed(asked.parts[0][0], 400, said(error))]
        return [
            answered
            for part in asked.parts
            for answered in answers(verbs, Call(asked.run, asked.verb, asked.options, [part]))
        ]
    except Exception as error:
        report(error)
        return [Failed(job, 500, FAILED) for job, _ in asked.parts]


def said(error: UserError) -> str:
    """What is wrong and what to do; where it is may be a path of this machine."""
    return error.what if error.todo is None else f"{error.what}; try: {error.todo}"


def report(error: Exception) -> None:
    """Log where an error was raised, without its message, which may hold a text."""
    logging.getLogger("mallang.serving").error("%s at %s", type(error).__name__, place_of(error))
