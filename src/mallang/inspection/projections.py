"""Projections of word or text vectors to two dimensions, by PCA or t-SNE.

PCA projects onto the two directions of largest variance; it is linear and deterministic, and no distance grows. t-SNE
(van der Maaten and Hinton 2008) preserves neighborhoods instead; distances between far points mean nothing in it, and
another seed gives another map.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Float

from mallang.errors import UserError, nearest, require
from mallang.inspection.figures import FORMATS, check_format, drawable, families, save

Method = Literal["pca", "tsne"]
LABEL_SIZE = 9.0
"""Font size of labels in points."""
LONGEST = 24
"""Maximum number of characters of a label."""


@dataclass(frozen=True)
class Map:
    """Labeled points on a plane."""

    labels: tuple[str, ...]
    points: Float[np.ndarray, "labels 2"]
    method: str
    explained: tuple[float, float] | None = None
    """PCA: the share of the variance that each axis explains."""

    def to_json(self) -> dict[str, Any]:
        """The map as data."""
        placed = zip(self.labels, self.points.tolist(), strict=True)
        return {
            "method": self.method,
            "explained": self.explained,
            "points": [{"text": label, "x": x, "y": y} for label, (x, y) in placed],
        }

    def write(self, path: Path) -> Path:
        """Write a figure, .png or .svg, or the data, .json."""
        if path.suffix.lower() == ".json":
            path.write_text(json.dumps(self.to_json(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
            return path
        return draw_map(path, self)


def make_map(
    labels: Sequence[str], vectors: Float[np.ndarray, "labels dim"], method: str = "pca", seed: int = 1
) -> Map:
    """The map of labeled vectors; `seed` matters for t-SNE only."""
    if method not in get_args(Method):
        raise UserError(f"a map cannot be made by {method!r}", todo=nearest(method, get_args(Method)))
    if len(labels) < 3:
        raise UserError(f"a map needs at least 3 texts, but {len(labels)} were given", todo="give more, a line each")
    if method == "tsne":
        return Map(tuple(labels), tsne(vectors, seed), "tsne")
    points, explained = pca(vectors)
    return Map(tuple(labels), points, "pca", explained)


def pca(vectors: Float[np.ndarray, "rows dim"]) -> tuple[Float[np.ndarray, "rows 2"], tuple[float, float]]:
    """The two principal components of each row, and the share of the variance that each of them has.

    Computed by the SVD of the centered rows. The sign of a component is arbitrary: the largest entry is made positive.
    """
    centered = np.asarray(vectors, dtype=np.float64)
    centered = centered - centered.mean(axis=0)
    _, spread, directions = np.linalg.svd(centered, full_matrices=False)
    largest = directions[np.arange(len(directions)), np.abs(directions).argmax(axis=1)]
    directions = directions * np.where(largest < 0, -1.0, 1.0)[:, None]
    points, shares = np.zeros((len(centered), 2)), [0.0, 0.0]
    variance = spread**2
    for axis in range(min(2, len(directions))):
        points[:, axis] = centered @ directions[axis]
        shares[axis] = float(variance[axis] / variance.sum()) if variance.sum() else 0.0
    return points, (shares[0], shares[1])


def tsne(vectors: Float[np.ndarray, "rows dim"], seed: int = 1) -> Float[np.ndarray, "rows 2"]:
    """t-SNE by scikit-learn, initialized by PCA; the perplexity is lowered for few rows."""
    manifold = require("sklearn.manifold", "maps")
    perplexity = min(30.0, (len(vectors) - 1) / 3)
    start = "pca" if min(vectors.shape) >= 2 else "random"
    found = manifold.TSNE(perplexity=perplexity, init=start, random_state=seed).fit_transform(vectors)
    return np.asarray(found, dtype=np.float64)


def draw_map(path: Path, made: Map) -> Path:
    """A figure of a map, .png or .svg: one point per text, with its label."""
    check_format(path)
    side = min(14.0, 5.0 + len(made.labels) ** 0.5)  # inches
    figure = require("matplotlib.figure", "plots").Figure(figsize=(side, side * 0.8), layout="constrained")
    field = figure.subplots()
    field.scatter(made.points[:, 0], made.points[:, 1], s=12, color="tab:blue", zorder=3)
    field.margins(0.12)
    field.tick_params(labelsize=LABEL_SIZE - 2)
    if made.explained is not None:
        first, second = (
            f"component {axis}: {share:.0%} of the variance" for axis, share in enumerate(made.explained, 1)
        )
        field.set_xlabel(first)
        field.set_ylabel(second)
    figure.draw_without_rendering()  # fixes the transformation from data to pixels
    letters = {"fontfamily": families(), "parse_math": False, "fontsize": LABEL_SIZE}
    place_labels(figure, field, made, letters)
    save(figure, path)
    return path


class Box(NamedTuple):
    """A rectangle in the figure, in pixels."""

    left: float
    bottom: float
    right: float
    top: float

    def overlap(self, other: Box) -> float:
        """The area of the intersection of two boxes."""
        across = min(self.right, other.right) - max(self.left, other.left)
        up = min(self.top, other.top) - max(self.bottom, other.bottom)
        return max(0.0, across) * max(0.0, up)


def place_labels(figure: Any, field: Any, made: Map, letters: dict[str, Any]) -> None:
    """Place each label where it overlaps least: right, left, above or below its point, near or a little further."""
    dots = field.transData.transform(made.points)
    taken = [Box(x - 3, y - 3, x + 3, y + 3) for x, y in dots.tolist()]
    bounds = field.get_window_extent()
    scale = 72 / figure.dpi  # points per pixel
    for label, (x, y) in zip(made.labels, dots.tolist(), strict=True):
        text = field.annotate(caption(label), (x, y), xycoords="figure pixels", **letters)
        extent = text.get_window_extent()
        wide, high = extent.width, extent.height
        text.remove()
        best = min(
            choices(x, y, wide, high),
            key=lambda box: (
                sum(box.overlap(other) for other in taken)
                + 10 * (wide * high - box.overlap(Box(bounds.x0, bounds.y0, bounds.x1, bounds.y1)))
            ),
        )
        taken.append(best)
        point = field.transData.inverted().transform((x, y))
        far = abs(best.left + wide / 2 - x) > wide / 2 + 10 or abs(best.bottom + high / 2 - y) > high / 2 + 10
        field.annotate(
            caption(label),
            tuple(point),
            xytext=((best.left - x) * scale, (best.bottom - y) * scale),
            textcoords="offset points",
            verticalalignment="bottom",
            arrowprops={"arrowstyle": "-", "color": "0.7", "linewidth": 0.5} if far else None,
            **letters,
        )


def caption(text: str) -> str:
    """A text as a label: jamo joined to syllables, on one line, truncated when it is long."""
    plain = " ".join(drawable(unicodedata.normalize("NFC", text)).split())
    return plain if len(plain) <= LONGEST else plain[: LONGEST - 1] + "…"


def choices(x: float, y: float, wide: float, high: float) -> list[Box]:
    """Candidate positions of a label of this size beside a point, the best first."""
    found = []
    for gap in (5.0, 14.0, 26.0):
        for across, up in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1)):
            left = x + gap if across > 0 else x - gap - wide if across < 0 else x - wide / 2
            bottom = y + gap if up > 0 else y - gap - high if up < 0 else y - high / 2
            found.append(Box(left, bottom, left + wide, bottom + high))
    return found


def check_map_format(path: Path) -> None:
    """Refuse a file name that is neither a figure nor JSON by its suffix."""
    if path.suffix.lower() not in (*FORMATS, ".json"):
        raise UserError(f"a map cannot be written as {path.name}", todo="end the name in .png, .svg or .json")
