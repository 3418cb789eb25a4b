"""Highlights as an HTML page, as a figure, and in the colors of a terminal."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mallang.console import visible
from mallang.errors import require
from mallang.inspection.figures import check_format, drawable, families, save
from mallang.inspection.highlights import Highlights

WORD, SENTENCE = (66, 135, 245), (214, 64, 69)
"""The color of the heaviest word, and of the heaviest sentence."""
AGAINST = (214, 64, 69)
"""The color of a word with a negative weight."""
SIGNS = "blue raises the score, red lowers it"
TITLES = {False: "What the classifier attended to", True: "Where the answer comes from"}
"""The title of a page of attention, and of one of attributions."""
LEAST = 0.05
"""Shades below this share of the darkest are left white."""
STYLE = """
body { font: 16px/1.9 system-ui, "Pretendard", "Noto Sans KR", "Apple SD Gothic Neo", "Malgun Gothic", sans-serif;
  margin: 1.5rem auto; max-width: 60rem; padding: 0 1rem; color: #1b1b1f; background: #fff; }
h1 { font-size: 1.2rem; } h2 { font-size: 1rem; margin: 1.5rem 0 .3rem; }
p { margin: .1rem 0; display: flex; gap: .6rem; }
b { font-variant-numeric: tabular-nums; font-weight: 400; min-width: 3.2rem; text-align: right; border-radius: 3px;
  padding: 0 .3rem; align-self: flex-start; }
span { border-radius: 3px; padding: .1rem 0; } .end { color: #8a8a94; font-size: .8em; }
"""


def write_page(path: Path, found: Sequence[Highlights]) -> Path:
    """All texts as one HTML file without scripts: nothing is loaded, and every text is escaped."""
    title = TITLES[any(each.signed for each in found)]
    body = "\n".join(part for number, each in enumerate(found, start=1) for part in section(number, each))
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    path.write_text(
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{title}</h1>\n{body}\n</body>\n</html>\n",
        "utf-8",
    )
    return path


def section(number: int, found: Highlights) -> Iterator[str]:
    """The lines of one text: its label, and a paragraph per sentence."""
    darkest, heaviest = found.darkest()
    yield f"<h2>{number}. {html.escape(drawable(found.label))} <small>{found.probability:.3f}</small></h2>"
    for note in notes_of(found):
        yield f"<p><small>{html.escape(drawable(note))}</small></p>"
    for sentence in found.sentences:
        weight = ""
        if found.has_sentences:
            weight = f'<b style="{background(sentence.weight / heaviest, SENTENCE)}">{sentence.weight:.3f}</b>'
        words = ""
        for piece, shade in zip(sentence.pieces, sentence.shades(), strict=True):
            text = html.escape(drawable(piece.text))
            kind = ' class="end"' if piece is sentence.pieces[-1] else ""
            style = background(abs(shade) / darkest, color_of(shade))
            space = " " if piece.spaced else ""
            words += f'{space}<span{kind} style="{style}" title="{piece.weight:.4f}">{text}</span>'
        yield f"<p>{weight}<span>{words.strip()}</span></p>"


def notes_of(found: Highlights) -> list[str]:
    """What must be known to read the weights, and which color means what."""
    return [*found.notes, SIGNS] if found.signed else list(found.notes)


def color_of(shade: float) -> tuple[int, int, int]:
    """The color of a word: one for each sign."""
    return AGAINST if shade < 0 else WORD


def background(share: float, color: tuple[int, int, int]) -> str:
    """A color as CSS, transparent where the share is 0."""
    return f"background: rgba{(*color, round(share, 3))}"


def in_terminal(found: Highlights) -> Any:
    """Highlights for a terminal, as a text of rich: a line per sentence, colored by weight."""
    from rich.text import Text

    darkest, heaviest = found.darkest()
    line = Text()
    line.append(f"{visible(found.label)} {found.probability:.3f}\n", style="bold")
    for note in notes_of(found):
        line.append(f"{visible(note)}\n", style="dim")
    for sentence in found.sentences:
        if found.has_sentences:
            line.append(f"{sentence.weight:.3f}", style=shaded(sentence.weight / heaviest, SENTENCE))
            line.append(" ")
        for piece, shade in zip(sentence.pieces, sentence.shades(), strict=True):
            line.append(" " if piece.spaced and piece is not sentence.pieces[0] else "")
            line.append(visible(piece.text), style=shaded(abs(shade) / darkest, color_of(shade)))
        line.append("\n")
    return line


def shaded(share: float, color: tuple[int, int, int]) -> str:
    """The style of rich for a background between white (0) and a color (1); none for very small shares."""
    return f"black on {mixed(share, color)}" if share >= LEAST else ""


def mixed(share: float, color: tuple[int, int, int]) -> str:
    """A color between white (0) and the given one (1), as #rrggbb."""
    return "#{:02x}{:02x}{:02x}".format(*(round(255 + share * (part - 255)) for part in color))


def in_plain_text(found: Highlights) -> str:
    """Highlights without colors, for pipes: words with more than an even share of weight have it in brackets."""
    lines = [f"{visible(found.label)} {found.probability:.3f}", *map(visible, found.notes)]
    sign = "+" if found.signed else ""
    for sentence in found.sentences:
        total = sum(abs(piece.weight) for piece in sentence.pieces) if found.signed else 1.0
        even = total / len(sentence.pieces)
        words = [
            f"{' ' if piece.spaced else ''}{visible(piece.text)}"
            + (f"[{piece.weight:{sign}.3f}]" if abs(piece.weight) > even else "")
            for piece in sentence.pieces
        ]
        weight = f"{sentence.weight:.3f} " if found.has_sentences else ""
        lines.append(weight + "".join(words).strip())
    return "\n".join(lines)


WIDTH, LINE, LETTER = 9.0, 0.3, 11
"""Width of a figure and height of its lines in inches; size of its letters in points."""
NOTE = 95
"""Letters of a line of notes."""


def draw_highlights(path: Path, found: Highlights) -> Path:
    """A figure of one text, PNG or SVG by the suffix of the name: a paragraph per sentence, its weight before it."""
    check_format(path)
    figure = require("matplotlib.figure", "plots").Figure(figsize=(WIDTH, 1.0))
    renderer = require("matplotlib.backends.backend_agg", "plots").FigureCanvasAgg(figure).get_renderer()
    letters = {"fontfamily": families(), "fontsize": LETTER, "parse_math": False, "verticalalignment": "baseline"}
    darkest, heaviest = found.darkest()
    placed: list[tuple[Any, int]] = []
    line, left = 0, 0.2

    def put(text: str, x: float, color: str | None) -> float:
        """Write a text into the current line; returns where it ends."""
        made = figure.text(0.0, 0.0, drawable(text) or " ", **letters)
        if color is not None:
            made.set_bbox({"facecolor": color, "edgecolor": "none", "pad": 1.5})
        made.set_x(x / WIDTH)
        placed.append((made, line))
        return x + float(made.get_window_extent(renderer).width / figure.dpi)

    put(f"{found.label}   {found.probability:.3f}", left, None)
    for note in (part for each in notes_of(found) for part in textwrap.wrap(each, NOTE)):
        line += 1
        put(note, left, None)
    for sentence in found.sentences:
        line, x = line + 1, left
        if found.has_sentences:
            put(f"{sentence.weight:.3f}", x, mixed(sentence.weight / heaviest, SENTENCE))
            x += 0.7
        begin = x
        for piece, shade in zip(sentence.pieces, sentence.shades(), strict=True):
            x += 0.07 if piece.spaced and x > begin else 0.0
            color = mixed(abs(shade) / darkest, color_of(shade)) if abs(shade) >= LEAST * darkest else None
            if (end := put(piece.text, x, color)) > WIDTH - 0.2 and x > begin:
                placed.pop()[0].remove()
                line, x = line + 1, begin
                end = put(piece.text, x, color)
            x = end
    height = (line + 2) * LINE
    figure.set_size_inches(WIDTH, height)
    for made, number in placed:
        made.set_y(1.0 - (number + 1) * LINE / height)
    save(figure, path)
    return path
