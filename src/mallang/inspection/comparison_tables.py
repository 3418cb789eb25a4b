"""The tables of a comparison as text, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mallang.inspection.comparison import Comparison, System
    from mallang.inspection.language_comparison import LanguageSystem
    from mallang.inspection.systems import Value

NOTHING = "–"
MOST_SCORES = 6
"""Scores beside the main one in a table; JSON and CSV have all."""


@dataclass(frozen=True)
class Table:
    """A table: title, header, and one line per system."""

    title: str
    head: Sequence[str]
    lines: Sequence[Sequence[str]]
    is_text: bool = False
    """Whether the cells are texts rather than aligned numbers."""


def tables(comparison: Comparison) -> list[Table]:
    """Quality, cost, and quality by source length."""
    systems, metric = comparison.systems, comparison.metric
    shared = [name for name in systems[0].scores if all(name in system.scores for system in systems)]
    others = [name for name in shared if name != metric and not name.startswith(("perplexity", "bits"))][:MOST_SCORES]
    interval = "± deviation" if all(len(system.runs) > 1 for system in systems) else "[95 %]"
    quality = [
        [system.name, shown(system.scores[metric]), *(f"{system.scores[name].mean:.2f}" for name in others),
         *against(comparison, system)]
        for system in systems
    ]  # fmt: skip
    decodes = bool(comparison.buckets)  # else rows are scored, and no tokens are written
    cost = [
        [system.name, short(system.parameters), short(system.tokens), scientific(system.flops),
         plain(system.seconds), plain(system.sentences_per_second), *[plain(system.tokens_per_second)] * decodes]
        for system in systems
    ]  # fmt: skip
    found = [
        Table(
            f"{comparison.rows:,} rows of {comparison.text}",
            ["system", f"{metric} {interval}", *others, "difference", "p", "error reduction"],
            quality,
        ),
        Table(
            "cost",
            ["system", "parameters", "tokens", "FLOPs", "seconds"]
            + (["sentences/s", "tokens/s"] if decodes else ["rows/s"]),
            cost,
        ),
    ]
    return [*found, by_length(comparison)] if comparison.buckets else found


def by_length(comparison: Comparison) -> Table:
    """The main score by source length."""
    spans = [f"{bucket.name} ({len(bucket)})" for bucket in comparison.buckets]
    lines = [[system.name, *(f"{value.mean:.2f}" for value in system.by_length)] for system in comparison.systems]
    title = f"{comparison.metric} by {comparison.buckets[0].unit} of the source (rows)"
    return Table(title, ["system", *spans], lines)


def against(comparison: Comparison, system: System) -> list[str]:
    """The comparison of a system with the baseline."""
    if system.name == comparison.baseline:
        return ["baseline", NOTHING, NOTHING]
    reduction = NOTHING if system.error_reduction is None else f"{system.error_reduction:+.1f} %"
    apart = system.scores[comparison.metric].mean - value_of_baseline(comparison)
    return [f"{apart:+.2f}", NOTHING if system.difference is None else f"{system.difference.p_value:.3f}", reduction]


def value_of_baseline(comparison: Comparison) -> float:
    """The main score of the baseline."""
    found = next(system for system in comparison.systems if system.name == comparison.baseline)
    return found.scores[comparison.metric].mean


def as_text(found: Sequence[Table], notes: Sequence[str]) -> str:
    """Tables with aligned columns, and the notes."""
    parts = []
    for table in found:
        lines = [table.head, *table.lines]
        widths = [max(map(width, column)) for column in zip(*lines, strict=True)]
        shown_lines = []
        for line in lines:
            cells = []
            for place, (cell, wide) in enumerate(zip(line, widths, strict=True)):
                room = " " * (wide - width(cell))
                cells.append(room + cell if place and not table.is_text else cell + room)
            shown_lines.append("  ".join(cells).rstrip())
        parts.append("\n".join([table.title, *shown_lines]))
    noted = "\n".join(f"note: {note}" for note in notes)
    return "\n\n".join([*parts, *filter(None, [noted])])


def as_markdown(found: Sequence[Table], notes: Sequence[str]) -> str:
    """The tables in Markdown."""
    parts = []
    for table in found:
        head = [cell.replace("|", "\\|") for cell in table.head]
        lines = [f"| {' | '.join(head)} |", "|---" + ("|---" if table.is_text else "|---:") * (len(head) - 1) + "|"]
        lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in table.lines]
        parts.append("\n".join([f"**{table.title}**", "", *lines]))
    noted = "\n".join(f"- {note}" for note in notes)
    return "\n\n".join([*parts, *filter(None, [noted])]) + "\n"


def as_csv(lines: Sequence[Mapping[str, Any]]) -> str:
    """One line per system, with all digits of every number."""
    written = io.StringIO()
    columns = list(dict.fromkeys(column for line in lines for column in line))
    writer = csv.DictWriter(written, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: "" if value is None else value for key, value in line.items()} for line in lines)
    return written.getvalue()


def flat(comparison: Comparison, system: System) -> dict[str, Any]:
    """All numbers of a system, by column name."""
    line: dict[str, Any] = {"system": system.name, "runs": " ".join(system.runs)}
    for name, value in system.scores.items():
        line |= {name: value.mean, f"{name} low": value.low, f"{name} high": value.high}
        line |= {f"{name} deviation": value.deviation}
    line |= {
        "difference": system.scores[comparison.metric].mean - value_of_baseline(comparison),
        "p": system.difference and system.difference.p_value,
        "error reduction %": system.error_reduction,
        "parameters": system.parameters,
        "tokens": system.tokens,
        "FLOPs": system.flops,
        "seconds": system.seconds,
        "sentences/s": system.sentences_per_second,
        "tokens/s": system.tokens_per_second,
    }
    for bucket, value in zip(comparison.buckets, system.by_length, strict=True):
        line[f"{comparison.metric} {bucket.name} {bucket.unit}"] = value.mean
    return line


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Plain values: JSON has no infinite numbers, so they are null."""
    systems = [
        {
            **what_it_is(system, comparison.baseline),
            "by_length": [asdict(value) for value in system.by_length],
            "error_reduction": system.error_reduction,
            "parameters": system.parameters,
            "tokens": system.tokens,
            "flops": system.flops,
            "seconds": system.seconds,
            "sentences_per_second": system.sentences_per_second,
            "tokens_per_second": system.tokens_per_second,
        }
        for system in comparison.systems
    ]
    found = {
        "task": comparison.task,
        "text": comparison.text,
        "rows": comparison.rows,
        "metric": comparison.metric,
        "baseline": comparison.baseline,
        "lengths": [
            {"name": bucket.name, "low": bucket.low, "high": bucket.high, "unit": bucket.unit, "rows": len(bucket)}
            for bucket in comparison.buckets
        ],
        "systems": systems,
        "notes": list(comparison.notes),
    }
    return finite(found)  # type: ignore[no-any-return]


