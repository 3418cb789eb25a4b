"""What is known of each recipe: its system, corpus and paper, what it should reach, and what was measured."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from mallang import recipe
from mallang.recipe import Resolved


def summary(read: Resolved) -> dict[str, Any]:
    """What the list shows of a recipe."""
    whole = read.resolved()
    data = whole["data"]
    corpus = data.get("train") or ", ".join(data.get("corpora") or {}) or data["corpus"]
    system = whole["model"]["name"].replace("_", "-")
    return {
        "name": read.name,
        "system": system,
        "corpus": str(corpus),
        "paper": whole["paper"],
        "reach": whole["reach"],
        "measured": measurements().get(read.name),
    }


@cache
def measurements() -> dict[str, dict[str, Any]]:
    """What came of each recipe, by its name: `python -m benchmarks.report` writes the file from results/."""
    measured: dict[str, dict[str, Any]] = json.loads((recipe.FOLDER / "measured.json").read_text("utf-8"))
    return measured


def in_words(measured: dict[str, Any] | None) -> str:
    """A measurement in a phrase: 42.12 ± 0.28 BLEU on test2016, 3 seeds, with train.seconds=285."""
    if measured is None:
        return ""
    digits = 4 if measured["metric"] in ("bits per byte", "nats per token") else 2
    deviation = "" if measured["deviation"] is None else f" ± {measured['deviation']:.{digits}f}"
    where = f" on {measured['split']}" if measured["split"] else ""
    seeds = measured["seeds"] and f"{measured['seeds']} seed{'s' * (measured['seeds'] > 1)}"
    overrides = measured["overrides"] and f"with {' '.join(measured['overrides'])}"
    value = f"{measured['mean']:.{digits}f}{deviation} {measured['metric']}{where}"
    return ", ".join(filter(None, [value, seeds, overrides]))
