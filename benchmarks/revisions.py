"""Decoding on a CPU by this code beside an older commit of it, timed in turn with CTranslate2 on the same machine.

git worktree add ../before 8ebacd7
python -m benchmarks revisions --before ../before --write

A ratio to a peer that was measured on another machine says little; both commits in one run say what a change costs.
The shapes are those of `decoding_speed`, CTranslate2 with two workers of one thread, which is its faster form.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.contest import Entrant, Outcome, race
from benchmarks.decoding_speed import METHODS
from benchmarks.report import Result, show
from benchmarks.shape import SMALL

NOW, BEFORE, PEER = "this code", "the older commit", "ctranslate2 2x1"


def measure(before: str = "", rounds: int = 11, batches: int = 16) -> dict[str, Result]:
    """Greedy search and beam 5, in float32 and int8; nothing without the folder of an older commit."""
    if not before:
        print("revisions are not measured: give the folder of an older commit with --before")
        return {}
    tree, began = Path(before).resolve(), time.monotonic()
    commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=tree, capture_output=True, text=True)
    found: dict[str, Result] = {}
    for method, beam in METHODS.items():
        for weights in ("float32", "int8"):
            rates = race(entrants_of(tree, {"beam": beam, "batches": batches, "weights": weights}), rounds)
            name = f"revision-cpu-{method}-{weights}"
            show(name, [("", "sentences/s"), *((label, one.rate) for label, one in rates.items())])
            found[name] = Result(
                system="mallang", metric=f"speed now / at an older commit, {method}, {weights}",
                value=round(rates[NOW].rate / rates[BEFORE].rate, 3), seconds=round(time.monotonic() - began, 1),
                protocol=protocol_of(rates, commit.stdout.strip(), rounds), signature=rates[NOW].signature,
            )  # fmt: skip
    return found


def entrants_of(tree: Path, options: Mapping[str, Any]) -> list[Entrant]:
    """This code, that of the older commit, and the peer."""
    common = {"shape": SMALL.options(), **options}
    ours, peer = ("benchmarks.decoding_entrants:ours", "benchmarks.decoding_entrants:ctranslate2")
    return [
        Entrant(NOW, ours, common | {"device": "cpu"}),
        Entrant(BEFORE, ours, common | {"device": "cpu"}, environment=paths_of(tree), tree=tree),
        Entrant(PEER, peer, common | {"workers": 2, "threads": 1}, ("ctranslate2", "mallang")),
    ]


def paths_of(tree: Path) -> dict[str, str]:
    """The environment in which `mallang` is that of a folder."""
    return {"PYTHONPATH": str(tree / "src")}


def protocol_of(rates: Mapping[str, Outcome], commit: str, rounds: int) -> str:
    """How it was measured, with all rates."""
    speeds = ", ".join(f"{label} {one.rate:,.1f}" for label, one in rates.items())
    return f"older commit {commit}; sentences/s: {speeds}; each in a process of its own, by turns, median of {rounds}"