def what_it_is(system: System | LanguageSystem, baseline: str) -> dict[str, Any]:
    """The plain values of a system that any comparison has: its runs, scores and difference from the baseline."""
    scores = {name: {**asdict(value), "signature": system.signatures[name]} for name, value in system.scores.items()}
    return {
        "name": system.name,
        "runs": list(system.runs),
        "is_baseline": system.name == baseline,
        "scores": scores,
        "difference": None if system.difference is None else system.difference.to_json(),
    }


def finite(value: Any) -> Any:
    """A copy of a nested value with None in place of infinity and NaN."""
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def shown(value: Value) -> str:
    """A score with its confidence interval or standard deviation."""
    if value.deviation is not None:
        return f"{value.mean:.2f} ± {value.deviation:.2f}"
    if value.low is None or value.high is None:
        return f"{value.mean:.2f}"
    return f"{value.mean:.2f} [{value.low:.2f}, {value.high:.2f}]"


def short(number: float | None) -> str:
    """A large number in short form: 12.3 M."""
    if number is None:
        return NOTHING
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return f"{number:.3g}"


def scientific(number: float | None) -> str:
    """A very large number: 3.3e18."""
    if number is None:
        return NOTHING
    digits, _, power = f"{number:.1e}".partition("e")
    return f"{digits}e{int(power)}"


def plain(number: float | None) -> str:
    """A number with its significant digits."""
    if number is None:
        return NOTHING
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def width(text: str) -> int:
    """The number of terminal columns of a text: a Hangul syllable takes two."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)
