"""Does less teacher forcing narrow the gap between training and inference? Three runs of a fixed-vector model.

The same recipe is trained with the true words alone, and with more and more of its own words by two schedules. Held-out
references are then read in two ways: after true words, as teacher forcing trains, and after the model's own best words,
as it will be used. The gap is the difference of the two losses. What counts in the end is the output of a search.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.report import Result

RECIPE = "sutskever-scheduled-miniworld"
MODES = {
    "teacher forcing": ["task.scheduled_sampling=none", "task.sampling_k=none"],
    "inverse-sigmoid": [],
    "linear": ["task.scheduled_sampling=linear", "task.sampling_k=none", "task.sampling_c=0.0015"],
}
"""What each way of training changes in the recipe."""


def measure(seeds: int = 2, epochs: int = 3) -> dict[str, Result]:
    """Train every way with every seed; one line each, and the means as values."""
    found: dict[str, Result] = {}
    for mode, overrides in MODES.items():
        runs = [trained(seed, [*overrides, f"train.epochs={epochs}"]) for seed in range(1, seeds + 1)]
        for name in ("nll after true words", "nll after own words", "gap", "BLEU", "exact match"):
            values = [run[name] for run in runs]
            print(f"  {mode:16} {name:22} " + "  ".join(f"{value:.3f}" for value in values))
            short = {"nll after true words": "true", "nll after own words": "own", "exact match": "exact"}.get(
                name, name
            )
            found[f"teacher-forcing-{mode.replace(' ', '-')}-{short.lower()}"] = Result(
                system=f"sutskever, {mode}", recipe=RECIPE, overrides=[*overrides, f"train.epochs={epochs}"],
                corpus="miniworld", direction="ko-en", split="valid", metric=unit(name),
                value=round(float(np.mean(values)), 3),
                protocol=f"mean over seeds 1 to {seeds}; single values {', '.join(f'{value:.3f}' for value in values)}",
                seconds=round(sum(run["seconds"] for run in runs)),
            )  # fmt: skip
    return found


def unit(name: str) -> str:
    """The name of a value with its unit."""
    return f"scheduled sampling: {name}" + (
        "" if name == "BLEU" else ", %" if name == "exact match" else ", nats per token"
    )


def trained(seed: int, overrides: list[str]) -> dict[str, float]:
    """One run: what held-out text costs after true and after own words, and how good greedy outputs are."""
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "mallang", "train", RECIPE, f"seed={seed}", *overrides, "--quiet"]
        subprocess.run(command, cwd=home, check=True)
        run = Path(home, "runs", RECIPE)
        return {**looked_at(run), "seconds": json.loads((run / "run.json").read_text("utf-8"))["seconds"]}


def looked_at(folder: Path) -> dict[str, float]:
    """The measures of a finished run on the validation split."""
    import mallang
    from mallang.data import miniworld

    model = mallang.load(folder, device="cpu")
    rows = list(miniworld.rows("valid"))
    after_true, after_own = losses(model, rows, own=False), losses(model, rows, own=True)
    scores, _ = model.evaluate(rows, method="greedy")
    named = {score.name: score.value for score in scores}
    return {
        "nll after true words": after_true, "nll after own words": after_own, "gap": after_own - after_true,
        "BLEU": named["BLEU"], "exact match": named["exact match"],
    }  # fmt: skip


@torch.inference_mode()
def losses(model: Any, rows: list[tuple[str, str]], *, own: bool) -> float:
    """Nats a token of the references, each position read after the true words or after the model's own best ones."""
    from mallang.tasks.scheduled_sampling import Schedule, ScheduledSampling

    sampling = ScheduledSampling(Schedule(decay="linear", c=1.0, own="best"))
    sampling.at_step(2 if own else 1)  # ε is 1 before the first update, 0 after it
    total, count, task = 0.0, 0, model.task
    for begin in range(0, len(rows), 100):
        sources, targets = zip(*rows[begin : begin + 100], strict=True)
        ids = zip(task.source.encode_batch(list(sources)), task.target.encode_batch(list(targets)), strict=True)
        batch = task.prepare([(pair,) for pair in ids], np.random.default_rng(0))
        total += float(sampling.loss(model.model, batch, 0.0).sums["loss"])
        count += task.counts(batch)["loss"]
    return total / count
