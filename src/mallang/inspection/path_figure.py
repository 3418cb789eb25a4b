"""The paths that a choice rests on as a picture: concepts, relations and weights, as SVG or as an HTML page.

The concept of the question is on the left, that of the choice on the right. The line of an edge is the thicker, the
more attention the paths over it have; an arrow has the direction of the triple.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from mallang.errors import UserError
from mallang.inspection.figures import drawable
from mallang.tasks.graph_chooser import AttendedPath, ChoicePaths, Reasons

MOST = 12
"""Paths that are drawn: the heaviest."""
COLUMN, LINE, MARGIN, LETTER = 230, 56, 30, 13
"""Distances in pixels; the size of letters."""
THICKEST = 7.0
COLOR, INK, FILL = "#1f4e8c", "#1b1b1f", "#eef2fa"
STYLE = """
body { font: 15px/1.5 system-ui, "Pretendard", "Noto Sans KR", "Apple SD Gothic Neo", "Malgun Gothic", sans-serif;
  margin: 1.5rem auto; max-width: 72rem; padding: 0 1rem; color: #1b1b1f; background: #fff; }
h1 { font-size: 1.2rem; } h2 { font-size: 1rem; margin: 1.5rem 0 .3rem; }
div { overflow-x: auto; } td { padding: 0 .8rem 0 0; font-variant-numeric: tabular-nums; }
"""


def draw_paths(path: Path, found: Reasons) -> Path:
    """Write the picture: of the most probable choice as .svg, of all choices with their paths as .html."""
    ending = path.suffix.lower()
    if ending == ".svg":
        path.write_text(picture(found.choices[0]), "utf-8")
    elif ending in (".html", ".htm"):
        path.write_text(page(found), "utf-8")
    else:
        raise UserError(f"paths cannot be drawn as {path.name}", todo="end the name in .svg or .html")
    return path


def page(found: Reasons) -> str:
    """All choices with their pictures and paths as one HTML file without scripts: nothing is loaded."""
    title = escape(drawable(found.question))
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    body = "\n".join(part for each in found.choices for part in section(each))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        f"<p>Concepts of the question: {escape(drawable(', '.join(found.concepts) or 'none'))}</p>\n{body}\n"
        "</body>\n</html>\n"
    )


def section(choice: ChoicePaths) -> Iterator[str]:
    """The lines of one choice."""
    yield f"<h2>{choice.probability:.4f} {escape(drawable(choice.choice))}</h2>"
    if not choice.paths:
        yield "<p>No path of the graph connects it with the question.</p>"
        return
    yield f"<div>{picture(choice)}</div>\n<table>"
    for each in choice.paths[:MOST]:
        yield f"<tr><td>{each.weight:.4f}</td><td>{escape(drawable(str(each)))}</td></tr>"
    yield "</table>"


@dataclass(frozen=True)
class Spot:
    """Where a concept is drawn."""

    x: float
    y: float


def layout(paths: Sequence[AttendedPath]) -> dict[tuple[int, str], Spot]:
    """The place of each concept by its column and name: its steps from the question, the last column for the choice."""
    last = max(len(path.relations) for path in paths)
    columns: dict[int, dict[str, None]] = defaultdict(dict)
    for path in paths:
        for column, name in stops(path, last):
            columns[column].setdefault(name)
    most = max(map(len, columns.values()))
    return {
        (column, name): Spot(MARGIN + COLUMN * (column + 0.5), MARGIN + LINE * (number + 0.5 + (most - len(names)) / 2))
        for column, names in columns.items()
        for number, name in enumerate(names)
    }


def stops(path: AttendedPath, last: int) -> list[tuple[int, str]]:
    """The column and the name of each concept of a path; the choice is always in the last column."""
    inner = list(enumerate(path.concepts[:-1]))
    return [*inner, (last, path.concepts[-1])]


def picture(choice: ChoicePaths) -> str:
    """The paths of a choice as SVG."""
    paths = choice.paths[:MOST]
    if not paths:
        return '<svg xmlns="http://www.w3.org/2000/svg" width="10" height="10"></svg>\n'
    last = max(len(path.relations) for path in paths)
    spots = layout(paths)
    width = MARGIN * 2 + COLUMN * (last + 1)
    height = max(spot.y for spot in spots.values()) + LINE / 2 + MARGIN
    edges: dict[tuple[tuple[int, str], tuple[int, str], str, bool], float] = defaultdict(float)
    for path in paths:
        ends = stops(path, last)
        for first, second, name, back in zip(ends, ends[1:], path.relations, path.backward, strict=False):
            edges[first, second, name, back] += path.weight
    parts = [*(line for edge, weight in edges.items() for line in drawn_edge(edge, weight, spots))]
    parts += [line for (_, name), spot in spots.items() for line in drawn_concept(name, spot)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="system-ui, sans-serif" font-size="{LETTER}">\n'
        f'<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" markerHeight="9" '
        f'markerUnits="userSpaceOnUse" orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="{COLOR}"/>'
        "</marker></defs>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def drawn_edge(
    edge: tuple[tuple[int, str], tuple[int, str], str, bool], weight: float, spots: dict[tuple[int, str], Spot]
) -> Iterator[str]:
    """An edge: a line with an arrow at the tail of its triple, and its relation."""
    first, second, name, back = edge
    start, end, half = spots[first], spots[second], COLUMN * 0.3
    x1, x2 = start.x + half, end.x - half
    arrow = "marker-start" if back else "marker-end"
    yield (
        f'<line x1="{x1:.1f}" y1="{start.y:.1f}" x2="{x2:.1f}" y2="{end.y:.1f}" stroke="{COLOR}" '
        f'stroke-width="{0.6 + (THICKEST - 0.6) * min(1.0, weight):.2f}" stroke-opacity="0.75" '
        f'{arrow}="url(#arrow)"><title>{weight:.4f}</title></line>'
    )
    middle = (x1 + x2) / 2, (start.y + end.y) / 2 - 6
    yield text_at(*middle, f"{name} {weight:.2f}", size=LETTER - 3)


def drawn_concept(name: str, spot: Spot) -> Iterator[str]:
    """A concept: its name in a box."""
    half = COLUMN * 0.3
    yield (
        f'<rect x="{spot.x - half:.1f}" y="{spot.y - 14:.1f}" width="{2 * half:.1f}" height="28" rx="6" '
        f'fill="{FILL}" stroke="{COLOR}"/>'
    )
    yield text_at(spot.x, spot.y + LETTER / 3, name if len(name) <= 20 else f"{name[:19]}…", size=LETTER)


def text_at(x: float, y: float, text: str, *, size: int) -> str:
    """A text around a point."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" font-size="{size}" fill="{INK}">'
        f"{escape(drawable(text))}</text>"
    )
