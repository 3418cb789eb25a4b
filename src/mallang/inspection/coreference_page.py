"""Clusters of mentions in colors: as an HTML page on which a cluster lights up, and in a terminal."""

from __future__ import annotations

import colorsys
import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mallang.console import visible
from mallang.inspection.figures import drawable
from mallang.tasks.resolver import Resolution

GOLDEN = 0.618034
"""The share of the circle of hues between one cluster and the next: no two near each other look alike."""
TITLE = "Who and what means the same"
STYLE = """
body { font: 16px/2.2 system-ui, "Pretendard", "Noto Sans KR", "Apple SD Gothic Neo", "Malgun Gothic", sans-serif;
  margin: 1.5rem auto; max-width: 60rem; padding: 0 1rem; color: #1b1b1f; background: #fff; }
h1 { font-size: 1.2rem; } h2 { font-size: 1rem; margin: 1.5rem 0 .3rem; } p { white-space: pre-wrap; }
span { border-radius: 4px; padding: .15rem .2rem; border-bottom: 2px solid transparent; }
sub { font-size: .65em; color: #55555e; } li { margin: .2rem 0; line-height: 1.6; }
"""


@dataclass(frozen=True)
class Border:
    """Where a mention begins or ends."""

    place: int
    opens: bool
    cluster: int


def borders(found: Resolution) -> list[Border]:
    """All borders of mentions in the order of the text, those of inner mentions inside those of outer ones."""
    spans = [(each.start, each.end, number) for number, cluster in enumerate(found.clusters) for each in cluster]
    opens = [(start, 1, -end, Border(start, True, number)) for start, end, number in spans]
    closes = [(end, 0, -start, Border(end, False, number)) for start, end, number in spans]
    return [border for *_, border in sorted([*opens, *closes], key=lambda each: each[:3])]


def color(number: int, lightness: float = 0.85) -> str:
    """The color of a cluster, as #rrggbb."""
    parts = colorsys.hls_to_rgb(number * GOLDEN % 1.0, lightness, 0.8)
    return "#{:02x}{:02x}{:02x}".format(*(round(255 * part) for part in parts))


def write_page(path: Path, found: Sequence[Resolution]) -> Path:
    """All texts as one HTML file without scripts: nothing is loaded, and every text is escaped."""
    most = max((len(each.clusters) for each in found), default=0)
    lights = "\n".join(
        f".c{n} {{ background: {color(n)}; }} body:has(.c{n}:hover) .c{n} {{ border-color: {color(n, 0.4)}; "
        f"background: {color(n, 0.7)}; }}"
        for n in range(most)
    )
    body = "\n".join(part for number, each in enumerate(found, start=1) for part in section(number, each))
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    path.write_text(
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{TITLE}</title>\n<style>{STYLE}{lights}</style>\n</head>\n<body>\n"
        f"<h1>{TITLE}</h1>\n{body}\n</body>\n</html>\n",
        "utf-8",
    )
    return path


def section(number: int, found: Resolution) -> Iterator[str]:
    """One text: its words with the mentions in color, then a line for each cluster."""
    yield f"<h2>{number}. {len(found.clusters)} clusters</h2>"
    text, written, done = found.input, "", 0
    for border in borders(found):
        written += html.escape(drawable(text[done : border.place]))
        done, name = border.place, border.cluster
        size = len(found.clusters[name])
        title = f"cluster {name + 1}: {size} mention" + ("s" if size > 1 else "")
        written += f'<span class="c{name}" title="{title}">' if border.opens else f"<sub>{name + 1}</sub></span>"
    yield f"<p>{written}{html.escape(drawable(text[done:]))}</p>"
    items = (
        f'<li><span class="c{name}">{html.escape(drawable(" · ".join(each.text for each in cluster)))}</span></li>'
        for name, cluster in enumerate(found.clusters)
    )
    yield f"<ol>{''.join(items)}</ol>"


def in_terminal(found: Resolution) -> Any:
    """A text for a terminal, as one of rich: every cluster has a color; an inner mention has its own."""
    from rich.text import Text

    line, done, stack = Text(), 0, list[int]()
    for border in borders(found):
        line.append(visible(found.input[done : border.place]), style=style(stack))
        done = border.place
        if border.opens:
            stack.append(border.cluster)
        else:
            line.append(subscript(border.cluster + 1), style=style(stack))
            stack.pop()
    line.append(visible(found.input[done:]))
    return line


def style(stack: Sequence[int]) -> str:
    """The style of the innermost mention."""
    return f"black on {color(stack[-1])}" if stack else ""


def subscript(number: int) -> str:
    """A number in small digits below the line."""
    return str(number).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))
