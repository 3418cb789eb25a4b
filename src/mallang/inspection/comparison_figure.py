"""The figure of a comparison: quality against parameters, training FLOPs and seconds, and curves over ranges."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from mallang.errors import require
from mallang.inspection.comparison_tables import scientific, short
from mallang.inspection.families import COLORS as FAMILY_COLORS
from mallang.inspection.families import family_of
from mallang.inspection.figures import check_format, families, save

if TYPE_CHECKING:
    from mallang.inspection.comparison import Comparison
    from mallang.inspection.language_comparison import LanguageComparison
    from mallang.inspection.systems import Value

    Compared: TypeAlias = Comparison | LanguageComparison
Label = tuple[str, float, float, str]
"""A name, where its point is, and its color."""

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933")
"""Colors of systems of no known family: the color-blind safe palette of Okabe and Ito; the last replaces yellow."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
LINES = ("-", "--", ":", "-.")
APART = 0.055
"""The minimum distance of two labels, as a share of the height of a panel."""


@runtime_checkable
class Ranged(Protocol):
    """A range of lengths or positions, and how much is in it."""

    @property
    def name(self) -> str:
        """Such as 8-15."""

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class Lengths:
    """One curve per system over ranges, and the labels of both axes."""

    ranges: Sequence[Ranged]
    curves: Mapping[str, Sequence[Value]]
    measure: str
    axis: str


def draw_fields(path: Path, comparison: Compared, lengths: Lengths | None, title: str) -> Path:
    """Three panels of points and one of curves, if there are some; labels are beside points and at ends of curves."""
    check_format(path)
    letters = {"fontfamily": families(), "parse_math": False}
    size, grid = ((12.5, 8.5), (2, 2)) if lengths is not None else ((16, 4.5), (1, 3))
    figure = require("matplotlib.figure", "plots").Figure(figsize=size, layout="constrained")
    fields = figure.subplots(*grid).flatten().tolist()
    costs: list[tuple[str, Callable[[Any], float | None]]] = [
        ("parameters", lambda system: system.parameters),
        ("FLOPs of training", lambda system: system.flops),
        ("seconds of training", lambda system: system.seconds),
    ]
    for place, (cost, measure) in enumerate(costs):
        draw_points(fields[place], comparison, cost, measure, letters)
    if lengths is not None:
        draw_lengths(fields[3], lengths, letters)
    figure.suptitle(unicodedata.normalize("NFC", title), **letters)
    save(figure, path)
    return path


def draw_points(
    field: Any,
    comparison: Compared,
    cost: str,
    measure: Callable[[Any], float | None],
    letters: Mapping[str, Any],
) -> None:
    """One point per system, with its interval; systems without this cost are not drawn."""
    field.set_xlabel(cost, **letters)
    field.set_ylabel(comparison.metric, **letters)
    field.grid(alpha=0.3)
    drawn = []
    labels: list[Label] = []
    looks = looks_of([system.name for system in comparison.systems])
    system: Any
    for system in comparison.systems:
        at, value = measure(system), system.scores[comparison.metric]
        if at is not None and at > 0:
            drawn.append(at)
            style = {**looks[system.name], "linestyle": "none"}
            field.errorbar([at], [value.mean], yerr=reach([value]), **style, capsize=3)
            labels.append((system.name, at, value.mean, style["color"]))
    if drawn:
        field.set_xscale("log")
        field.margins(x=0.15, y=0.1)
        write_labels(field, labels, letters)
        ticker = require("matplotlib.ticker", "plots")
        # Tick labels at 1, 2 and 5 where there is room for them.
        steps = (1, 2, 5) if max(drawn) < 100 * min(drawn) else (1,)
        name = scientific if cost.startswith("FLOPs") else short
        field.xaxis.set_major_locator(ticker.LogLocator(subs=steps))
        field.xaxis.set_major_formatter(ticker.FuncFormatter(lambda at, _: name(float(at))))
        field.xaxis.set_minor_formatter(ticker.NullFormatter())
    else:
        field.text(0.5, 0.5, "not known", transform=field.transAxes, horizontalalignment="center")


def draw_lengths(field: Any, lengths: Lengths, letters: Mapping[str, Any]) -> None:
    """One curve per system over the ranges, with the count of each range."""
    ranges, curves = lengths.ranges, lengths.curves
    looks, labels = looks_of(list(curves)), []
    for number, (name, values) in enumerate(curves.items()):
        # Shifted slightly, so that the intervals of several systems do not overlap.
        places = [place + 0.06 * (number - (len(curves) - 1) / 2) for place in range(len(values))]
        field.errorbar(
            places,
            [value.mean for value in values],
            yerr=reach(values),
            **looks[name],
            capsize=2,
            elinewidth=0.8,
        )
        known = [(place, value.mean) for place, value in zip(places, values, strict=True) if isfinite(value.mean)]
        if known:
            labels.append((name, *known[-1], looks[name]["color"]))
    field.set_xticks(range(len(ranges)), [f"{some.name}\n{len(some)}" for some in ranges], **letters)
    field.set_xlim(-0.5, len(ranges) - 0.5)
    write_labels(field, labels, letters)
    field.set_xlabel(lengths.axis, **letters)
    field.set_ylabel(lengths.measure, **letters)
    field.grid(alpha=0.3)


def reach(values: Sequence[Value]) -> list[list[float]]:
    """The lengths of the error bars below and above: intervals, or standard deviations."""
    low, high = [], []
    for value in values:
        spread = value.deviation or 0.0
        low.append(spread if value.low is None else max(0.0, value.mean - value.low))
        high.append(spread if value.high is None else max(0.0, value.high - value.mean))
    return [low, high]


def write_labels(field: Any, labels: Sequence[Label], letters: Mapping[str, Any]) -> None:
    """Labels in a column to the right of a panel, as close to the height of their points as there is room."""
    low, high = field.get_ylim()
    for (name, at, height, color), place in zip(
        labels, spread([label[2] for label in labels], APART * (high - low)), strict=True
    ):
        field.annotate(
            unicodedata.normalize("NFC", name),
            xy=(at, height),
            xytext=(1.02, place),
            textcoords=field.get_yaxis_transform(),
            color=color,
            fontsize=9,
            verticalalignment="center",
            arrowprops={
                "arrowstyle": "-",
                "color": color,
                "alpha": 0.35,
                "linewidth": 0.7,
                "shrinkB": 5,
                "relpos": (0, 0.5),
            },
            annotation_clip=False,
            **letters,
        )


def spread(wanted: Sequence[float], least: float) -> list[float]:
    """Heights near the wanted ones, at least `least` apart, in the given order."""
    order = sorted(range(len(wanted)), key=lambda place: wanted[place])
    found = [wanted[place] for place in order]
    for _ in range(200):
        for place in range(1, len(found)):
            lacking = least - (found[place] - found[place - 1])
            if lacking > 0:
                found[place - 1] -= lacking / 2
                found[place] += lacking / 2
    heights = dict(zip(order, found, strict=True))
    return [heights[place] for place in range(len(wanted))]


def looks_of(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The style of each system in all panels: the color of its family, its own marker and line style."""
    looks: dict[str, dict[str, Any]] = {}
    for number, name in enumerate(names):
        family = family_of(name)
        before = sum(family_of(other) == family for other in names[:number])
        looks[name] = {
            "color": COLORS[number % len(COLORS)] if family == "other" else FAMILY_COLORS[family],
            "marker": MARKERS[number % len(MARKERS)],
            "linestyle": "-" if family == "other" else LINES[before % len(LINES)],
            "markersize": 6,
        }
    return looks
