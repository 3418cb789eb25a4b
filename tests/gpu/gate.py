"""The gate that a change to layers, kernels, training or decoding passes on a GPU: `make test-gpu`.

First every test that needs a GPU, then every recipe at its real size: 12 updates with the engine and the precision
that `auto` means there, two validations on 64 rows, a stop by SIGTERM after update 8, a resume from that checkpoint,
and one output. Models that are fitted are fitted, and write one output. Corpora that are not on this machine are
replaced by stand-ins. A table is printed at the end; the exit code is 1 where anything failed.

    SHARD=2/3      the second third of the recipes; the GPU tests belong to the first shard
    RECIPES=a,b    these recipes only, and no GPU tests
    DEVICE=cpu     there is no GPU: the recipes only
    WORKERS=4      processes that try recipes at the same time
    TIMEOUT=180    seconds after which a recipe counts as hung
"""

from __future__ import annotations

import importlib.util
import math
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent
ALONE = "training/test_fit.py"
"""These tests fill the memory of the GPU."""
UPDATES, STOP, VALIDATE = 12, 8, 6
ROWS = 64
START = 120.0
"""Seconds in which a process must have started."""
VERBS = ("reply", "translate", "reconstruct", "generate", "classify", "caption", "coref")
"""The verbs that are tried, the first that a model has; a model that has none of them tries the first of its own."""


@dataclass(frozen=True)
class Result:
    """What became of one recipe."""

    recipe: str
    seconds: float = 0.0
    corpus: str = ""
    """real, stand-in, or built in: miniworld."""
    losses: tuple[float, ...] = ()
    output: str = ""
    error: str = ""
    """The last line of what went wrong; nothing where all is well."""
    trace: str = field(default="", repr=False)


def try_recipe(name: str, folder: Path, device: str, stand_ins: Mapping[str, Any]) -> Result:
    """Train, stop, resume and use one recipe; whatever it raises becomes its result."""
    began, losses, output = time.monotonic(), (), ""
    try:
        losses, output = exercise(name, folder, device, stand_ins)
        error = trace = ""
    except BaseException as raised:
        trace = traceback.format_exc()
        error = f"{type(raised).__name__}: {raised}".strip().splitlines()[0]
    return Result(name, time.monotonic() - began, corpus_of(name, stand_ins), losses, output, error, trace)


