"""What `mallang recipes` shows of results/: for each recipe its first headline, as a file inside the package."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from benchmarks.results_page import Value, found, is_there, is_trained, questions, spread_of, trained_with, unit_of
from benchmarks.translation_results import ENDED
from mallang import recipe as recipes


def as_json(values: Sequence[Value]) -> str:
    """The file: a line per recipe."""
    lines = [
        f" {json.dumps(name)}: {json.dumps(about, ensure_ascii=False)}" for name, about in measured(values).items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def measured(values: Sequence[Value]) -> dict[str, dict[str, Any]]:
    """By recipe: mean, standard deviation and number of seeds of its first headline."""
    known: dict[str, dict[str, Any]] = {}
    for row in (row for question in questions() for row in question.rows if is_there(row, values)):
        mine = found(row.ours, values)
        one, spread = mine[0], spread_of(mine)
        if is_trained(one) and one["recipe"] in recipes.names():
            known.setdefault(
                str(one["recipe"]),
                {
                    "metric": f"{'greedy ' * is_greedy(one)}{unit_of(one)}",
                    "split": one["split"],
                    "mean": round(spread.mean, 4),
                    "deviation": None if spread.deviation is None else round(spread.deviation, 4),
                    "seeds": None if row.deterministic else spread.seeds,
                    "overrides": trained_with(one),
                    "commit": str(one["commit"])[:12],
                },
            )
    return dict(sorted(known.items()))


def is_greedy(one: Value) -> bool:
    """Whether a value was measured with greedy search, as its protocol says."""
    return "greedy" in str(one["protocol"]).partition(ENDED)[0].split(", ")
