"""SVG by hand: text that stays text, so that Hangul is drawn by the reader's own fonts, and colors for light and dark.

A drawing is a list of elements inside a card with a background of its own, so that it can be read on any page.
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape

FONTS = "system-ui,-apple-system,'Segoe UI','Noto Sans KR','Apple SD Gothic Neo','Malgun Gothic',sans-serif"
STYLE = """
text{font-family:%s;fill:#1f2328}
.card{fill:#ffffff;stroke:#d1d9e0}
.faint{fill:#59636e}
.line{stroke:#d1d9e0;fill:none}
.empty{fill:#f2f4f7}
@media(prefers-color-scheme:dark){
text{fill:#e6edf3}
.card{fill:#0d1117;stroke:#3d444d}
.faint{fill:#9198a1}
.line{stroke:#3d444d}
.empty{fill:#1a2029}
}
"""


def drawing(width: int, height: int, title: str, elements: Iterable[str]) -> str:
    """The whole file; `title` is what a screen reader says."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">'
    card = f'<rect class="card" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10"/>'
    inside = [f"<title>{escape(title)}</title>", f"<style>{STYLE % FONTS}</style>", card, *elements]
    return "\n".join([head, *inside, "</svg>"]) + "\n"


def text(
    x: float, y: float, said: str, *, size: float = 13, anchor: str = "start", bold: bool = False, color: str = ""
) -> str:
    """A line of text; `color` is a color, or `faint`."""
    kind = ' class="faint"' if color == "faint" else f' style="fill:{color}"' if color else ""
    weight = ' font-weight="600"' if bold else ""
    side = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:g}" y="{y:g}" font-size="{size:g}"{side}{weight}{kind}>{escape(said)}</text>'


def line(x1: float, y1: float, x2: float, y2: float) -> str:
    """A thin line, as axes and grids have it."""
    return f'<path class="line" d="M{x1:g} {y1:g}L{x2:g} {y2:g}"/>'
