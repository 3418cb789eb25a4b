"""Decoding by this code beside an older commit of it, timed in turn on the same machine; on a CPU with CTranslate2 too.

git worktree add ../8ebacd7 8ebacd7
python -m benchmarks revisions --before ../8ebacd7 --write

A ratio to a peer that was measured on another machine says little; both commits in one run say what a change costs.
On a CPU the shapes are those of `decoding_speed`, CTranslate2 with two workers of one thread, which is its faster form.
On a GPU, GPT-2 generates 1 and 64 texts at once, as in `generation_speed`.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.contest import Entrant, Outcome, race
from benchmarks.decoding_speed import METHODS
from benchmarks.gpt_models import GPT2
from benchmarks.report import Result, show
from benchmarks.shape import SMALL

NOW, BEFORE, PEER = "this code", "the older commit", "ctranslate2 2x1"


def measure(before: str = "", rounds: int = 11, batches: int = 16) -> dict[str, Result]:
    """Greedy search and beam 5, in float32 and int8; nothing without the folder of an older commit."""
    if not before:
        print("revisions are not measured: give the folder of an older commit with --before")
        return {}
    import torch

    tree, began = Path(before).resolve(), time.monotonic()
    commit = commit_of(tree)
    found: dict[str, Result] = {}
    if torch.cuda.is_available():
        return generation(tree, commit, rounds)
    for method, beam in METHODS.items():
        for weights in ("float32", "int8"):
            rates = race(entrants_of(tree, {"beam": beam, "batches": batches, "weights": weights}), rounds)
            name = f"revision-cpu-{method}-{weights}"
            show(name, [("", "sentences/s"), *((label, one.rate) for label, one in rates.items())])
            found[name] = Result(
                system="mallang", metric=f"speed now / at an older commit, {method}, {weights}",
                value=round(rates[NOW].rate / rates[BEFORE].rate, 3), seconds=round(time.monotonic() - began, 1),
                protocol=protocol_of(rates, commit, rounds), signature=rates[NOW].signature,
            )  # fmt: skip
    return found


def generation(tree: Path, commit: str, rounds: int) -> dict[str, Result]:
    """GPT-2 generates greedily in bfloat16 on a GPU, 1 and 64 texts at once."""
    found: dict[str, Result] = {}
    for rows in (1, 64):
        began = time.monotonic()
        options = {"shape": replace(GPT2, words=50257).options(), "rows": rows, "new": 256, "prompt": 8}
        options |= {"weights": "bfloat16", "device": "cuda", "compile": True}
        ours = "benchmarks.generation_entrants:ours"
        rates = race(
            [Entrant(NOW, ours, options), Entrant(BEFORE, ours, options, environment=paths_of(tree), tree=tree)], rounds
        )
        show(
            f"revision-cuda-generation-{rows}", [("", "tokens/s"), *((label, one.rate) for label, one in rates.items())]
        )
        found[f"revision-cuda-generation-{rows}"] = Result(
            system="mallang", metric=f"speed now / at an older commit, generation of {rows} on a GPU",
            value=round(rates[NOW].rate / rates[BEFORE].rate, 3), seconds=round(time.monotonic() - began, 1),
            protocol=protocol_of(rates, commit, rounds, "tokens/s"), signature=rates[NOW].signature,
        )  # fmt: skip
    return found


def commit_of(tree: Path) -> str:
    """The commit of a folder: as git says, or the name of the folder where it was copied without its history."""
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    if not (tree / ".git").exists():
        return tree.name
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True).stdout.strip()


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


def protocol_of(rates: Mapping[str, Outcome], commit: str, rounds: int, unit: str = "sentences/s") -> str:
    """How it was measured, with all rates."""
    speeds = ", ".join(f"{label} {one.rate:,.1f}" for label, one in rates.items())
    return f"older commit {commit}; {unit}: {speeds}; each in a process of its own, by turns, median of {rounds}"
