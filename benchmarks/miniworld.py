"""Korean to English on miniworld, as `make demo` does: seconds of training, and exact matches on held-out scenes."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.report import Result

RECIPE = "transformer-miniworld"


def measure(seed: int = 1) -> dict[str, Result]:
    """Train the recipe with the real command and score it on the test split; file names of other seeds have it."""
    with tempfile.TemporaryDirectory() as home:
        mallang("train", RECIPE, f"seed={seed}", "--quiet", home=home)
        said = mallang("evaluate", f"runs/{RECIPE}", "--json", home=home)
        run = json.loads((Path(home) / "runs" / RECIPE / "run.json").read_text("utf-8"))
    scores = {score["name"]: score for score in json.loads(said)}
    about: dict[str, Any] = {
        "system": "transformer", "recipe": RECIPE, "overrides": [], "corpus": "miniworld", "direction": "ko-en",
        "split": "test", "seed": run["seed"], "seconds": run["seconds"],
    }  # fmt: skip
    exact, bleu = scores["exact match"], scores["BLEU"]
    print(f"  trained in {run['seconds']:.0f} s; exact match {exact['value']:.1f} %, BLEU {bleu['value']:.2f}")
    end = "" if seed == 1 else f"-seed{seed}"
    return {
        f"miniworld-exact{end}": Result(
            **about, protocol="beam 5, raw text", metric="exact match, %", value=exact["value"],
            signature=exact["signature"],
        ),
        f"miniworld-bleu{end}": Result(
            **about, protocol="sacrebleu", metric="BLEU", value=round(bleu["value"], 2), signature=bleu["signature"]
        ),
        f"miniworld-seconds{end}": Result(
            **about, protocol="one thread, claimed: below 120 s", metric="training, seconds", value=run["seconds"]
        ),
    }  # fmt: skip


def mallang(*words: str, home: str) -> str:
    """What the real command prints."""
    command = [sys.executable, "-m", "mallang", *words]
    return subprocess.run(command, cwd=home, check=True, stdout=subprocess.PIPE, text=True).stdout
