"""The picture that opens the README: attention with Hangul, from the weights of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.svg import drawing, text

LAYER = "decoder.0.cross"
"""The layer whose mean over the heads makes the fewest alignment errors on miniworld."""
MARKED = ("배를", "배가", "pear", "ship", "stomach")
"""The word with three meanings, and its translations."""
INK, ACCENT = "#2f6fed", "#e8590c"
CELL_WIDTH, CELL_HEIGHT = 57, 26

Map = Mapping[str, Any]
"""What one picture of attention is drawn from: source, output, keys, queries, weights."""


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
