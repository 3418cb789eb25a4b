"""What each trick of the Transformer buys on miniworld: the recipe with one of them switched off at a time.

The recipe is trained as it is, and again with one change: no layer normalization, or the paper's post-norm; torch's
default initialization; no warm-up; no label smoothing; no positions; one head. `layers` makes it deeper, where norm,
warm-up and initialization matter more. Scores are those of the dev set: exact matches of greedy outputs, and the
cross-entropy without smoothing, in nats per token. A training run that diverges counts as no exact match.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.report import Result, show, versions

RECIPE = "transformer-miniworld"
SWITCHES = {
    "the recipe": (),
    "post-norm": ("model.norm=post",),
    "no norm": ("model.norm=none",),
    "default initialization": ("train.initialization=default",),
    "no warm-up": ("schedule.warmup=0",),
    "no label smoothing": ("task.label_smoothing=0",),
    "no positions": ("model.positions=none",),
    "one head": ("model.heads=1",),
}
"""What is changed, and how."""


def measure(
    epochs: int = 2, layers: int = 2, seed: int = 1, rows: int = 1000, only: str = ",".join(SWITCHES)
) -> dict[str, Result]:
    """Train with each switch, and score the dev set."""
    began = time.monotonic()
    shape = f"{layers} layers, {epochs} epochs"
    found = {}
    for name, overrides in SWITCHES.items():
        if name not in only.split(","):
            continue
        budget = [f"model.layers={layers}", f"train.epochs={epochs}", "train.validate_every=none", f"seed={seed}"]
        found[name] = scores_of([*budget, *overrides], rows)
        show(f"{RECIPE}, {shape}", [("", "exact match, %", "nll"), (name, *found[name])])
    about: dict[str, Any] = {
        "recipe": RECIPE, "corpus": "miniworld", "direction": "ko-en", "split": "valid", "seed": seed,
        "protocol": f"{shape}, best validation loss, greedy, {rows} sentences of the dev set, one thread",
        "signature": versions("mallang", "torch"), "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    results = {}
    for name, (exact, nll) in found.items():
        fields = dict(about, system=f"transformer, {name}{'' if nll < float('inf') else ' (diverged)'}")
        fields["overrides"] = [f"model.layers={layers}", f"train.epochs={epochs}", *SWITCHES[name]]
        file = f"tricks-{layers}-layers-{name.replace(' ', '-')}"
        metric = "exact match on the dev set when one trick is switched off, %"
        results[f"{file}-exact"] = Result(**fields, metric=metric, value=round(exact, 2))
        if nll < float("inf"):
            metric = "cross-entropy on the dev set when one trick is switched off, nats per token"
            results[f"{file}-nll"] = Result(**fields, metric=metric, value=round(nll, 4))
    return results


def scores_of(overrides: list[str], rows: int) -> tuple[float, float]:
    """Exact matches in percent and nats per token of one training run; 0 and infinity where it diverged."""
    from mallang import recipe
    from mallang.data.miniworld import rows as rows_of
    from mallang.errors import UserError
    from mallang.loading import load
    from mallang.training.train import Options, train

    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "run"
        try:
            train(recipe.read(RECIPE, overrides).build(), Options(folder=folder, quiet=True))
        except UserError as error:
            if "diverged" not in str(error) and "broke down" not in str(error):
                raise
            return 0.0, float("inf")
        model = load(folder, device="cpu")
        pairs = rows_of("valid")[:rows]
        outputs = model.translate([source for source, _ in pairs], method="greedy")
        exact = sum(str(output) == target for output, (_, target) in zip(outputs, pairs, strict=True)) / len(pairs)
        return 100 * exact, nll_of(folder)


def nll_of(folder: Path) -> float:
    """The cross-entropy at the validation that the final weights come from."""
    from mallang.runs.folder import Run
    from mallang.training.record import FILE, read

    best = Run.open(folder).info["best"]["step"]
    return next(float(row["nll"]) for row in read(folder / FILE) if row["kind"] == "valid" and row["step"] == best)
