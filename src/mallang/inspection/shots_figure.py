"""The figure of a score by the number of examples in the prompt, with one line per model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mallang.errors import require
from mallang.evaluation.score import Score
from mallang.inspection.figures import check_format, families, save

Point = tuple[str, int, int, Score]
"""A run, its parameters, the number of shots, and the score."""


def draw_shots(path: Path, points: Sequence[Point]) -> Path:
    """One line per run, with the interval of every point; runs by size, the largest first."""
    check_format(path)
    figure = require("matplotlib.figure", "plots").Figure(figsize=(6.4, 4.2), layout="constrained")
    field = figure.subplots()
    letters = {"fontfamily": families(), "parse_math": False}
    sizes = {run: parameters for run, parameters, _, _ in points}
    for run in sorted(sizes, key=lambda name: (-sizes[name], name)):
        own = sorted(((shots, score) for name, _, shots, score in points if name == run), key=lambda pair: pair[0])
        values = [score.value for _, score in own]
        ends = [
            (value - (score.low or value), (score.high or value) - value)
            for value, (_, score) in zip(values, own, strict=True)
        ]
        below, above = (tuple(side) for side in zip(*ends, strict=True))
        label = f"{run} ({sizes[run]:,})"
        field.errorbar([shots for shots, _ in own], values, yerr=(below, above), marker="o", capsize=3, label=label)
    field.set_xlabel("examples in the prompt")
    field.set_ylabel(points[0][3].name)
    field.set_xticks(sorted({shots for _, _, shots, _ in points}))
    field.grid(alpha=0.3)
    field.legend(prop={"family": families(), "size": 9})
    for text in field.get_legend().get_texts():
        text.set(**letters)
    save(figure, path)
    return path
