"""The classifiers of one corpus in the order of their accuracy, with paired intervals of how far each is behind.

Which test texts every run got right is kept in understanding-right.jsonl, so that a system measured later is compared
on the same texts with those that were measured before. A difference is that of the means over seeds, text by text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from benchmarks import report
from benchmarks.report import Result
from benchmarks.understanding_runs import ALL, Line, is_right
from mallang.evaluation.score import RESAMPLES, SEED

RIGHT = Path(__file__).with_name("understanding-right.jsonl")
Shares = Float[np.ndarray, " texts"]
"""For every test text the share of seeds that are right."""
Kept = dict[str, Any]
"""One final run: its system, corpus, seed, and which of how many texts it got right."""


def kept_of(line: Line) -> Kept:
    """What is kept of the line of a final run."""
    about = {key: line[key] for key in ("corpus", "system", "seed", "commit", "hardware", "seconds", "right")}
    return {**about, "count": line[ALL]["accuracy"]["count"]}


def keep_right(lines: Iterable[Line], path: Path = RIGHT) -> list[Kept]:
    """All that is kept, with these lines; a run that was measured again takes the place of its old line."""
    known = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
    runs = {(each["corpus"], each["system"], each["seed"]): each for each in known}
    runs |= {(each["corpus"], each["system"], each["seed"]): each for each in map(kept_of, classified(lines))}
    found = [runs[key] for key in sorted(runs)]
    path.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in found), "utf-8")
    return found


def classified(lines: Iterable[Line]) -> list[Line]:
    """The final runs that say which texts they got right."""
    return [line for line in lines if "right" in line]


def by_corpus(runs: Iterable[Kept]) -> dict[str, dict[str, list[Kept]]]:
    """The runs of every system of every corpus."""
    found: dict[str, dict[str, list[Kept]]] = {}
    for each in runs:
        found.setdefault(each["corpus"], {}).setdefault(each["system"], []).append(each)
    return found


def mean_right(runs: Sequence[Kept]) -> Shares:
    """For every test text the share of seeds that are right."""
    shares: Shares = np.mean([is_right(run["right"], run["count"]) for run in runs], axis=0)
    return shares


def ordered(systems: dict[str, list[Kept]]) -> dict[str, Shares]:
    """The systems of a corpus, the most accurate first."""
    found = {system: mean_right(runs) for system, runs in systems.items()}
    return {system: found[system] for system in sorted(found, key=lambda system: -float(found[system].mean()))}


def gap(first: Shares, other: Shares) -> tuple[float, float, float]:
    """The difference of two systems on the same texts in points, and its 95 % interval by a paired bootstrap."""
    difference = 100 * (first - other)
    random, count = np.random.default_rng(SEED), len(difference)  # one draw at a time: all of 50,000 texts take 400 MB
    means = [difference[random.integers(count, size=count)].mean() for _ in range(RESAMPLES)]
    low, high = np.quantile(means, (0.025, 0.975))
    return float(difference.mean()), float(low), float(high)


def show_order(lines: Iterable[Line]) -> None:
    """Print the classifiers of every corpus in the order of their accuracy, with how far each is from the first."""
    for corpus, systems in by_corpus(map(kept_of, classified(lines))).items():
        shares = ordered(systems)
        first = next(iter(shares.values()))
        gaps = {system: gap(first, other) for system, other in shares.items()}
        rows = [
            (system, f"{100 * shares[system].mean():.2f}", f"{behind:.2f}", f"{low:.2f} to {high:.2f}")
            for system, (behind, low, high) in gaps.items()
        ]
        if len(rows) > 1:
            report.show(f"{corpus}, test", [("system", "accuracy", "behind the first", "95 % interval"), *rows])


def order_results(runs: Iterable[Kept]) -> list[tuple[str, Result]]:
    """How far each classifier of a corpus is behind the most accurate one, with the names of their files."""
    found = []
    for corpus, systems in by_corpus(runs).items():
        (best, first), *others = ordered(systems).items()
        for system, shares in others:
            behind, low, high = gap(first, shares)
            last = systems[system][-1]
            seeds = f"mean over {len(systems[system])} and {len(systems[best])} seeds"
            result = Result(
                system=system, corpus=corpus, split="test", metric="accuracy behind the best, points",
                value=round(behind, 2), commit=last["commit"], hardware=last["hardware"], seconds=last["seconds"],
                protocol=f"{100 * shares.mean():.2f} against {100 * first.mean():.2f} of {best}, {seeds}, "
                f"{len(shares):,} texts, 95 % interval {low:.2f} to {high:.2f} (paired bootstrap)",
            )  # fmt: skip
            found.append((f"behind-{corpus.replace('/', '-')}-{system}", result))
    return found
