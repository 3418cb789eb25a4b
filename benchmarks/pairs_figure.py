"""How many pairs of sentences is unsupervised translation worth: BLEU by the number of pairs, from results/.

python -m benchmarks.pairs_figure [--out docs/unsupervised] [--search greedy]

The curve is the supervised Transformer on the first pairs of Multi30k (benchmarks/pairs.toml), the horizontal lines are
the unsupervised systems and translation word by word. Where a line crosses the curve, log-linear between the points, is
what the system is worth. The figure and the table are written for every direction that has a curve.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import report
from mallang.errors import UserError, require

CURVE = re.compile(r"pairs-(\d+)-multi30k-([a-z]{2}-[a-z]{2})-test2016(-greedy)?-moses-lc-tok-seed\d+")
SYSTEM = re.compile(
    r"(lample|artetxe|unsupervised-transformer|unsupervised-transformer-denoising|word-by-word)"
    r"-multi30k-([a-z]{2}-[a-z]{2})-test2016(-greedy)?-moses-lc-tok-seed\d+"
)
Curve = Sequence[tuple[int, float]]


def main() -> None:
    """Draw and print what results/ has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=report.ROOT / "docs" / "unsupervised")
    parser.add_argument("--search", choices=("beam", "greedy"), default="beam")
    asked = parser.parse_args()
    curves, systems = read(report.read_results(), asked.search)
    if not curves:
        raise UserError("results/ has no curve", todo="run and collect benchmarks/pairs.toml first")
    asked.out.mkdir(parents=True, exist_ok=True)
    for direction, curve in sorted(curves.items()):
        known = systems.get(direction, {})
        rows = [(name, f"{value:.2f}", told(worth(value, curve))) for name, value in known.items()]
        report.show(f"{direction}, test2016, {asked.search}", [("system", "BLEU", "worth pairs"), *rows])
        draw(asked.out / f"pairs-{direction}.svg", direction, curve, known)


def read(values: Sequence[Mapping[str, Any]], search: str) -> tuple[dict[str, Curve], dict[str, dict[str, float]]]:
    """The curve of every direction, and its systems: means over seeds. Word by word there is no search."""
    points: dict[tuple[str, int], list[float]] = defaultdict(list)
    systems: dict[tuple[str, str], list[float]] = defaultdict(list)
    ending = "-greedy" if search == "greedy" else None
    for each in values:
        if (found := CURVE.fullmatch(each["file"])) and found[3] == ending:
            points[found[2], int(found[1])].append(each["value"])
        elif (found := SYSTEM.fullmatch(each["file"])) and (found[3] == ending or found[1] == "word-by-word"):
            systems[found[2], found[1]].append(each["value"])
    curves: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for (direction, pairs), each in sorted(points.items()):
        curves[direction].append((pairs, statistics.mean(each)))
    named: dict[str, dict[str, float]] = defaultdict(dict)
    for (direction, name), each in systems.items():
        named[direction][name] = statistics.mean(each)
    return dict(curves), dict(named)


def worth(value: float, curve: Curve) -> float:
    """The number of pairs at which the curve reaches a value first: 0 below its beginning, ∞ above its end."""
    if value <= curve[0][1]:
        return 0.0
    for (few, low), (many, high) in pairwise(curve):
        if low <= value <= high and high > low:
            share = (value - low) / (high - low)
            return math.exp(math.log(few) + share * (math.log(many) - math.log(few)))
    return math.inf


def told(pairs: float) -> str:
    """A number of pairs in words."""
    return "fewer than the curve has" if pairs == 0 else "more than there are" if math.isinf(pairs) else f"{pairs:,.0f}"


def draw(path: Path, direction: str, curve: Curve, systems: Mapping[str, float]) -> None:
    """The curve and the lines of the systems."""
    figure = require("matplotlib.figure", "plots").Figure(figsize=(6.4, 4), layout="constrained")
    field = figure.subplots()
    field.plot(*zip(*curve, strict=True), "o-", color="black", label="supervised Transformer")
    for number, (name, value) in enumerate(sorted(systems.items(), key=lambda each: -each[1])):
        field.axhline(value, color=f"C{number}", linestyle="--", label=name)
    field.set_xscale("log")
    field.set_xticks([pairs for pairs, _ in curve], [f"{pairs:,}" for pairs, _ in curve], minor=False)
    field.minorticks_off()
    field.set_xlabel("pairs of sentences")
    field.set_ylabel("BLEU, tokenized and lower-cased")
    field.set_title(f"Multi30k test2016, {direction}")
    field.legend()
    figure.savefig(path)


if __name__ == "__main__":
    main()
