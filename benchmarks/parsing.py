"""Parsing as translation on miniworld: bracket F1 of the Transformer, which writes the words into the tree.

A run that lies in runs/ already is used, seed 1; what is missing is trained first, with the real command.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from benchmarks.alignment import is_finished, mallang
from benchmarks.report import Result, show
from mallang import recipe

LANGUAGES = ("en", "ko")
METRICS = {"bracket F1": "bracket F1", "whole trees": "whole trees, %", "exact match": "exact match of trees, %"}


def measure() -> dict[str, Result]:
    """Train and score the recipe of each language."""
    found, rows = {}, [("recipe", *METRICS)]
    for language in LANGUAGES:
        name = f"transformer-miniworld-{language}-{language}-tree-words"
        run = Path("runs") / name
        if not is_finished(run):
            mallang("train", name, "--quiet", "--device", "cpu")
        about = json.loads((run / "run.json").read_text("utf-8"))
        said = json.loads(mallang("evaluate", str(run), "--split", "test", "--json", "--device", "cpu"))
        scores = {score["name"]: score for score in said}
        for metric, title in METRICS.items():
            found[f"parsing-transformer-{language}-{metric.replace(' ', '-').lower()}"] = Result(
                system="transformer", recipe=name, overrides=overrides(run, name), corpus="miniworld",
                direction=f"{language}-{language}-tree-words", split="test", protocol="beam 5, words in the tree",
                metric=title, value=round(scores[metric]["value"], 2), seed=about["seed"], seconds=about["seconds"],
                signature=scores[metric]["signature"],
            )  # fmt: skip
        rows.append((name, *(round(scores[metric]["value"], 2) for metric in METRICS)))
    show("trees of held-out sentences", rows)
    return found


def overrides(run: Path, name: str) -> list[str]:
    """What a run was trained with that its recipe does not say."""
    used, said = tomllib.loads((run / "recipe.toml").read_text("utf-8")), recipe.read(name).resolved()
    return [
        f"{section}.{key}={value}"
        for section, values in said.items()
        if isinstance(values, dict)
        for key, value in used.get(section, {}).items()
        if value != values.get(key)
    ]
