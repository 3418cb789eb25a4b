"""Choose the recipe of miniworld's GPT on dev: trials, each with its dev scores, in gpt-miniworld-sweep.jsonl.

python -m benchmarks.miniworld_gpt_sweep vocabulary-1000 text.vocabulary=1000 train.epochs=10

A trial is a name and overrides of the recipe. It is judged by the valid split (nats per sentence, which tokenizers of
any size share) and by samples at temperature 1 that are drawn with another seed than those `miniworld_gpt` reports.
CPU seconds say what a trial costs, whatever else the machine does.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from benchmarks.miniworld import mallang
from benchmarks.miniworld_gpt import draw
from benchmarks.report import commit

RECIPE = "gpt-miniworld"
TRIALS = Path(__file__).with_name("gpt-miniworld-sweep.jsonl")
DEV_SEED = 2


def trial(name: str, overrides: list[str]) -> dict[str, object]:
    """Train once, and measure on dev."""
    before = os.times()
    with tempfile.TemporaryDirectory() as home:
        mallang("train", RECIPE, *overrides, "--quiet", home=home)
        after = os.times()
        folder = Path(home) / "runs" / RECIPE
        run = json.loads((folder / "run.json").read_text("utf-8"))
        scores = json.loads(mallang("evaluate", f"runs/{RECIPE}", "--split", "valid", "--json", home=home))
        drawn = draw(f"runs/{RECIPE}", "1.0", seed=DEV_SEED, home=home)
    bits = next(score["value"] for score in scores if score["name"] == "bits per byte")
    return {
        "trial": name, "overrides": overrides, "steps": run["steps"], "parameters": run["parameters"],
        "cpu_seconds": round(after.children_user - before.children_user, 1), "valid_bits_per_byte": round(bits, 4),
        "dev": asdict(drawn), "commit": commit(),
    }  # fmt: skip


if __name__ == "__main__":
    found = trial(sys.argv[1], sys.argv[2:])
    print(json.dumps(found))
    with TRIALS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(found) + "\n")
