"""The search tree of one translation as a figure: the candidates of every step, which were kept, which pruned and why.

Steps run from left to right; the best continuation of a prefix is the topmost. matplotlib draws PNG and SVG; the HTML
page is self-contained and shows the numbers of a candidate under the mouse pointer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from mallang.data.batch import Batch
from mallang.decoding.options import change_search
from mallang.decoding.prompted import prompt_batch
from mallang.decoding.tree import FATES, Node, Tree, record
from mallang.errors import UserError, require
from mallang.inspection.figures import FORMATS, drawable, families, save, show
from mallang.inspection.text_with_output import check_length, prompt_to_search, refuse_domain, searching
from mallang.tasks import captioner, generation
from mallang.text.vocabulary import BOS, EOS

PAGES = (".html", ".htm")
MOST = 120
"""Number of candidates in a figure: those with the highest scores, and all that lead to outputs."""
COLORS: Mapping[str, str] = {
    "kept": "#1f4e8c", "ended": "#1b7f4b", "beam": "#8a8a94", "bound": "#b3541e", "complete": "#8a8a94",
    "limit": "#7a3b8f", "budget": "#8c7a1f", "seed": "#8a8a94",
}  # fmt: skip
BEST = "#b3261e"
"""The color of the path to the best output."""
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Search tree</title>
<style>
body {{ font: 15px/1.5 system-ui, "Pretendard", "Noto Sans KR", "Apple SD Gothic Neo", "Malgun Gothic", sans-serif; margin: 1.5rem; color: #1b1b1f; }}
h1 {{ font-size: 1.2rem; margin: 0 0 .5rem; }}
div {{ overflow-x: auto; }}
text {{ font-size: 13px; }} text.small {{ font-size: 10px; fill: #55555f; }}
path {{ fill: none; stroke: #c9c9d2; stroke-width: 1.2; }} path.best {{ stroke: {best}; stroke-width: 2.4; }}
li {{ list-style: none; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{about}</p>
<div>{picture}</div>
<ul>{legend}</ul>
</body>
</html>
"""  # noqa: E501


def tree_of(model: Any, text: str, *, domain: str | None = None, alternatives: int = 5, **options: Any) -> Tree:
    """The search tree of the translation of one text, with the options of `translate`.

    For a language model the text is a prompt, and the tree holds its continuations; beam search replaces sampling.
    """
    if isinstance(model, captioner.Verbs):
        refuse_domain(domain)
        config, batch = change_search(model.config, options), model.read([text]).to(model.device)
        return replace(record(model.model, batch, config, alternatives=alternatives), input=captioner.short(text))
    model = searching(model)
    if isinstance(model, generation.Verbs):
        refuse_domain(domain)
        if model.config.method == "sampling":
            options = {"method": "beam", **options}
        ids, config = model.piece(*prompt_to_search(model, text, options))
        tree = record(model.prompted, prompt_batch([ids]).to(model.device), config, alternatives=alternatives)
        return replace(tree, input=text)
    if not text.strip():
        raise UserError("there is no text to search a translation for")
    (tag,) = islice(model.tags(domain), 1)
    (row,) = model.task.source.encode_batch([text])
    check_length(model, len(row))
    source = torch.tensor([[*tag, *row, EOS]])
    batch = Batch(
        tokens=torch.full((1, 1), BOS),
        lengths=torch.ones(1, dtype=torch.long),
        source=source,
        source_lengths=torch.tensor([source.shape[1]]),
    )
    config = change_search(model.config, options)
    tree = record(model.model, batch.to(model.device), config, alternatives=alternatives)
    return replace(tree, input=text)


def draw_tree(path: Path, tree: Tree) -> Path:
    """Draw a search tree as .png, .svg or .html."""
    ending = path.suffix.lower()
    if ending in PAGES:
        path.write_text(page(tree), "utf-8")
    elif ending in FORMATS:
        save(figure(tree), path)
    else:
        raise UserError(
            f"a search tree cannot be drawn as {path.name}", todo=f"end the name in {' or '.join((*FORMATS, *PAGES))}"
        )
    return path


@dataclass(frozen=True)
class Spot:
    """The position of a candidate: its step, its line, and whether it leads to the best output."""

    node: Node
    line: float
    parent: int | None
    is_best: bool


def layout(tree: Tree, most: int = MOST) -> dict[int, Spot]:
    """The shown candidates, by their index in the tree; the first continuation is on its parent's line."""
    always = {0, *(place for output in tree.outputs for place in tree.path(output))}
    # A score is never above its parent's, and a parent has the lower index: so no parent is missing.
    order = sorted(range(len(tree.nodes)), key=lambda place: (place not in always, -tree.nodes[place].total, place))
    shown = {*always, *order[: max(most, len(always))]}
    below: dict[int, list[int]] = {}
    for place in sorted(shown - {0}, key=lambda place: (-tree.nodes[place].total, place)):
        below.setdefault(tree.nodes[place].parent or 0, []).append(place)
    best = {0, *tree.path(tree.outputs[0])}
    spots: dict[int, Spot] = {}
    line, waiting = -1.0, [(0, True)]
    while waiting:
        place, is_first = waiting.pop()
        line += 0 if is_first and spots else 1
        node = tree.nodes[place]
        spots[place] = Spot(node, line, node.parent, place in best)
        children = below.get(place, [])
        waiting += [(child, child == children[0]) for child in reversed(children)]
    return spots


