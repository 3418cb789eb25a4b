"""Results as HTML for notebooks: what `_repr_html_` of a translation, a classification or a tagging returns.

All text is escaped. Colors are those of the notebook: a share is a bar behind its row, a weight an opacity of one blue,
so that light and dark themes both read well, and no script is needed: it shows on pages that run none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

BLUE, ORANGE = "86,148,214", "222,143,60"
CELL = "padding:1px 8px;text-align:left;vertical-align:top"


def text(value: object) -> str:
    """A text that is shown and never run."""
    return escape(str(value), quote=True)


def block(title: str, *parts: str) -> str:
    """A result: its text in front, what belongs to it below."""
    return f'<div style="font-family:system-ui,sans-serif;line-height:1.6"><b>{text(title)}</b>{"".join(parts)}</div>'


def note(value: object) -> str:
    """A quiet line."""
    return f'<div style="opacity:.7;font-size:90%">{text(value)}</div>' if str(value) else ""


def bars(rows: Iterable[tuple[object, float]], digits: int = 4) -> str:
    """Names with their shares from 0 to 1, the longest bar for 1."""
    lines = "".join(
        f'<tr><td style="{CELL}">{text(name)}</td><td style="{CELL};min-width:10em;'
        f"background:linear-gradient(to right,rgba({BLUE},.45) {100 * min(1.0, max(0.0, share)):.1f}%,transparent 0)"
        f'">{share:.{digits}f}</td></tr>'
        for name, share in rows
    )
    return f'<table style="border-collapse:collapse">{lines}</table>'


def table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A table of texts and numbers."""
    top = "".join(f'<th style="{CELL}">{text(name)}</th>' for name in head)
    lines = "".join("<tr>" + "".join(f'<td style="{CELL}">{cell(each)}</td>' for each in row) + "</tr>" for row in rows)
    return f'<table style="border-collapse:collapse"><tr>{top}</tr>{lines}</table>'


def cell(value: object) -> str:
    """A cell: numbers with four digits."""
    return f"{value:.4f}" if isinstance(value, float) else text(value)


def shaded(pieces: Iterable[tuple[str, float]], hints: Sequence[str] | None = None) -> str:
    """Pieces of a text, the darker the larger their weight: blue up to 1, orange down to −1; hints under the mouse."""
    spans = []
    for place, (piece, weight) in enumerate(pieces):
        hint = f' title="{text(hints[place])}"' if hints is not None else ""
        color, alpha = (BLUE if weight >= 0 else ORANGE), 0.75 * min(1.0, abs(weight))
        spans.append(f'<span{hint} style="background:rgba({color},{alpha:.3f});padding:0 2px">{text(piece)}</span>')
    return f"<div>{' '.join(spans)}</div>"


def tokens(names: Sequence[str], log_probs: Sequence[float]) -> str:
    """The tokens of an output, the darker the less probable the model found each."""
    if not names or len(log_probs) < len(names):
        return ""
    shares = [math.exp(value) for value in log_probs[: len(names)]]
    hints = [f"{share:.4f}" for share in shares]
    return shaded(((name, 1 - share) for name, share in zip(names, shares, strict=True)), hints)


def surprisal(names: Sequence[str], bits: Sequence[float]) -> str:
    """Tokens with what each cost in bits, the darker the more: a byte's worth is as dark as it gets."""
    pairs = list(zip(names, bits, strict=False))
    return shaded([(name, min(1.0, cost / 8)) for name, cost in pairs], [f"{cost:.2f} bits" for _, cost in pairs])


@dataclass(frozen=True)
class Heat:
    """A table of weights from 0 to 1, which a notebook shows as colors."""

    rows: Sequence[str]
    columns: Sequence[str]
    weights: Sequence[Sequence[float]]
    most: int = 40
    """The rows and columns that are shown at most."""

    def _repr_html_(self) -> str:
        return heat(self.rows, self.columns, self.weights, self.most)


def heat(rows: Sequence[str], columns: Sequence[str], weights: Sequence[Sequence[float]], most: int = 40) -> str:
    """A table of weights from 0 to 1 as colors, at most so many rows and columns."""
    square = "width:1.4em;height:1.4em;padding:0"
    slanted = "padding:2px;writing-mode:vertical-rl;text-align:left"
    top = "".join(f'<th style="{slanted}">{text(name)}</th>' for name in columns[:most])
    lines = "".join(
        f'<tr><th style="{CELL};text-align:right">{text(name)}</th>'
        + "".join(
            f'<td title="{text(f"{name} → {key}: {weight:.4f}")}" style="{square};'
            f'background:rgba({BLUE},{math.sqrt(min(1.0, max(0.0, weight))):.3f})"></td>'
            for key, weight in zip(columns[:most], row, strict=False)
        )
        + "</tr>"
        for name, row in zip(rows[:most], weights, strict=False)
    )
    cut = (
        note(f"the first {most} of {max(len(rows), len(columns))} tokens")
        if max(len(rows), len(columns)) > most
        else ""
    )
    return f'<table style="border-collapse:collapse"><tr><th></th>{top}</tr>{lines}</table>{cut}'
