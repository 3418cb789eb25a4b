"""Many training runs side by side on one device, each with the real command; all results go into one file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import report
from mallang.errors import UserError

if TYPE_CHECKING:
    from benchmarks.translation import Experiment

FORMAT = 1
HEADLINES = ("BLEU", "perplexity per word")
"""The score that is printed for a finished run while others are still training."""
LAST_LINES = 15
"""Lines that are kept of the output of a failed command."""
GRACE = 30
"""Seconds that a training run has for its last checkpoint when the time is over."""
CLOCK = 5
"""Seconds between two measurements of the device's memory."""
READING = threading.Lock()
"""One recipe is checked at a time: that parses Python sources, which CPython 3.11 cannot do in two threads at once."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Where and how the experiments are run."""

    out: Path
    work: Path | None = None
    device: str = "auto"
    at_once: int = 1
    seconds: float = float("inf")
    commit: str | None = None


@dataclass(frozen=True)
class Place:
    """What every run on this machine shares."""

    folder: Path
    device: str
    deadline: float

    @property
    def left(self) -> float | None:
        """Seconds until the time is over; None where it never is."""
        left = self.deadline - time.monotonic()
        return None if left == float("inf") else left


def run_all(experiments: Sequence[Experiment], options: Options) -> Path:
    """Run every experiment, even where others fail; the file is written again after each."""
    began = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "runs.json"
    file: dict[str, Any] = {
        "format": FORMAT,
        "commit": options.commit or report.commit(),
        "hardware": hardware(),
        "at_once": options.at_once,
        "runs": [],
    }
    with work_folder(options.work) as folder, peak_memory() as memory, ThreadPoolExecutor(options.at_once) as pool:
        place = Place(folder.resolve(), options.device, began + options.seconds)
        for future in as_completed([pool.submit(run_one, each, place) for each in experiments]):
            record = future.result()
            file["runs"].append(record)
            file["seconds"] = round(time.monotonic() - began, 1)
            file["peak_device_memory_mib"] = memory.get("mib")
            path.write_text(json.dumps(file, ensure_ascii=False), "utf-8")
            print(f"{file['seconds']:6.0f} s  {summary(record)}", flush=True)
    print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB")
    return path


def run_one(experiment: Experiment, place: Place) -> dict[str, Any]:
    """Train, then evaluate every split with every search; what went wrong is part of the record."""
    record: dict[str, Any] = {"name": experiment.name, "seed": experiment.seed, "status": "no time", "outputs": []}
    try:
        with READING:
            record |= experiment.about()
        if place.left is not None and place.left <= 0:
            return record
        train(experiment, place, record)
        record["outputs"] = translate(experiment, place)
        record["status"] = "finished"
    except CommandError as error:
        record |= {"status": error.status, "said": error.said}
    except (UserError, OSError, ValueError, KeyError) as error:
        record |= {"status": "failed", "said": str(error)}
    return record


def train(experiment: Experiment, place: Place, record: dict[str, Any]) -> None:
    """Train to the end, or resume a run that was begun here before; then note what the run folder reports."""
    folder = place.folder / experiment.run
    stamp = place.folder / f"{experiment.run}.json"
    mine = json.dumps([experiment.recipe, experiment.overrides, experiment.seed])
    is_same = stamp.exists() and stamp.read_text("utf-8") == mine
    words = ["train", experiment.recipe, *experiment.overrides, f"seed={experiment.seed}", "--name", experiment.run]
    words += ["--runs", str(place.folder), "--device", place.device, "--quiet", *([] if is_same else ["--fresh"])]
    began = time.monotonic()
    try:
        if not (is_same and read_info(folder).get("status") == "finished"):
            stamp.write_text(mine, "utf-8")
            run("mallang", words, experiment.run, place)
    finally:
        record["train_seconds"] = round(time.monotonic() - began, 1)
        record |= {key: read_info(folder).get(key) for key in ("steps", "parameters", "tokens", "best", "seconds")}
        record["validations"] = validations(folder / "metrics.jsonl")


