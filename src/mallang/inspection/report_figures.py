"""Figures of reports: the confusion matrix, and the reliability diagram."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mallang.errors import require
from mallang.evaluation.calibration import Bin
from mallang.evaluation.classification import Confusion
from mallang.inspection.figures import SLANTED, check_format, families, save, show

WRITTEN = 30
"""Most classes whose counts are written into the cells."""
COLORS = ("#c44e52", "#4287f5")


def draw_confusion(path: Path, confusion: Confusion, title: str) -> Path:
    """A heat map: rows are gold classes, columns outputs; the color is the share of the row, the number the count."""
    check_format(path)
    table, classes = confusion.table, [show(str(name)) for name in confusion.classes]
    size = max(3.2, min(16.0, 0.42 * len(classes) + 2.0))
    figure = require("matplotlib.figure", "plots").Figure(figsize=(size + 0.8, size), layout="constrained")
    letters = {"fontfamily": families(), "parse_math": False}
    small = {**letters, "fontsize": max(3.0, min(10.0, 300 / max(1, len(classes))))}
    field = figure.subplots()
    shares = table / np.maximum(1, table.sum(axis=1, keepdims=True))
    image = field.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0)
    field.set_xticks(range(len(classes)), classes, **small, **SLANTED)
    field.set_yticks(range(len(classes)), classes, **small)
    field.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False)
    field.set_xlabel("output", **letters)
    field.set_ylabel("gold", **letters)
    for row, column in zip(*np.nonzero(table), strict=True) if len(classes) <= WRITTEN else ():
        color = "white" if shares[row, column] > 0.5 else "black"
        middle = {"horizontalalignment": "center", "verticalalignment": "center"}
        field.text(column, row, f"{table[row, column]:,}", color=color, **small, **middle)
    figure.colorbar(image, ax=field, shrink=0.6, label="share of the gold class")
    figure.suptitle(unicodedata.normalize("NFC", title), **letters)
    save(figure, path)
    return path


def draw_reliability(path: Path, curves: Mapping[str, Sequence[Bin]], title: str) -> Path:
    """Accuracy against confidence, a point per bin of equally many texts; on the diagonal confidences are right."""
    check_format(path)
    figure = require("matplotlib.figure", "plots").Figure(figsize=(5.2, 5.4), layout="constrained")
    letters: dict[str, Any] = {"fontfamily": families(), "parse_math": False}
    field = figure.subplots()
    field.plot([0, 1], [0, 1], color="#8a8a94", linestyle="--", linewidth=1)
    for (name, bins), color in zip(curves.items(), COLORS, strict=False):
        points = [each.confidence for each in bins], [each.accuracy for each in bins]
        field.plot(*points, marker="o", markersize=4, color=color, label=name)
    lowest = min([each.confidence for bins in curves.values() for each in bins], default=0.0)
    lowest = min([lowest, *(each.accuracy for bins in curves.values() for each in bins)])
    field.set_xlim(max(0.0, lowest - 0.05), 1.02)
    field.set_ylim(max(0.0, lowest - 0.05), 1.02)
    field.set_xlabel("confidence", **letters)
    field.set_ylabel("accuracy", **letters)
    field.legend(loc="best", prop={"family": families()})
    figure.suptitle(unicodedata.normalize("NFC", title), **letters)
    save(figure, path)
    return path
