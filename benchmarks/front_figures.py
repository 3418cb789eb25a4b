"""The two pictures of the README: attention with Hangul, and quality against minutes of training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.svg import drawing, line, text
from mallang.inspection.families import COLORS, family_of

LAYER = "decoder.0.cross"
"""The layer whose mean over the heads makes the fewest alignment errors on miniworld."""
MARKED = ("배를", "배가", "pear", "ship", "stomach")
"""The word with three meanings, and its translations."""
INK, ACCENT = "#2f6fed", "#e8590c"
CELL_WIDTH, CELL_HEIGHT = 57, 26

Map = Mapping[str, Any]
"""What one picture of attention is drawn from: source, output, keys, queries, weights."""


@dataclass(frozen=True)
class Point:
    """One model: how good it is after how many minutes."""

    name: str
    model: str
    """The name of its file in models/, which says of which family it is."""
    minutes: float
    value: float
    is_left: bool = False
    """Whether its label stands on the left of it."""


@dataclass(frozen=True)
class Field:
    """A field of points with its axes."""

    title: str
    subtitle: str
    points: Sequence[Point]
    low: float
    high: float
    """The values at the bottom and at the top; a perplexity falls from bottom to top."""
    ticks: Sequence[float]
    decimals: int = 1


def read_attention(run: Path, sentences: Sequence[str]) -> list[dict[str, Any]]:
    """The attention between words behind the translations of a run, the mean over heads of one layer."""
    import mallang
    from mallang.inspection.alignment import in_words

    model = mallang.load(run, device="cpu")
    found = []
    for sentence in sentences:
        seen = in_words(mallang.attention_of(model, sentence))
        shown = seen.maps[LAYER]
        rows = [[round(weight, 2) for weight in row] for row in shown.weights.mean(dim=0).tolist()]
        found.append(
            {
                "source": sentence,
                "output": seen.output,
                "keys": list(shown.keys),
                "queries": list(shown.queries)[:-1],  # without </s>, which ends the output
                "weights": rows[:-1],
            }
        )
    return found


def draw_attention(maps: Sequence[Map]) -> str:
    """The first map on the left, the others under each other on its right."""
    first, *others = maps
    left, right = 24, 510
    elements, bottom = panel(first, left, 40)
    top = 40.0
    for each in others:
        drawn, top = panel(each, right, top)
        elements += drawn
        top += 34
    height = round(max(bottom, top - 34)) + 46
    said = "Rows: English words it writes. Columns: Korean words it attends to. Cross-attention, mean of the heads."
    elements.append(text(left, height - 18, said, size=13, color="faint"))
    return drawing(900, height, "Attention of a Korean to English Transformer", elements)


def panel(shown: Map, left: float, top: float) -> tuple[list[str], float]:
    """One map: a row for each output word, a column for each source word; and where it ends."""
    margin = 66
    found = next(query for query in shown["queries"] if query.rstrip(".") in MARKED)
    elements = [text(left, top, f"배 → {found}", size=18, bold=True, color=ACCENT)]
    x, y = left + margin, top + 42
    for column, key in enumerate(shown["keys"]):
        color = ACCENT if key in MARKED else "faint" if key == "</s>" else ""
        place = x + (column + 0.5) * CELL_WIDTH
        elements.append(text(place, y - 9, key, size=14, anchor="middle", bold=key in MARKED, color=color))
    for row, (query, weights) in enumerate(zip(shown["queries"], shown["weights"], strict=True)):
        is_marked = query.rstrip(".") in MARKED
        base = y + (row + 0.5) * CELL_HEIGHT + 5
        color = ACCENT if is_marked else ""
        elements.append(text(x - 9, base, query, size=14, anchor="end", bold=is_marked, color=color))
        for column, weight in enumerate(weights):
            cell = (x + column * CELL_WIDTH + 1, y + row * CELL_HEIGHT + 1)
            ink = ACCENT if is_marked and shown["keys"][column] in MARKED else INK
            elements.append(square(*cell, weight, ink))
    return elements, y + len(shown["queries"]) * CELL_HEIGHT


def square(x: float, y: float, weight: float, ink: str) -> str:
    """One weight as a colored field."""
    size = f'x="{x:g}" y="{y:g}" width="{CELL_WIDTH - 2}" height="{CELL_HEIGHT - 2}" rx="3"'
    faint = f'<rect class="empty" {size}/>'
    return faint if weight < 0.01 else f'{faint}<rect {size} fill="{ink}" fill-opacity="{weight:g}"/>'


def draw_generations(fields: Sequence[Field]) -> str:
    """Fields side by side, under them what the colors mean."""
    width, height, gap = 900, 430, 70
    each = (width - 30 - gap * len(fields)) / len(fields)
    elements: list[str] = []
    for place, field in enumerate(fields):
        elements += draw_field(field, 58 + place * (each + gap), 78, each, 268)
    x = 24.0
    for family, color in COLORS.items():
        if family not in {family_of(point.model) for field in fields for point in field.points}:
            continue
        elements.append(f'<circle cx="{x + 5:g}" cy="{height - 22}" r="5" fill="{color}"/>')
        elements.append(text(x + 15, height - 18, family, color=color, bold=True))
        x += 38 + 7.4 * len(family)
    return drawing(width, height, "Quality of every model against minutes of training", elements)


def draw_field(field: Field, left: float, top: float, width: float, height: float) -> list[str]:
    """Axes, grid and labeled points; minutes on a logarithmic scale."""

    def across(minutes: float) -> float:
        return left + width * share(math.log(minutes), math.log(0.013), math.log(45))

    def down(value: float) -> float:
        return top + height * (1 - share(value, field.low, field.high))

    elements = [text(left, top - 44, field.title, size=16, bold=True)]
    elements.append(text(left, top - 24, field.subtitle, color="faint"))
    for tick in field.ticks:
        elements.append(line(left, down(tick), left + width, down(tick)))
        elements.append(text(left - 7, down(tick) + 4, f"{tick:g}", size=12, anchor="end", color="faint"))
    for minutes, said in ((1 / 60, "1 s"), (1 / 6, "10 s"), (1, "1 min"), (10, "10 min")):
        elements.append(line(across(minutes), top, across(minutes), top + height))
        elements.append(text(across(minutes), top + height + 18, said, size=12, anchor="middle", color="faint"))
    for point in field.points:
        elements += draw_point(point, across(point.minutes), down(point.value), field.decimals)
    return elements


def draw_point(point: Point, x: float, y: float, decimals: int) -> list[str]:
    """A dot with its name and value beside it."""
    color = COLORS[family_of(point.model)]
    said = f"{point.name} {point.value:.{decimals}f}"
    place, anchor = (x - 9, "end") if point.is_left else (x + 9, "start")
    label = text(place, y + 4, said, size=12.5, anchor=anchor, color=color, bold=True)
    return [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{color}"/>', label]


def share(value: float, low: float, high: float) -> float:
    """Where a value lies between two others."""
    return round((value - low) / (high - low), 4)
