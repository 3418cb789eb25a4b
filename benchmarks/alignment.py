"""Word alignment from attention on miniworld: AER against the gold alignment of held-out scenes.

An existing run in runs/ is used; a missing one is trained first, with the real command.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.report import Result, show, versions

SYSTEMS = ("bahdanau", "transformer")
PROTOCOL = (
    "mallang align RUN --split test: the reference is given, words are what spaces part, every gold link is sure; "
    "layer, head, step and threshold are chosen on valid"
)


def measure() -> dict[str, Result]:
    """Score each system's attention."""
    found, rows = {}, [("system", "AER %", "precision %", "recall %", "F %", "read off")]
    for system in SYSTEMS:
        recipe = f"{system}-miniworld"
        if not is_finished(Path("runs") / recipe):
            mallang("train", recipe, "--quiet", "--device", "cpu")
        seed = json.loads(Path("runs", recipe, "run.json").read_text("utf-8"))["seed"]
        begun = time.monotonic()
        answer = json.loads(mallang("align", f"runs/{recipe}", "--split", "test", "--json", "--device", "cpu"))
        values = [round(score["value"], 2) for score in answer["scores"]]
        signature = answer["scores"][0]["signature"]
        rows.append((system, *values, signature))
        found[f"alignment-{system}"] = Result(
            system=system, recipe=recipe, overrides=[], corpus="miniworld", direction="ko-en", split="test",
            protocol=PROTOCOL, metric="alignment error rate, %", value=values[0], seed=seed,
            seconds=round(time.monotonic() - begun, 1), signature=f"{signature}|{versions('torch')}",
        )  # fmt: skip
        show(f"{recipe}: AER % on valid, when a word is said and when it is read", table(answer["valid"]))
    show("against the gold alignment of miniworld, test", rows)
    return found


def table(tried: list[dict[str, object]]) -> list[tuple[object, ...]]:
    """The error of every layer and head at both steps, one link a word."""
    single = {(one["layer"], one["head"], one["step"]): one["aer"] for one in tried if one["threshold"] is None}
    rows: list[tuple[object, ...]] = [("layer and head", "said", "read")]
    for layer, head in dict.fromkeys(key[:2] for key in single):
        name = f"{layer} {'mean' if head == 0 else f'head {head}'}"
        rows.append((name, single[layer, head, "said"], single[layer, head, "read"]))
    return rows


def is_finished(run: Path) -> bool:
    """Whether a run is there and whole."""
    about = run / "run.json"
    return about.exists() and json.loads(about.read_text("utf-8"))["status"] == "finished"


def mallang(*words: str) -> str:
    """What the real command prints."""
    return subprocess.run(
        [sys.executable, "-m", "mallang", *words], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
