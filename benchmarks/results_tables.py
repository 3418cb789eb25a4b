"""results/tables/*.md: every value, grouped so that values that belong together are in one row."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.ages import oldest
from benchmarks.kinds import command_of, kind_of
from benchmarks.report import cell
from benchmarks.translation_results import ENDED

Value = Mapping[str, Any]
LONG = 80
"""Characters of a protocol that is printed once above a table rather than in every row."""
WHO = ("system", "recipe", "overrides", "corpus", "direction", "split", "protocol")
"""What makes results of a kind one row: all but the metric, the seed and where they were measured."""
PROTOCOLS = ("moses-lc-tok, ", "sacrebleu, ")
"""What a protocol begins with where the metric has it too: BLEU by either is in one row."""


def all_tables(values: Sequence[Value]) -> dict[str, str]:
    """Every file by its name, such as translation.md."""
    names = dict.fromkeys(kind_of(value["file"]).table for value in values)
    return {f"{name}.md": page(name, values) for name in sorted(names)}


def page(name: str, values: Sequence[Value]) -> str:
    """One file: a section per kind of result."""
    mine = [value for value in values if kind_of(value["file"]).table == name]
    about = "Written by `python -m benchmarks.report`; headlines are in [RESULTS.md](../../RESULTS.md)."
    head = f"# All results: {name}\n\n{about}"
    kinds = dict.fromkeys(kind_of(value["file"]).name for value in mine)
    sections = [section(kind, [value for value in mine if kind_of(value["file"]).name == kind]) for kind in kinds]
    return "\n".join([head, "", *sections])


def section(title: str, values: Sequence[Value]) -> str:
    """A kind: what measures it, and its tables."""
    parts = [f"## {title}", "", f"Measured by `{command_of(values[0])}`."]
    for group in groups(values):
        parts += ["", *table(group)]
    hardware = dict.fromkeys(str(value["hardware"]) for value in values)
    signatures = list(dict.fromkeys(str(value["signature"]) for value in values if value["signature"]))
    parts += ["", f"Hardware: {'; '.join(hardware)}."]
    if signatures:
        more = f", and {len(signatures) - 1} more in the files" if len(signatures) > 1 else ""
        parts.append(f"Signatures: `{signatures[0]}`{more}.")
    return "\n".join(parts) + "\n"


def groups(values: Sequence[Value]) -> list[list[Value]]:
    """One table for all, or one per protocol where protocols are long and rows share them."""
    protocols = dict.fromkeys(protocol_of(value) for value in values)
    if max(map(len, protocols)) < LONG or len(protocols) > len(values) / 2:
        return [list(values)]
    return [[value for value in values if protocol_of(value) == protocol] for protocol in protocols]


def protocol_of(value: Value) -> str:
    """How a value was measured, without what ended its training run: seeds that differ in that are one row."""
    return str(value["protocol"]).partition(ENDED)[0]


def table(values: Sequence[Value]) -> list[str]:
    """A row per system and setting, a column per metric, the mean over seeds in a cell; above it what all share."""
    metrics = list(dict.fromkeys(value["metric"] for value in values))
    rows: dict[tuple[str, ...], list[Value]] = {}
    for value in values:
        rows.setdefault(tuple(cell_of(value, name) for name in WHO), []).append(value)
    columns = {name: [row[number] for row in rows] for number, name in enumerate(WHO)}
    shown = [name for name, column in columns.items() if len(set(column)) > 1]
    lines = [f"- {name}: {column[0]}" for name, column in columns.items() if name not in shown and column[0]]
    heads = [*shown, *metrics, "measured"]
    lines += ["", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for same in rows.values():
        cells = [cell_of(same[0], name) for name in shown] + [over_seeds(same, metric) for metric in metrics]
        lines.append(f"| {' | '.join([*cells, str(oldest(same))])} |")
    return lines


def cell_of(value: Value, name: str) -> str:
    """A field of a value in a table."""
    text = cell(protocol_of(value) if name == "protocol" else value[name])
    for start in PROTOCOLS if name == "protocol" else ():
        text = text.removeprefix(start)
    return text


def over_seeds(same: Sequence[Value], metric: str) -> str:
    """The values of one metric: the mean, the deviation and how many there are."""
    numbers = [value["value"] for value in same if value["metric"] == metric]
    if len(numbers) < 2:
        return "".join(f"{each:,.0f}" if abs(each) >= 1000 else cell(each) for each in numbers)
    return f"{statistics.mean(numbers):.4g} ± {statistics.stdev(numbers):.2g} ({len(numbers)})"
