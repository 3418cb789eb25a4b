"""Without any option 500 or 5,000 pairs come to 0.9 of the best of 20 drawn configurations, within 10 CPU minutes.

`mallang train transformer data.train=train.tsv data.valid=valid.tsv` is run as a newcomer would type it, on 2 threads
of a CPU, and scored as `mallang evaluate` does. The best trial is the one in results/ (`small_data_sweep`). Defaults
and trials were chosen by the validation text alone; test2016 was looked at once, at the end.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.report import RESULTS, Result, show
from benchmarks.small_data_sweep import CORPUS, SIZES, bleu, pairs, write_pairs


def measure(sizes: str = "", device: str = "cpu", threads: int = 2, seed: int = 1) -> dict[str, Result]:
    """Train with the defaults, score, and compare with the best trial; file names of other seeds have the seed."""
    found: dict[str, Result] = {}
    for size in [int(size) for size in sizes.split(",")] if sizes else SIZES:
        with tempfile.TemporaryDirectory() as home:
            taken = trained(size, Path(home), device, threads, seed)
            scores = {split: bleu(loaded(home, device), pairs(split)) for split in ("valid", "test2016")}
        best = best_trial(size)
        share = round(scores["valid"].value / best, 3)
        rows = [("validation BLEU", scores["valid"].value), ("best trial", best), ("share of it", share)]
        times = [("seconds", taken["seconds"]), ("CPU seconds", taken["CPU seconds"])]
        show(f"{size:,} pairs, defaults", [("", "value"), *rows, ("test2016 BLEU", scores["test2016"].value), *times])
        where = f"{threads} threads of a CPU" if device == "cpu" else f"{device} and {threads} threads of a CPU"
        values = results(size, {split: score.value for split, score in scores.items()}, share, taken, where)
        end = "" if seed == 1 else f"-seed{seed}"
        found |= {f"{name}{end}": replace(result, seed=seed) for name, result in values.items()}
    return found


def trained(size: int, home: Path, device: str, threads: int, seed: int = 1) -> dict[str, float]:
    """The command of a newcomer, and the time it takes: on the clock, and of all processors together."""
    write_pairs(size, home)
    command = [sys.executable, "-m", "mallang", "train", "transformer", "data.train=train.tsv", "data.valid=valid.tsv"]
    given = {**os.environ, "OMP_NUM_THREADS": str(threads), "MALLANG_CACHE": str(home / "cache")}
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [*command, *([] if seed == 1 else [f"seed={seed}"]), "--device", device], cwd=home, env=given, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(time.monotonic() - began, 1), "CPU seconds": round(used, 1)}


def loaded(home: str, device: str) -> Any:
    """The trained model."""
    import mallang

    return mallang.load(Path(home, "runs", "transformer"), device=device)


def best_trial(size: int, folder: Path = RESULTS) -> float:
    """The best validation BLEU of the kept trials."""
    return max(json.loads(path.read_text("utf-8"))["value"] for path in folder.glob(f"small-data-{size}-trial*.json"))


def results(
    size: int, scores: Mapping[str, float], share: float, taken: Mapping[str, float], where: str
) -> dict[str, Result]:
    """The values as files of results/; `where` is the hardware they were trained on."""
    values = {
        "valid": (f"small data, validation BLEU, {size:,} pairs", round(scores["valid"], 2)),
        "test2016": (f"small data, test2016 BLEU, {size:,} pairs", round(scores["test2016"], 2)),
        "tie_weights": (f"small data, share of the best trial's BLEU, {size:,} pairs", share),
        "seconds": (f"small data, seconds of training, {size:,} pairs", taken["seconds"]),
        "cpu-seconds": (f"small data, CPU seconds of training, {size:,} pairs", taken["CPU seconds"]),
    }
    return {
        f"small-data-{size}-defaults-{name}": Result(
            system="transformer, defaults", recipe="transformer", overrides=[], corpus=CORPUS, direction="en-de",
            split="test2016" if name == "test2016" else "valid", metric=metric, value=value, seed=1,
            protocol=f"first {size:,} training pairs, no option but the files, {where}; sacrebleu, beam 5",
            seconds=taken["seconds"],
        )
        for name, (metric, value) in values.items()
    }  # fmt: skip
