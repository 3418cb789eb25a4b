"""Parsing as translation on miniworld: bracket F1 of the Transformer, which writes the words into the tree.

Three seeds each. An existing run in runs/ is used; a missing one is trained first, with the real command.
"""

from __future__ import annotations

import itertools
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.alignment import is_finished, mallang
from benchmarks.report import Result, show
from mallang import recipe

LANGUAGES = ("en", "ko")
METRICS = {"bracket F1": "bracket F1", "whole trees": "whole trees, %", "exact match": "exact match of trees, %"}


def measure(seeds: str = "1,2,3") -> dict[str, Result]:
    """Train and score the recipe of each language, once for each seed."""
    found, rows = {}, [("recipe", "seed", *METRICS)]
    for language, seed in itertools.product(LANGUAGES, seeds.split(",")):  # words: ok, a function of Python
        name = f"transformer-miniworld-{language}-{language}-tree-words"
        run = Path("runs") / (name if seed == "1" else f"{name}-seed{seed}")
        if not is_finished(run):
            mallang("train", name, f"seed={seed}", "--name", run.name, "--quiet", "--device", "cpu")
        scores = json.loads(mallang("evaluate", str(run), "--split", "test", "--json", "--device", "cpu"))
        results = scored(run, name, language, {score["name"]: score for score in scores})
        rows.append((name, seed, *(result.value for result in results.values())))
        found |= results
    show("trees of held-out sentences", rows)
    return found


def scored(run: Path, name: str, language: str, scores: Mapping[str, Any]) -> dict[str, Result]:
    """The scores of one run, by file name."""
    about = json.loads((run / "run.json").read_text("utf-8"))
    return {
        f"parsing-transformer-{language}-{metric.replace(' ', '-').lower()}-seed{about['seed']}": Result(
            system="transformer", recipe=name, overrides=overrides(run, name), corpus="miniworld",
            direction=f"{language}-{language}-tree-words", split="test", protocol="beam 5, words in the tree",
            metric=title, value=round(scores[metric]["value"], 2), seed=about["seed"], seconds=about["seconds"],
            signature=scores[metric]["signature"],
        )
        for metric, title in METRICS.items()
    }  # fmt: skip


def overrides(run: Path, name: str) -> list[str]:
    """The overrides that a run was trained with."""
    used, said = tomllib.loads((run / "recipe.toml").read_text("utf-8")), recipe.read(name).resolved()
    return [
        f"{section}.{key}={value}"
        for section, values in said.items()
        if isinstance(values, dict)
        for key, value in used.get(section, {}).items()
        if value != values.get(key)
    ]
