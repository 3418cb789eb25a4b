"""How the gradient falls off with distance on miniworld: three recurrent cells and a GPT after two epochs.

A run that lies in runs/ already is used; what is missing is trained first, with the real command. What is reported is
the norm of the gradient at the tokens so far back, as a share of that of the last token read.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from benchmarks.alignment import is_finished, mallang
from benchmarks.report import Result, show, versions

SYSTEMS = {
    "elman": ("rnn-lm-miniworld", ("model.cell=elman", "train.epochs=2")),
    "gru": ("rnn-lm-miniworld", ("model.cell=gru", "train.epochs=2")),
    "lstm": ("rnn-lm-miniworld", ("model.cell=lstm", "train.epochs=2")),
    "gpt": ("gpt-miniworld", ("train.epochs=2", "train.validate_every=none")),
}
"""The recipe and the changes of each run."""
RANGES = ((1, 1), (2, 3), (4, 7), (8, 15), (16, 21))


def measure(rows: int = 200) -> dict[str, Result]:
    """Measure each run on the first sentences of the dev set."""
    found, shown_rows = {}, [("distance", *(f"{low}-{high}" for low, high in RANGES))]
    for system, (recipe, overrides) in SYSTEMS.items():
        folder = Path("runs") / system
        if not is_finished(folder):
            mallang("train", recipe, *overrides, "--name", system, "--quiet", "--device", "cpu")
        seed = json.loads((folder / "run.json").read_text("utf-8"))["seed"]
        begun = time.monotonic()
        numbers = json.loads(mallang("gradients", str(folder), "--rows", str(rows), "--json", "--device", "cpu"))
        shares = [share_of(numbers[system], low, high) for low, high in RANGES]
        shown_rows.append((system, *(f"{share:.2g}" for share in shares)))
        for (low, high), share in zip(RANGES, shares, strict=True):
            found[f"gradients-{system}-{low}-{high}"] = Result(
                system=system, recipe=recipe, overrides=overrides, corpus="miniworld", split="valid",
                protocol=f"mallang gradients RUN --rows {rows}, one run",
                metric=f"gradient {low} to {high} tokens back, as a share of that of the last token read",
                value=float(f"{share:.3g}"), seed=seed, seconds=round(time.monotonic() - begun, 1),
                signature=versions("mallang", "torch"),
            )  # fmt: skip
    show(f"gradient by distance, {rows} sentences", shown_rows)
    return found


def share_of(numbers: dict[str, list[float]], low: int, high: int) -> float:
    """The mean share at these distances, weighed as the command's table weighs it: by the nearest gradients."""
    part = slice(low, high + 1)
    norms = [count * mean for count, mean in zip(numbers["count"][part], numbers["gradient"][part], strict=True)]
    nearest = [norm / share for norm, share in zip(norms, numbers["relative"][part], strict=True)]
    return sum(norms) / sum(nearest)
