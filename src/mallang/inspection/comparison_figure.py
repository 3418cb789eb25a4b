"""A comparison as a picture: quality against parameters, FLOPs and seconds of training, and curves over ranges."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from mallang.errors import require
from mallang.inspection.comparison_tables import scientific, short
from mallang.inspection.figures import check_format, families, save

if TYPE_CHECKING:
    from mallang.inspection.comparison import Comparison
    from mallang.inspection.language_comparison import LanguageComparison
    from mallang.inspection.systems import Value

    Compared: TypeAlias = Comparison | LanguageComparison

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933")
"""Those of Okabe and Ito, which people who see colours differently can tell apart; the last for want of yellow."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")


@runtime_checkable
class Ranged(Protocol):
    """A range of lengths or positions, and how much is in it."""

    @property
    def name(self) -> str:
        """Such as 8-15."""

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class Lengths:
    """A curve a system over ranges, and what both axes say."""

    ranges: Sequence[Ranged]
    curves: Mapping[str, Sequence[Value]]
    measure: str
    axis: str


def draw_fields(path: Path, comparison: Compared, lengths: Lengths, title: str) -> Path:
    """Three fields of points and one of curves, with one legend."""
    check_format(path)
    letters = {"fontfamily": families(), "parse_math": False}
    figure = require("matplotlib.figure", "plots").Figure(figsize=(11, 8.5), layout="constrained")
    fields = figure.subplots(2, 2).flatten().tolist()
    costs: list[tuple[str, Callable[[Any], float | None]]] = [
        ("parameters", lambda system: system.parameters),
        ("FLOPs of training", lambda system: system.flops),
        ("seconds of training", lambda system: system.seconds),
    ]
    for place, (cost, measure) in enumerate(costs):
        draw_points(fields[place], comparison, cost, measure, letters)
    draw_lengths(fields[3], lengths, letters)
    handles, labels = fields[3].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=min(4, len(labels)), prop={"family": letters["fontfamily"]}
    )
    figure.suptitle(unicodedata.normalize("NFC", title), **letters)
    save(figure, path)
    return path


def draw_curves(path: Path, lengths: Lengths, title: str = "") -> Path:
    """The curves alone."""
    check_format(path)
    letters = {"fontfamily": families(), "parse_math": False}
    figure = require("matplotlib.figure", "plots").Figure(figsize=(8, 5.5), layout="constrained")
    field = figure.subplots()
    draw_lengths(field, lengths, letters)
    figure.legend(loc="outside lower center", ncols=min(3, len(lengths.curves)), prop={"family": letters["fontfamily"]})
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
    """A point a system, with its interval; what has no such cost is not drawn."""
    field.set_xlabel(cost, **letters)
    field.set_ylabel(comparison.metric, **letters)
    field.grid(alpha=0.3)
    drawn = []
    system: Any
    for number, system in enumerate(comparison.systems):
        at, value = measure(system), system.scores[comparison.metric]
        if at is not None and at > 0:
            drawn.append(at)
            field.errorbar([at], [value.mean], yerr=reach([value]), **look(number), capsize=3)
    if drawn:
        field.set_xscale("log")
        field.margins(x=0.15)
        ticker = require("matplotlib.ticker", "plots")
        # Labels at 1, 2 and 5 where there is room for them.
        steps = (1, 2, 5) if max(drawn) < 100 * min(drawn) else (1,)
        name = scientific if cost.startswith("FLOPs") else short
        field.xaxis.set_major_locator(ticker.LogLocator(subs=steps))
        field.xaxis.set_major_formatter(ticker.FuncFormatter(lambda at, _: name(float(at))))
        field.xaxis.set_minor_formatter(ticker.NullFormatter())
    else:
        field.text(0.5, 0.5, "not known", transform=field.transAxes, horizontalalignment="center")


def draw_lengths(field: Any, lengths: Lengths, letters: Mapping[str, Any]) -> None:
    """A curve a system over the ranges, with how much is in each."""
    ranges, curves = lengths.ranges, lengths.curves
    for number, (name, values) in enumerate(curves.items()):
        # A little apart, so that the intervals of several systems can be seen.
        places = [place + 0.06 * (number - (len(curves) - 1) / 2) for place in range(len(values))]
        field.errorbar(
            places,
            [value.mean for value in values],
            yerr=reach(values),
            label=unicodedata.normalize("NFC", name),
            **look(number, line="-"),
            capsize=2,
            elinewidth=0.8,
        )
    field.set_xticks(range(len(ranges)), [f"{some.name}\n{len(some)}" for some in ranges], **letters)
    field.set_xlim(-0.5, len(ranges) - 0.5)
    field.set_xlabel(lengths.axis, **letters)
    field.set_ylabel(lengths.measure, **letters)
    field.grid(alpha=0.3)


def reach(values: Sequence[Value]) -> list[list[float]]:
    """How far the intervals, or the deviations, reach below and above."""
    low, high = [], []
    for value in values:
        spread = value.deviation or 0.0
        low.append(spread if value.low is None else max(0.0, value.mean - value.low))
        high.append(spread if value.high is None else max(0.0, value.high - value.mean))
    return [low, high]


def look(number: int, line: str = "none") -> dict[str, Any]:
    """How a system is drawn: the same in every field."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": line,
        "markersize": 6,
    }
