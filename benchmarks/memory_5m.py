"""Training on 5 million pairs keeps below 2 GiB of anonymous memory, over all processes.

The real command trains on generated text for a few steps, from reading to the finished run, while this one reads
/proc: the anonymous and shared memory of the trainer and its loader workers, summed. Pages that a forked worker still
shares with the trainer are counted for both, so the sum is never too small. Pages of files (mapped arrays, libraries)
are not counted, for the system takes them back at need.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing import Pool
from pathlib import Path
from typing import Any

from benchmarks.report import Result, show, versions
from mallang.data import miniworld

LIMIT = 2048
"""MiB that are claimed to be enough."""
PART = 50_000
POLL = 0.05
RECIPE = "transformer-miniworld"
LARGE = ["train.epochs=none", "train.batch_tokens=4096", "text.vocabulary=8000"]
"""What real text asks for, in place of the recipe's small batches and vocabulary."""
PHASES = ("start", "tokenizer", "preparation", "planning", "training", "validation", "saving")
PROTOCOL = (
    f"RssAnon + RssShmem summed over the process tree of `mallang train`, every {POLL * 1000:.0f} ms, "
    f"from start to finished run; claimed: below {LIMIT} MiB"
)


def measure(pairs: int = 5_000_000, steps: int = 200) -> dict[str, Result]:
    """Train with a validation half-way and one at the end, watch, report by phase."""
    overrides = [*LARGE, f"train.steps={steps}", f"train.validate_every={steps // 2}", f"train.log_every={steps // 2}"]
    with tempfile.TemporaryDirectory(prefix="mallang-") as name:
        folder, began = Path(name), time.monotonic()
        size = write_corpus(folder, pairs)
        print(f"{pairs:,} pairs, {size / 2**20:,.0f} MiB of text, written in {time.monotonic() - began:.0f} s")
        watch = train(folder, overrides, steps)
    peak, seconds = max(watch.peaks.values()), sum(watch.seconds.values())
    rate = pairs / watch.seconds["preparation"]
    rows = [(phase, watch.seconds[phase], watch.peaks[phase] / 2**20) for phase in PHASES if phase in watch.peaks]
    show("memory by phase", [("phase", "seconds", "peak, MiB"), *rows, ("all", seconds, peak / 2**20)])
    print(f"  preparation: {rate:,.0f} pairs/s")
    print(f"  {'below' if peak < LIMIT << 20 else 'NOT below'} {LIMIT} MiB")
    about: dict[str, Any] = {
        "system": "mallang", "recipe": RECIPE, "overrides": overrides, "direction": "ko-en", "split": "train",
        "seed": 1, "corpus": f"miniworld, {pairs:,} generated pairs", "seconds": round(seconds, 1),
        "signature": versions("mallang", "torch", "numpy", "tokenizers"),
    }  # fmt: skip
    rows_a_second = Result(
        metric="preparation, pairs a second", value=round(rate), **about,
        protocol="text to arrays of ids on disk, both sides, from the saved tokenizer to the finished entry",
    )  # fmt: skip
    memory = Result(metric="peak anonymous memory, MiB", value=round(peak / 2**20), protocol=PROTOCOL, **about)
    return {f"memory-{pairs}": memory, f"preparation-{pairs}": rows_a_second}


def write_corpus(folder: Path, pairs: int) -> int:
    """The text to train and to validate on; how many bytes there are to train on."""
    sizes = [min(PART, pairs - start) for start in range(0, pairs, PART)]
    with Pool(2) as pool:
        size = write_pairs(folder, "train", pool.imap(generated, enumerate(sizes, 1)))
    write_pairs(folder, "valid", [joined(miniworld.rows("valid"))])
    return size


def generated(part: tuple[int, int]) -> tuple[bytes, bytes]:
    """The pairs of one seed, as lines."""
    return joined(miniworld.generate(*part))


def joined(pairs: Iterable[tuple[str, str]]) -> tuple[bytes, bytes]:
    """The two sides of some pairs, as lines."""
    korean, english = zip(*pairs, strict=True)
    return "\n".join([*korean, ""]).encode(), "\n".join([*english, ""]).encode()


def write_pairs(folder: Path, split: str, parts: Iterable[tuple[bytes, bytes]]) -> int:
    """Parallel files, part after part."""
    with (folder / f"{split}.ko").open("wb") as korean, (folder / f"{split}.en").open("wb") as english:
        return sum(korean.write(left) + english.write(right) for left, right in parts)


def train(folder: Path, overrides: list[str], steps: int) -> Watch:
    """Run the command to its end and watch it."""
    data = [f"data.{split}={folder / split}" for split in ("train", "valid")]
    command = [sys.executable, "-m", "mallang", "train", RECIPE, *overrides, *data, "--runs", str(folder), "--name",
               "run", "--device", "cpu", "--quiet"]  # fmt: skip
    with subprocess.Popen(command, env={**os.environ, "MALLANG_CACHE": str(folder / "cache")}) as process:
        watch = Watch(folder, steps)
        while process.poll() is None:
            watch.look(process.pid)
            time.sleep(POLL)
    if process.returncode:
        raise SystemExit(f"the training failed with exit code {process.returncode}")
    return watch


@dataclass
class Watch:
    """Peaks and time by phase; the phase is read from the files that the training has written so far."""

    folder: Path
    steps: int
    phase: str = PHASES[0]
    clock: float = field(default_factory=time.monotonic)
    peaks: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def look(self, process: int) -> None:
        """Measure memory and time once more."""
        processes = list(tree(process))
        self.phase = self.next_phase(len(processes) > 1)
        now = time.monotonic()
        self.peaks[self.phase] = max(self.peaks.get(self.phase, 0), sum(map(anonymous, processes)))
        self.seconds[self.phase] = self.seconds.get(self.phase, 0.0) + now - self.clock
        self.clock = now

    def next_phase(self, has_workers: bool) -> str:
        """What the training is doing now."""
        run = self.folder / "run"
        match self.phase:
            case "start" if (run / "run.json").exists():
                return "tokenizer"
            case "tokenizer" if (run / "tokenizer.json").exists():
                return "preparation"
            case "preparation" if any((self.folder / "cache" / "prepared").glob("[!.]*")):
                return "planning"
            case "planning" if has_workers or (run / "metrics.jsonl").exists():  # a recipe may have no workers
                return "training"
            case "training" | "validation" | "saving":
                return self.within_training(run)
        return self.phase

    def within_training(self, run: Path) -> str:
        """A line of metrics comes before a validation, its scores before a checkpoint."""
        metrics = run / "metrics.jsonl"
        lines = metrics.read_text("utf-8").splitlines() if metrics.exists() else []
        if not lines:
            return "training"
        last = json.loads(lines[-1])
        if last["kind"] == "train":
            return "validation"
        is_saved = any(path.name.endswith(str(last["step"])) for path in (run / "checkpoints").glob("[!.]*"))
        return "training" if is_saved and last["step"] < self.steps else "saving"


def tree(process: int) -> Iterator[int]:
    """A process and all that descend from it."""
    yield process
    try:
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            for child in children.read_text().split():
                yield from tree(int(child))
    except OSError:
        return  # it has just ended


def anonymous(process: int) -> int:
    """The bytes of a process that are not backed by a file."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("RssAnon:", "RssShmem:")))