def exercise(name: str, folder: Path, device: str, entries: Mapping[str, Any]) -> tuple[tuple[float, ...], str]:
    """The losses of the updates and one output."""
    from gpu import stand_ins
    from mallang import load, recipe
    from mallang.find import find
    from mallang.models import contract
    from mallang.training.record import read as read_metrics
    from mallang.training.train import Options, train

    is_fitted = contract.is_fitted(find("models", recipe.read(name).resolved()["model"]["name"]))
    changes = [f"train.steps={UPDATES}", f"train.validate_every={VALIDATE}", f"train.log_every={VALIDATE}"]

    def small(name: str, *more: str) -> Any:
        return recipe.read(name, [*([] if is_fitted else changes), *more]).build()

    with stand_ins.in_registry(entries), stand_ins.shortened(valid=ROWS):
        built = small(name, *stand_ins.given_runs(name, folder, small, device))
    options = Options(folder=folder / name, device=device, quiet=True)
    with stand_ins.in_registry(entries), stand_ins.shortened(valid=ROWS):
        if not is_fitted:
            with stopping_after(STOP):
                train(built, options)
        with resumed_from(None if is_fitted else STOP):
            run = train(built, options)
    lines = list(read_metrics(run.folder / "metrics.jsonl"))
    losses = tuple(float(line["loss"]) for line in lines if line["kind"] == "train" and "loss" in line)
    if not is_fitted and (len(losses) != UPDATES // VALIDATE or not all(map(math.isfinite, losses))):
        raise AssertionError(f"the losses of {UPDATES} updates are {losses}, the mean of each {VALIDATE}")
    validated = [line["step"] for line in lines if line["kind"] == "valid"]
    if not is_fitted and validated != [VALIDATE, UPDATES]:
        raise AssertionError(f"validated after the updates {validated}, not after {VALIDATE} and {UPDATES}")
    with stand_ins.in_registry(entries):  # a model of a graph reads its known triples again
        return losses, one_output(load(run.folder, device=device), built)


@contextmanager
def stopping_after(step: int) -> Iterator[None]:
    """The training in the block is asked to stop after this update, as `kill` asks, and must save and leave."""
    from mallang.training.loop import Loop

    look_up = Loop.look_up

    def ask(loop: Loop) -> None:
        look_up(loop)
        if loop.step == step:
            signal.raise_signal(signal.SIGTERM)

    Loop.look_up = ask  # type: ignore[method-assign]
    try:
        yield
    except SystemExit as left:
        if left.code != 128 + signal.SIGTERM:
            raise
    else:
        raise AssertionError(f"the training did not stop after update {step}")
    finally:
        Loop.look_up = look_up  # type: ignore[method-assign]


@contextmanager
def resumed_from(step: int | None) -> Iterator[None]:
    """The training in the block must begin at the checkpoint of this update; none given: anywhere."""
    from mallang.training.loop import Loop

    resume, begun = Loop.resume, []

    def note(loop: Loop) -> None:
        resume(loop)
        begun.append(loop.step)

    Loop.resume = note  # type: ignore[method-assign]
    try:
        yield
    finally:
        Loop.resume = resume  # type: ignore[method-assign]
    if step is not None and begun != [step]:
        raise AssertionError(f"resumed from the updates {begun}, not from {step}")


def one_output(model: Any, recipe: Any) -> str:
    """One line by the verb of the recipe's task."""
    verb = next((verb for verb in VERBS if verb in model.verbs), model.verbs[0])
    text = "민수는 사과를 먹었다." if recipe.data.source in ("ko", "question") else "a man is here ."
    if "neighbors" in model.verbs:  # word vectors: a word that they have surely learned
        text = model.task.text.vocabulary.tokens[8].strip("▁")
    if verb == "caption":
        import numpy as np

        from mallang.data.images import data_uri

        text = data_uri(np.full((recipe.task.size, recipe.task.size, 3), 200, np.uint8))
    if "mentions" in model.task.columns:
        text = "[[the old house|Q1]] is here ." if len(model.task.marks) == 1 else "[[he]] lives in [[Seoul|Q2]] ."
    if verb in ("answer", "choose"):
        return f"{verb}: {model.answer(text, text) if verb == 'answer' else model.choose(text, text.split()[:3])}"
    if model.task.columns[:2] == ("first", "second"):
        return f"{verb}: {getattr(model, verb)((text, text))}"
    if verb == "complete":  # an entity and a relation of the graph
        return f"complete: {model.complete(model.task.names.vocabulary.tokens[8], model.task.relations.names[0])}"
    if verb == "fill":
        return f"fill: {model.fill(f'[MASK] {text}')}"
    if verb == "generate":
        return f"generate: {model.generate('', max_tokens=16)}"
    if verb == "roles":  # an untrained model may find no predicate
        return f"roles: {model.roles(text, predicates=[1])}"
    # A list of words needs no analyzer, which this machine may lack.
    found = model.tag([text.split()])[0] if verb == "tag" else getattr(model, verb)(text)
    return f"{verb}: {found}"


def corpus_of(name: str, stand_ins: Mapping[str, Any]) -> str:
    """Where the text of a recipe comes from."""
    from gpu.stand_ins import corpora_of
    from mallang import recipe

    named = corpora_of(recipe.read(name).resolved())
    if not named:
        return "built in"
    return "stand-in" if any(each in stand_ins for each in named) else "real"


def absent_corpora(names: Sequence[str]) -> list[str]:
    """The corpora of these recipes that are not on this machine."""
    from gpu.stand_ins import corpora_of
    from mallang import recipe
    from mallang.data import registry

    wanted = dict.fromkeys(each for name in names for each in corpora_of(recipe.read(name).resolved()))
    return [each for each in wanted if registry.state(registry.entry(each)) != "here"]


def settle(line: Connection, start_method: str) -> None:
    """Make this process the head of its own group, which starts others as a process does that a person started."""
    os.setsid()
    multiprocessing.set_start_method(start_method, force=True)
    line.send(None)  # from now on the time counts


def serve(
    line: Connection, start_method: str, folder: Path, device: str, threads: int, stand_ins: Mapping[str, Any]
) -> None:
    """A worker: it tries one recipe after the other."""
    settle(line, start_method)
    import torch

    while (name := line.recv()) is not None:
        torch.set_num_threads(threads)
        line.send(try_recipe(name, folder, device, stand_ins))
        shutil.rmtree(folder / name, ignore_errors=True)
        if device != "cpu":
            torch.cuda.empty_cache()


class Worker:
    """A process that tries recipes. After a failure it is replaced: the GPU may be in any state."""

    def __init__(self, given: tuple[Any, ...], timeout: float, target: Callable[..., None] = serve) -> None:
        context = multiprocessing.get_context("spawn")
        self.line, other = context.Pipe()
        self.process = context.Process(target=target, args=(other, multiprocessing.get_start_method(), *given))
        self.process.start()
        other.close()
        self.timeout, self.limit = timeout, START
        self.recipe, self.began, self.is_lost = "", time.monotonic(), False

    def ask(self, name: str) -> None:
        """Give it the next recipe."""
        self.recipe, self.began = name, time.monotonic()
        self.line.send(name)

    def answer(self) -> Result | None:
        """The result of its recipe, if there is one by now."""
        seconds = time.monotonic() - self.began
        if self.line.poll():
            try:
                found: Result | None = self.line.recv()
                if found is None:
                    self.began, self.limit = time.monotonic(), self.timeout
                    return None
                self.is_lost = bool(found.error)
                return found
            except (EOFError, ConnectionError):
                self.process.join()
                self.is_lost = True
                return Result(self.recipe, seconds, error=f"the process died with exit code {self.process.exitcode}")
        if seconds > self.limit:
            self.is_lost = True
            return Result(self.recipe, seconds, error=f"hung: no result after {self.limit:g} s")
        return None

    def end(self) -> None:
        """Kill the process and what it started."""
        if self.process.is_alive():
            try:
                os.killpg(self.process.pid or 0, signal.SIGKILL)
            except ProcessLookupError:  # it has no group of its own yet
                self.process.kill()
        self.process.join()
        self.line.close()


def sweep(names: Sequence[str], start: Callable[[], Worker], workers: int) -> list[Result]:
    """Try all recipes, so many at a time; the results in the order of the names."""
    left, results = deque(names), {}
    busy: list[Worker] = []
    try:
        for _ in range(min(workers, len(names))):
            busy.append(start())
            busy[-1].ask(left.popleft())
        while busy:
            wait([worker.line for worker in busy], timeout=1.0)
            for worker in list(busy):
                result = worker.answer()
                if result is None:
                    continue
                results[result.recipe] = result
                print(f"{len(results):3} of {len(names)}  {with_trace(result)}", flush=True)
                busy.remove(worker)
                if worker.is_lost or not left:
                    worker.end()
                if left:
                    busy.append(start() if worker.is_lost else worker)
                    busy[-1].ask(left.popleft())
    finally:
        for worker in busy:
            worker.end()
    return [results[name] for name in names]


def row_of(result: Result) -> str:
    """One line of the table."""
    loss = f"{result.losses[0]:.3f} → {result.losses[-1]:.3f}" if result.losses else "fitted" if result.output else ""
    said = result.error or " ".join(result.output.split())
    state = "FAILED" if result.error else "ok"
    return f"{result.recipe:<36} {state:<7} {result.seconds:6.1f} s  {result.corpus:<9} {loss:<17} {said[:90]}"


def with_trace(result: Result) -> str:
    """The line of a recipe, and below it where it failed."""
    return f"{row_of(result)}\n{result.trace}".rstrip()


def gpu_tests() -> list[str]:
    """Run every test that needs a GPU; which of the two parts failed."""
    files = [path for path in sorted(TESTS.rglob("test_*.py")) if needs_gpu(path)]
    # Most of the time goes into compilation on the CPU.
    workers = max(2, os.cpu_count() or 2)
    several = ["-n", str(workers)] if importlib.util.find_spec("xdist") else []
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", "-p", "no:benchmark"]
    failed = []
    for chosen, options in (([path for path in files if not path.match(ALONE)], several), ([TESTS / ALONE], [])):
        began = time.monotonic()
        ended = subprocess.run([*command, *options, *map(str, chosen)], cwd=TESTS.parent, check=False)
        title = f"GPU tests of {len(chosen)} files"
        print(f"{title}: exit code {ended.returncode} after {time.monotonic() - began:.0f} s", flush=True)
        failed += [title] if ended.returncode else []
    return failed


def needs_gpu(path: Path) -> bool:
    """Whether a file holds a test that is skipped where there is no GPU."""
    text = path.read_text(encoding="utf-8")
    return any(sign in text for sign in ("needs a GPU", "needs_gpu", "needs_kernels"))


def chosen_recipes(environment: Mapping[str, str]) -> list[str]:
    """The recipes of this shard, every n-th, or those that are named."""
    from mallang import recipe

    if environment.get("RECIPES"):
        return [recipe.read(name).name for name in environment["RECIPES"].split(",")]
    shard, _, shards = environment.get("SHARD", "1/1").partition("/")
    if not (shard.isdigit() and shards.isdigit() and 1 <= int(shard) <= int(shards)):
        raise SystemExit(f"SHARD={environment['SHARD']} is not k/n, such as 1/2 or 2/2")
    return recipe.names()[int(shard) - 1 :: int(shards)]


def main() -> int:
    """The whole gate; 0 where all of it passed."""
    import torch

    device, began = os.environ.get("DEVICE", "cuda"), time.monotonic()
    if device != "cpu" and not torch.cuda.is_available():
        print("there is no GPU here; DEVICE=cpu tries the recipes on the CPU", file=sys.stderr)
        return 2
    names = chosen_recipes(os.environ)
    failed: list[str] = []
    if device != "cpu" and not os.environ.get("RECIPES") and os.environ.get("SHARD", "1/1").startswith("1/"):
        failed = gpu_tests()
    cores = len(os.sched_getaffinity(0))
    workers = int(os.environ.get("WORKERS", max(1, min(10, cores * 2 // 3))))
    with tempfile.TemporaryDirectory(prefix="mallang-gate-") as folder:
        os.environ["MALLANG_CACHE"] = f"{folder}/cache"
        from gpu import stand_ins
        from mallang.kernels import c_library

        c_library.library()  # compiled once, for all workers
        entries = stand_ins.write(absent_corpora(names), stand_ins.LARGE)
        given = (Path(folder) / "runs", device, max(1, cores // workers), entries)
        timeout = float(os.environ.get("TIMEOUT", "180"))
        results = sweep(names, lambda: Worker(given, timeout), workers)
    return report(results, failed, f"on {device}, {time.monotonic() - began:.0f} s in all")


def report(results: Sequence[Result], failed: Sequence[str], where: str) -> int:
    """Print the table; 1 where anything failed."""
    print("\nrecipe".ljust(38) + "state     seconds  corpus    loss              output")
    print("\n".join(map(row_of, results)))
    wrong = [*failed, *(result.recipe for result in results if result.error)]
    passed = sum(not result.error for result in results)
    print(f"\n{passed} of {len(results)} recipes passed {where}")
    if wrong:
        print(f"FAILED: {', '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
