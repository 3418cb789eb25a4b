"""Semantic roles as an HTML page, in the colors of a terminal, and as plain text: a line per predicate.

[AGENT Grandma] [V gave] [PATIENT that flower] [RECIPIENT to them] .
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mallang.console import visible
from mallang.inspection.figures import drawable
from mallang.inspection.highlight_figures import STYLE
from mallang.tasks.role_labeler import Proposition, RoleLabeling

VERB = "V"
"""The label of the predicate itself."""
COLORS = (
    "#a6cee3", "#b2df8a", "#fdbf6f", "#cab2d6", "#fb9a99", "#ffff99", "#8dd3c7", "#fccde5", "#d9d9d9", "#e5c494",
)  # fmt: skip
PREDICATE = "#2b2b33"
"""The background of the predicate, whose letters are white."""
NOTHING = "no predicate"
"""What is said of a text in which there is none."""
ROLE_STYLE = """
p { display: block; line-height: 2.4; } mark { padding: .15rem .3rem; border-radius: 4px; color: #1b1b1f; }
mark.verb { color: #fff; } sub { font-size: .65em; letter-spacing: .03em; margin-left: .3em; }
"""


class Part(NamedTuple):
    """A part of a text: words with a role, the predicate, or what is between."""

    text: str
    role: str
    confidence: float


def parts_of(found: RoleLabeling, proposition: Proposition) -> list[Part]:
    """The parts of a text in their order, as one of its predicates sees it."""
    marked = [(each.start, each.end, each.role, each.confidence) for each in proposition.arguments]
    # Where the predicate is an argument of itself, it is shown as the predicate.
    marked = [each for each in marked if each[1] <= proposition.start or each[0] >= proposition.end]
    marked.append((proposition.start, proposition.end, VERB, proposition.confidence))
    parts, place = list[Part](), 0
    for start, end, role, share in sorted(marked):
        if start > place:
            parts.append(Part(found.input[place:start], "", 0.0))
        parts.append(Part(found.input[start:end], role, share))
        place = end
    return parts if place >= len(found.input) else [*parts, Part(found.input[place:], "", 0.0)]


def color_of(role: str, roles: Sequence[str]) -> str:
    """The color of a role: continuations and references have that of their role."""
    if role == VERB:
        return PREDICATE
    base = role[2:] if role.startswith(("C-", "R-")) else role
    bases = list(dict.fromkeys(each[2:] if each.startswith(("C-", "R-")) else each for each in roles))
    return COLORS[bases.index(base) % len(COLORS)]


def all_roles(found: Sequence[RoleLabeling]) -> list[str]:
    """The roles of some texts in alphabetical order, so that each has one color in all of them."""
    return sorted({each.role for text in found for made in text.propositions for each in made.arguments})


def in_plain_text(found: RoleLabeling) -> str:
    """The roles of a text without colors."""
    lines = []
    for proposition in found.propositions:
        pieces = [f"[{part.role} {part.text}]" if part.role else part.text for part in parts_of(found, proposition)]
        lines.append(visible("".join(pieces).strip()))
    return "\n".join(lines) or f"{visible(found.input)}\t({NOTHING})"


def in_terminal(found: RoleLabeling, roles: Sequence[str]) -> Any:
    """The roles of a text for a terminal, as a text of rich; `roles` are all that are shown, in one order."""
    from rich.text import Text

    line = Text()
    for proposition in found.propositions:
        for part in parts_of(found, proposition):
            if not part.role:
                line.append(visible(part.text))
                continue
            letters = "bold white" if part.role == VERB else "black"
            line.append(visible(part.text), style=f"{letters} on {color_of(part.role, roles)}")
            if part.role != VERB:
                line.append(f" {visible(part.role)}", style=f"italic {color_of(part.role, roles)}")
        line.append("\n")
    return line if found.propositions else Text(f"{visible(found.input)}  ({NOTHING})\n", style="dim")


def write_page(path: Path, found: Sequence[RoleLabeling]) -> Path:
    """The roles of all texts as one HTML file without scripts: nothing is loaded, and every text is escaped."""
    title, policy = "Who does what to whom", "default-src 'none'; style-src 'unsafe-inline'"
    roles = all_roles(found)
    body = "\n".join(line for number, each in enumerate(found, start=1) for line in section(number, each, roles))
    path.write_text(
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}{ROLE_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{title}</h1>\n{body}\n</body>\n</html>\n",
        "utf-8",
    )
    return path


def section(number: int, found: RoleLabeling, roles: Sequence[str]) -> Iterator[str]:
    """The lines of one text: itself, and a paragraph per predicate."""
    yield f"<h2>{number}. {html.escape(drawable(found.input))}</h2>"
    whose = "given" if found.are_given else "found by the model"
    yield f"<p><small>{len(found.propositions)} predicates, {whose}</small></p>"
    for proposition in found.propositions:
        words = ""
        for part in parts_of(found, proposition):
            text = html.escape(drawable(part.text))
            if not part.role:
                words += text
                continue
            kind = ' class="verb"' if part.role == VERB else ""
            style = f"background: {color_of(part.role, roles)}"
            told = html.escape(drawable(part.role if part.role != VERB else proposition.lemma))
            words += f'<mark{kind} style="{style}" title="{part.confidence:.4f}">{text}<sub>{told}</sub></mark>'
        yield f"<p>{words}</p>"
