"""A comparison as a picture: quality against parameters, FLOPs and seconds of training, and by source length."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mallang.errors import require
from mallang.evaluation.lengths import Bucket
from mallang.inspection.comparison_tables import scientific, short
from mallang.inspection.figures import check_format, families

if TYPE_CHECKING:
    from mallang.inspection.comparison import Comparison, System, Value

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933")
"""Those of Okabe and Ito, which people who see colours differently can tell apart; the last for want of yellow."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")


def draw_comparison(path: Path, comparison: Comparison) -> Path:
    """Three fields of points and one of curves, with one legend."""
    check_format(path)
    letters = {"fontfamily": families(), "parse_math": False}
    figure = require("matplotlib.figure", "plots").Figure(figsize=(11, 8.5), layout="constrained")
    fields = figure.subplots(2, 2).flatten().tolist()
    costs: list[tuple[str, Callable[[System], float | None]]] = [
        ("parameters", lambda system: system.parameters),
        ("FLOPs of training", lambda system: system.flops),
        ("seconds of training", lambda system: system.seconds),
    ]
    for place, (cost, measure) in enumerate(costs):
        draw_points(fields[place], comparison, cost, measure, letters)
    curves = {system.name: system.by_length for system in comparison.systems}
    draw_lengths(fields[3], comparison.buckets, curves, comparison.metric, letters)
    handles, labels = fields[3].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=min(4, len(labels)), prop={"family": letters["fontfamily"]}
    )
    title = f"{comparison.metric}, {comparison.rows:,} rows of {comparison.text}"
    figure.suptitle(unicodedata.normalize("NFC", title), **letters)
    figure.savefig(path, dpi=150)
    return path


def draw_curves(
    path: Path, buckets: Sequence[Bucket], curves: Mapping[str, Sequence[Value]], metric: str, title: str = ""
) -> Path:
    """The curves over source length alone."""
    check_format(path)
    letters = {"fontfamily": families(), "parse_math": False}
    figure = require("matplotlib.figure", "plots").Figure(figsize=(8, 5.5), layout="constrained")
    field = figure.subplots()
    draw_lengths(field, buckets, curves, metric, letters)
    figure.legend(loc="outside lower center", ncols=min(3, len(curves)), prop={"family": letters["fontfamily"]})
    figure.suptitle(unicodedata.normalize("NFC", title), **letters)
    figure.savefig(path, dpi=150)
    return path


def draw_points(
    field: Any,
    comparison: Comparison,
    cost: str,
    measure: Callable[[System], float | None],
    letters: Mapping[str, Any],
) -> None:
    """A point a system, with its interval; what has no such cost is not drawn."""
    field.set_xlabel(cost, **letters)
    field.set_ylabel(comparison.metric, **letters)
    field.grid(alpha=0.3)
    drawn = []
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


def draw_lengths(
    field: Any,
    buckets: Sequence[Bucket],
    curves: Mapping[str, Sequence[Value]],
    metric: str,
    letters: Mapping[str, Any],
) -> None:
    """A curve a system over the ranges of source length, with the number of rows of each."""
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
    field.set_xticks(range(len(buckets)), [f"{bucket.name}\n{len(bucket)}" for bucket in buckets], **letters)
    field.set_xlim(-0.5, len(buckets) - 0.5)
    field.set_xlabel(f"{buckets[0].unit} of the source; rows", **letters)
    field.set_ylabel(metric, **letters)
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
