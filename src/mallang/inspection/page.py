"""Attention maps as one self-contained HTML file: no network, no font, no library.

The tables are text and colored cells, so Hangul is as readable as in any page. All text is passed as JSON and inserted
as text, never as HTML; the content security policy of the page forbids loading anything from elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mallang.inspection.alignment import Seen, choose_head, choose_layers, main_layer
from mallang.inspection.attention import AttentionMap, Side, sides_of
from mallang.inspection.figures import show

TEMPLATE = Path(__file__).with_name("attention_page.html")
PLACE = '<script type="application/json" id="data">{}</script>'
DIGITS = 5
NAMES: dict[Side, str] = {"source": "the source", "said": "what was said", "read": "what had been said"}


def write_page(path: Path, seen: Sequence[Seen], layers: Sequence[str] | None = None, head: str | None = None) -> Path:
    """One page for all texts, with a choice of text, layer and head."""
    texts = [{**as_plain(one, layers, head, spell=show), "first": first_shown(one, layers)} for one in seen]
    template = TEMPLATE.read_text("utf-8")
    assert PLACE in template
    path.write_text(template.replace(PLACE, PLACE.replace("{}", safe_json({"texts": texts}))), "utf-8")
    return path


def first_shown(seen: Seen, layers: Sequence[str] | None) -> int:
    """The index of the layer that the page opens with."""
    names = choose_layers(seen, layers)
    return names.index(main_layer(seen)) if main_layer(seen) in names else len(names) - 1


def as_plain(
    seen: Seen, layers: Sequence[str] | None = None, head: str | None = None, spell: Callable[[str], str] = str
) -> dict[str, Any]:
    """Attention maps as plain values: texts, and for each layer its tokens and the weights of its heads."""
    names = choose_layers(seen, layers)
    return {
        "input": seen.input,
        "output": seen.output,
        "score": seen.score,
        "maps": [map_as_plain(seen.maps[name], head, spell) for name in names],
    }


def map_as_plain(shown: AttentionMap, head: str | None, spell: Callable[[str], str]) -> dict[str, Any]:
    """One layer as plain values: queries, keys, and one table of weights per head."""
    weights = choose_head(shown.weights, head)
    heads = [f"head {number}" for number in range(1, len(weights) + 1)]
    if head is not None:
        heads = ["mean of the heads" if head == "mean" else f"head {head}"]
    return {
        "name": shown.name,
        "about": [NAMES[side] for side in sides_of(shown.name)],
        "queries": [spell(token) for token in shown.queries],
        "keys": [spell(token) for token in shown.keys],
        "heads": heads,
        "weights": [[[round(value, DIGITS) for value in row] for row in table] for table in weights.tolist()],
    }


def safe_json(value: Any) -> str:
    """JSON that cannot end the element of the page that holds it."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