def translate(experiment: Experiment, place: Place) -> list[dict[str, Any]]:
    """The outputs of every split by every search, with the scores that `mallang evaluate` gives."""
    searches = {
        name: {"options": list(options), "words": experiment.words(list(options))}
        for name, options in experiment.searches.items()
    }
    ways = [False, True] if experiment.both_ways else [False]
    asked = {"splits": list(experiment.splits), "searches": searches, "device": place.device, "reversed": ways}
    words = [str(place.folder / experiment.run), json.dumps(asked)]
    found: list[dict[str, Any]] = json.loads(run("benchmarks.translation_outputs", words, experiment.run, place))
    return found


class CommandError(Exception):
    """A command that did not come to its end."""

    def __init__(self, status: str, said: str) -> None:
        super().__init__(said)
        self.status, self.said = status, said


def run(module: str, words: Sequence[str], name: str, place: Place) -> str:
    """What `python -m module` prints; one thread a process, for many run side by side."""
    paths = [str(report.ROOT / "src"), str(report.ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    single = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
    environment = {**single, **os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    log, output = place.folder / f"{name}.{module}.stderr", place.folder / f"{name}.{module}.stdout"
    with log.open("wb") as errors, output.open("wb") as printed:
        command = [sys.executable, "-m", module, *words]
        process = subprocess.Popen(command, stdout=printed, stderr=errors, env=environment)
        is_late = False
        try:
            process.wait(place.left if place.left is None else max(0.0, place.left))
        except subprocess.TimeoutExpired:
            is_late = True
            process.send_signal(signal.SIGTERM)  # it saves and leaves
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    if process.returncode:
        said = log.read_text("utf-8", errors="replace").splitlines()[-LAST_LINES:]
        raise CommandError("no time" if is_late else "failed", "\n".join(said))
    return output.read_text("utf-8")


def read_info(folder: Path) -> dict[str, Any]:
    """The run.json of a run folder; empty where there is none."""
    path = folder / "run.json"
    info: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return info


def validations(path: Path) -> list[dict[str, Any]]:
    """All validations of a training run, also of an unfinished one."""
    from mallang.training.record import read

    return [entry for entry in read(path) if entry["kind"] == "valid"] if path.exists() else []


@contextmanager
def work_folder(named: Path | None) -> Iterator[Path]:
    """The folder of the runs: the one that was named, or one that is removed in the end."""
    if named is not None:
        named.mkdir(parents=True, exist_ok=True)
        yield named
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@contextmanager
def peak_memory() -> Iterator[dict[str, int]]:
    """The most memory that was in use on the GPU while the block ran, over all processes; empty without one."""
    found: dict[str, int] = {}
    done = threading.Event()

    def watch() -> None:
        while not done.is_set() and (used := ask_gpu("memory.used", "nounits")):
            found["mib"] = max(found.get("mib", 0), int(used.splitlines()[0]))
            done.wait(CLOCK)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield found
    finally:
        done.set()
        watcher.join()


def hardware() -> str:
    """The GPU, if there is one, else the machine."""
    name = ask_gpu("name")
    return f"{name.splitlines()[0]}, torch {version('torch')}" if name else report.hardware()


def ask_gpu(what: str, *form: str) -> str:
    """The output of nvidia-smi; empty where there is none."""
    command = ["nvidia-smi", f"--query-gpu={what}", f"--format={','.join(['csv', 'noheader', *form])}"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def summary(record: dict[str, Any]) -> str:
    """One run in a line."""
    shown = [f"{record['name']} seed {record['seed']}: {record['status']}"]
    if record.get("steps"):
        shown.append(f"{record['steps']} steps in {record['train_seconds']:.0f} s")
    for output in record["outputs"]:
        values = {score["name"]: score["value"] for score in output["scores"]}
        value = next(values[name] for name in HEADLINES if name in values)
        label = ":".join(filter(None, [output["corpus"], output["split"], output["search"]]))
        shown.append(f"{label} {float(value):.2f}")
    return "  ".join(shown) + (f"\n{record['said']}" if record.get("said") else "")
