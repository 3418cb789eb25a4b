"""The figures of docs/, drawn from the tables on the same pages.

python -m benchmarks.page_figures      # draw all of them again

docs/ladder and docs/generations show quality by size and by length, docs/complexity the cost of one layer per token. A
test compares the files with what would be drawn, so that no figure differs from its table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.charts import Axis, Curve, Curves, Point, Points, chart
from benchmarks.report import ROOT

DOCS = ROOT / "docs"
BESIDE = "beside a name: all lengths"
RECURRENT, FORWARD, ATTENDING = "recurrent", "feed-forward and convolution", "Transformer"
LAYERS = {
    "recurrence (Elman)": ("Elman", RECURRENT),
    "recurrence (LSTM)": ("LSTM", RECURRENT),
    "convolution": ("convolution", FORWARD),
    "dilated convolution": ("dilated", FORWARD),
    "self-attention": ("self-attention", ATTENDING),
    "self-attention, unfused": ("unfused", ATTENDING),
    "windowed self-attention": ("windowed", ATTENDING),
    "attention alone": ("attention alone", ATTENDING),
}
"""What the layers of the table are called beside their curves, and their families."""

Rows = list[dict[str, str]]


def read_table(page: Path, first: str) -> Rows:
    """The rows of the table on a page whose head begins with these cells."""
    found: Rows = []
    head: list[str] | None = None
    for line in page.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if head is None and cells and line.startswith(f"| {first}"):
            head = cells
        elif head is not None and not cells:
            break
        elif head is not None and not set("".join(cells)) <= set("-: "):
            found.append(dict(zip(head, cells, strict=True)))
    if not found:
        raise ValueError(f"{page} has no table that begins with {first}")
    return found


def number(cell: str) -> float:
    """The number that a cell begins with: 1,023 or 98.8 [98.1, 99.4] or 0.66 M or 39 k."""
    found = re.match(r"([\d.,]+)( [kM]\b)?", cell)
    if found is None:
        raise ValueError(f"{cell!r} begins with no number")
    return float(found[1].replace(",", "")) * {" k": 1e3, " M": 1e6}.get(found[2] or "", 1)


def ladder_miniworld() -> str:
    """Exact match by words of the source."""
    rows = read_table(DOCS / "how-to" / "ladder.md", "system | exact match")
    ranges = ["6 words", "8 words", "9 and more"]
    curves = [
        Curve(f"{row['system']} {number(row['exact match % [95 %]'])}", [number(row[each]) for each in ranges])
        for row in rows
    ]
    percent = Axis(-4, 104, ticks(0, 25, 50, 75, 100))
    title, subtitle = "Exact match by source length, %", f"miniworld, 1,000 test sentences; {BESIDE}"
    return chart([Curves(title, subtitle, ranges, curves, percent, room=170)], title, across=1)


def generations_miniworld() -> str:
    """Perplexity against parameters, and nats by position."""
    rows = read_table(DOCS / "how-to" / "compare-language-models.md", "system | perplexity per word")
    names = [row["system"].partition(",")[0] for row in rows]
    sizes = [(each, f"{each // 1000} k") for each in (50_000, 100_000, 200_000, 400_000)]
    points = [
        Point(name, name, number(row["parameters"]), number(row["perplexity per word [95 %]"]))
        for name, row in zip(names, rows, strict=True)
    ]
    columns = [column for column in rows[0] if re.match(r"\d.*\(", column)]
    curves = [Curve(name, [number(row[column]) for column in columns]) for name, row in zip(names, rows, strict=True)]
    perplexity = Axis(22, 11, [(each, str(each)) for each in (20, 16, 12)])
    nats = Axis(0, 5.2, [(each, str(each)) for each in (0, 1, 2, 3, 4, 5)])
    fields: list[Points | Curves] = [
        Points(
            "Perplexity per word", "miniworld test; up is better", points,
            Axis(40_000, 900_000, sizes, is_log=True), perplexity, 2, cost="parameters",
        ),
        Curves(
            "Nats per word, by position", "words before it in its line",
            [column.partition(" (")[0] for column in columns], curves, nats, room=70,
        ),
    ]  # fmt: skip
    return chart(fields, "Six language models on miniworld")


def ladder_by_length(page: Path) -> str:
    """BLEU by source length, from a page that benchmarks/ladder.py wrote."""
    title = page.read_text("utf-8").partition("\n")[0].removeprefix("# ")
    corpus, split, direction = title.split()[-3:]
    rows = read_table(page, "system | seeds")
    columns = [column for column in rows[0] if column not in ("system", "seeds", "all")]
    curves = [
        Curve(
            f"{row['system'].removesuffix(f'-{corpus}-{direction}')} {number(row['all']):.1f}",
            [number(row[column]) for column in columns],
        )
        for row in rows
    ]
    highest = max(max(curve.values) for curve in curves)
    bleu = Axis(0, max(10.0, highest * 1.05), ticks(*range(0, int(highest) + 1, 10)))
    subtitle = f"{corpus} {split}, {direction}; words of the source, in brackets how many sentences; {BESIDE}"
    return chart(
        [Curves(title.partition(",")[0], subtitle, columns, curves, bleu, room=170)], title, height=340, across=1
    )


def complexity(page: Path) -> str:
    """Time, operations, memory and path of one layer, from a table that benchmarks/complexity.py wrote."""
    rows = read_table(page, "layer | of a token")
    lengths = [column for column in rows[0] if column.startswith("n = ")]
    measures = {
        "time, µs": "Time per token, µs",
        "operations, k": "Operations per token, thousands",
        "memory, kB": "Memory per token, kB",
        "path": "Longest path between two positions",
    }
    fields = []
    for name, title in measures.items():
        curves = [
            Curve(LAYERS[row["layer"]][0], [number(row[length]) for length in lengths], LAYERS[row["layer"]][1])
            for row in rows
            if row["of a token"] == name
        ]
        up = powers([value for curve in curves for value in curve.values])
        ends = [length.removeprefix("n = ") for length in lengths]
        fields.append(Curves(title, "by the length of the text", ends, curves, up, room=118))
    return chart(fields, "What one layer costs a token, by the length of the text")


def powers(values: Sequence[float]) -> Axis:
    """A logarithmic axis with the powers of ten among the values."""
    low, high = max(min(values), 0.01) * 0.7, max(values) * 1.6
    named = [10**power for power in range(-2, 9) if low < 10**power < high]
    return Axis(low, high, ticks(*named), is_log=True)


def ticks(*values: float) -> list[tuple[float, str]]:
    """Values with their names."""
    return [(value, f"{value:,g}") for value in values]


FIGURES: dict[str, Callable[[], str]] = {
    "ladder/miniworld.svg": ladder_miniworld,
    "ladder/multi30k-en-de-test2016.svg": lambda: ladder_by_length(DOCS / "ladder" / "multi30k-en-de-test2016.md"),
    "ladder/multi30k-de-en-test2016.svg": lambda: ladder_by_length(DOCS / "ladder" / "multi30k-de-en-test2016.md"),
    "generations/miniworld.svg": generations_miniworld,
    "complexity/cpu-128.svg": lambda: complexity(DOCS / "complexity" / "cpu-128.md"),
}


def main(names: Sequence[str] = tuple(FIGURES)) -> None:
    """The command."""

    for name in names:
        (DOCS / name).write_text(FIGURES[name](), "utf-8")
        print(DOCS / name)


if __name__ == "__main__":
    main()
