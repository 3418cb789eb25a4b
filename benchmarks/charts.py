"""Charts in SVG: points and curves, one color per model family, a label beside each instead of a legend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.svg import drawing, line, text
from mallang.inspection.comparison_figure import spread
from mallang.inspection.families import COLORS, family_of

DASHES = ("", "7 4", "2 3", "9 3 2 3")
"""Dash patterns that distinguish the curves of one family."""
APART = 15.0
"""Between two labels, at least."""
TIMES = ((1 / 60, "1 s"), (1 / 6, "10 s"), (1, "1 min"), (10, "10 min"))


@dataclass(frozen=True)
class Box:
    """The position of a panel."""

    left: float
    top: float
    width: float
    height: float


@dataclass(frozen=True)
class Axis:
    """The values at both ends, those that are named, and whether the scale is logarithmic."""

    low: float
    high: float
    """May be below `low`: a perplexity falls from bottom to top."""
    ticks: Sequence[tuple[float, str]]
    is_log: bool = False

    def share(self, value: float) -> float:
        """The position of a value between the ends, from 0 to 1."""
        low, high, value = (math.log(each) if self.is_log else each for each in (self.low, self.high, value))
        return round((value - low) / (high - low), 4)


@dataclass(frozen=True)
class Point:
    """One model: what it costs and how good it is."""

    name: str
    model: str
    """The name of a model or recipe, which determines its family."""
    cost: float
    value: float
    is_left: bool = False
    """Whether its label is on the left of it."""


@dataclass(frozen=True)
class Points:
    """A field of points with its axes."""

    title: str
    subtitle: str
    points: Sequence[Point]
    across: Axis
    up: Axis
    decimals: int = 1
    cost: str = "training time"


@dataclass(frozen=True)
class Curve:
    """One model over several ranges; its name determines its family, unless `family` does."""

    name: str
    values: Sequence[float]
    family: str = ""


@dataclass(frozen=True)
class Curves:
    """A field of curves over ranges that have names."""

    title: str
    subtitle: str
    ranges: Sequence[str]
    curves: Sequence[Curve]
    up: Axis
    room: float = 110
    """On the right, for the labels."""


def chart(fields: Sequence[Points | Curves], said: str, *, height: float = 268, across: int = 2) -> str:
    """Fields side by side, `across` in a row; under them what the colors mean."""
    width, gap = 900, 70
    each = (width - 30 - gap * across) / across
    elements: list[str] = []
    for place, field in enumerate(fields):
        left, top = 58 + place % across * (each + gap), 78 + place // across * (height + 112)
        box = Box(left, top, each, height)
        elements += draw_points(field, box) if isinstance(field, Points) else draw_curves(field, box)
    rows = math.ceil(len(fields) / across)
    whole = round(46 + rows * (height + 112))
    return drawing(width, whole, said, [*elements, *families_of(fields, whole - 20)])


def families_of(fields: Sequence[Points | Curves], y: float) -> list[str]:
    """A line with the names of the families in their colors."""
    shown: set[str] = set()
    for field in fields:
        if isinstance(field, Points):
            shown |= {family_of(point.model) for point in field.points}
        else:
            shown |= {curve.family or family_of(curve.name) for curve in field.curves}
    elements, x = [], 24.0
    for family in (name for name in COLORS if name in shown and len(shown) > 1):
        elements.append(f'<circle cx="{x + 5:g}" cy="{y - 4:g}" r="5" fill="{COLORS[family]}"/>')
        elements.append(text(x + 15, y, family, color=COLORS[family], bold=True))
        x += 38 + 7.4 * len(family)
    return elements


def frame(field: Points | Curves, box: Box) -> list[str]:
    """The titles, and the grid of what is measured."""
    elements = [text(box.left, box.top - 44, field.title, size=16, bold=True)]
    elements.append(text(box.left, box.top - 24, field.subtitle, color="faint"))
    for value, said in field.up.ticks:
        y = box.top + box.height * (1 - field.up.share(value))
        elements.append(line(box.left, y, box.left + box.width, y))
        elements.append(text(box.left - 7, y + 4, said, size=12, anchor="end", color="faint"))
    return elements


def draw_points(field: Points, box: Box) -> list[str]:
    """Dots with their names and values."""
    elements, bottom = frame(field, box), box.top + box.height
    for value, said in field.across.ticks:
        x = box.left + box.width * field.across.share(value)
        elements.append(line(x, box.top, x, bottom))
        elements.append(text(x, bottom + 18, said, size=12, anchor="middle", color="faint"))
    elements.append(text(box.left + box.width, bottom + 36, f"{field.cost} →", size=12, anchor="end", color="faint"))
    for point in field.points:
        color = COLORS[family_of(point.model)]
        x = box.left + box.width * field.across.share(point.cost)
        y = bottom - box.height * field.up.share(point.value)
        elements.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{color}"/>')
        place, anchor = (x - 9, "end") if point.is_left else (x + 9, "start")
        said = f"{point.name} {point.value:.{field.decimals}f}"
        elements.append(text(place, y + 4, said, size=12.5, anchor=anchor, color=color, bold=True))
    return elements


def draw_curves(field: Curves, box: Box) -> list[str]:
    """Lines with their names at the right end, moved apart where they would meet."""
    elements, bottom = frame(field, box), box.top + box.height
    step = (box.width - field.room - 24) / max(1, len(field.ranges) - 1)
    places = [box.left + 12 + step * place for place in range(len(field.ranges))]
    for x, said in zip(places, field.ranges, strict=True):
        elements.append(text(x, bottom + 18, said, size=12, anchor="middle", color="faint"))
    ends = [bottom - box.height * field.up.share(curve.values[-1]) for curve in field.curves]
    styles: dict[str, int] = {}
    for curve, end, label in zip(field.curves, ends, spread(ends, APART), strict=True):
        family = curve.family or family_of(curve.name)
        color, dash = COLORS[family], DASHES[styles.get(family, 0) % len(DASHES)]
        styles[family] = styles.get(family, 0) + 1
        heights = [bottom - box.height * field.up.share(value) for value in curve.values]
        way = "L".join(f"{x:.1f} {y:.1f}" for x, y in zip(places, heights, strict=True))
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        elements.append(f'<path d="M{way}" fill="none" stroke="{color}" stroke-width="2.2"{dashed}/>')
        label = round(label, 1)
        elements.append(line(places[-1] + 3, round(end, 1), places[-1] + 15, label))
        elements.append(text(places[-1] + 19, label + 4, curve.name, size=12.5, color=color, bold=True))
    return elements