def figure(tree: Tree) -> Any:
    """The tree as a matplotlib figure."""
    spots = layout(tree)
    steps, lines = max(spot.node.step for spot in spots.values()), max(spot.line for spot in spots.values())
    size = ((steps + 1) * 1.15 + 0.6, (lines + 1) * 0.36 + 1.4)  # inches
    drawn = require("matplotlib.figure", "plots").Figure(figsize=size, layout="constrained")
    field = drawn.subplots()
    letters: dict[str, Any] = {"fontfamily": families(), "parse_math": False}
    for spot in spots.values():
        if spot.parent is not None:
            before = spots[spot.parent]
            bend = [before.node.step + 0.62, before.node.step + 0.8, spot.node.step - 0.02]
            color, width = (BEST, 2.0) if spot.is_best else ("#c9c9d2", 1.0)
            field.plot(bend, [before.line, spot.line, spot.line], color=color, linewidth=width, zorder=1)
        words = {**letters, "color": COLORS[spot.node.fate]}
        field.text(spot.node.step, spot.line, mark(spot.node), fontsize=9, va="center", zorder=2, **words)
        field.text(spot.node.step, spot.line + 0.38, numbers(spot.node), fontsize=6, va="center", **letters)
    field.set_xlim(-0.1, steps + 1)
    field.set_ylim(lines + 0.8, -0.8)
    field.set_axis_off()
    title, about = heading(tree, len(spots))
    field.set_title(f"{title}\n{about}", fontsize=9, loc="left", **letters)
    for place, (fate, meaning) in enumerate(legend(spots.values())):
        field.text(
            0, -0.04 - 0.25 * place / size[1], f"{fate}: {meaning}", transform=field.transAxes, fontsize=7, va="top",
            color=COLORS[fate], **letters,
        )  # fmt: skip
    return drawn


def page(tree: Tree) -> str:
    """The tree as a self-contained HTML page."""
    spots = layout(tree)
    across, down = 120, 34  # pixels
    steps, lines = max(spot.node.step for spot in spots.values()), max(spot.line for spot in spots.values())
    parts = []
    for spot in spots.values():
        x, y = spot.node.step * across + 4, spot.line * down + 16
        if spot.parent is not None:
            before = spots[spot.parent]
            fromx, fromy = before.node.step * across + 78, before.line * down + 12
            kind = ' class="best"' if spot.is_best else ""
            parts.append(f'<path{kind} d="M{fromx} {fromy}L{fromx + 18:g} {y - 4:g}L{x - 2:g} {y - 4:g}"/>')
        weight = ' font-weight="700"' if spot.is_best else ""
        color = COLORS[spot.node.fate]
        parts.append(
            f'<g><title>{escape(drawable(details(spot.node)))}</title><text x="{x}" y="{y:g}" fill="{color}"{weight}>'
            f"{escape(mark(spot.node))}</text>"
            f'<text class="small" x="{x}" y="{y + 12:g}">{numbers(spot.node)}</text></g>'
        )
    box = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{(steps + 1) * across}" height="{(lines + 1) * down + 10:g}">'
    )
    title, about = heading(tree, len(spots))
    items = "".join(f'<li style="color: {COLORS[fate]}">{fate}: {what}</li>' for fate, what in legend(spots.values()))
    return PAGE.format(
        best=BEST,
        title=escape(drawable(title)),
        about=escape(about),
        picture=f"{box}{''.join(parts)}</svg>",
        legend=items,
    )


def heading(tree: Tree, shown: int) -> tuple[str, str]:
    """The title, and how much of the tree is shown."""
    said = " ".join(tree.nodes[place].token for place in tree.path(tree.outputs[0]))
    sure = {True: ", proven to be the best", False: ", not proven to be the best", None: ""}[tree.proven]
    more = len(tree.nodes) - shown
    hidden = f"; {more:,} more candidates are not shown" if more else ""
    width = f" {tree.options['beam']}" if tree.method == "beam" else ""
    return (
        f"{tree.input or 'search'} → {said}",
        f"{tree.method}{width}, {len(tree.nodes) - 1:,} candidates{sure}{hidden}",
    )


def legend(spots: Any) -> list[tuple[str, str]]:
    """The fates that occur, and what they mean."""
    there = {spot.node.fate for spot in spots}
    return [(fate, meaning) for fate, meaning in FATES.items() if fate in there]


def mark(node: Node) -> str:
    """A token for display, with a cross if it was pruned, so that color is not the only sign."""
    pruned: Sequence[str] = ("beam", "bound", "budget")
    return show(node.token) + (" ×" if node.fate in pruned else "")


def numbers(node: Node) -> str:
    """The probability of the token, and the log-probability up to it."""
    return "" if node.parent is None else f"{math.exp(node.log_prob):.2g}  {node.total:.2f}"


def details(node: Node) -> str:
    """All numbers of a candidate."""
    return (
        f"{node.token}  probability {math.exp(node.log_prob):.4g}, sum {node.total:.4f}, "
        f"normalized {node.normalized:.4f}, no output that begins so above {node.bound:.4f}: {FATES[node.fate]}"
    )
