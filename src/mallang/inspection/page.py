"""One self-contained HTML file: what a page shows as JSON, its numbers as float32, and the modules that draw them.

The numbers are exact: arrays lie behind each other in one block of float32, gzipped and in base64, and JSON names their
place. The JavaScript modules of page/ are embedded as `data:` addresses of an import map, since a page that is opened
from disk may not import other files; a server can offer the same files under the same names. Nothing is loaded from
elsewhere, and all text is inserted as text, never as HTML.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from mallang.inspection.alignment import Seen, choose_head, choose_layers
from mallang.inspection.attention import AttentionMap, Side, sides_of

FOLDER = Path(__file__).with_name("page")
DIGITS = 5
HEIGHT = 780
"""The height of a page in a notebook, in pixels."""
NAMES: dict[Side, str] = {"source": "the source", "said": "what was said", "read": "what had been said"}


@dataclass(frozen=True)
class Page:
    """A page that a notebook shows in a frame of its own, and that can be written to a file."""

    data: Mapping[str, Any]

    def write(self, path: Path | str) -> Path:
        """Write the page to a file."""
        return write_page(Path(path), self.data)

    def _repr_html_(self) -> str:
        """In a notebook: the page in a frame, which cannot reach the notebook around it."""
        return (
            f'<iframe srcdoc="{escape(html(self.data), quote=True)}" sandbox="allow-scripts allow-downloads" '
            f'style="width:100%;height:{HEIGHT}px;border:1px solid #8886;border-radius:6px"></iframe>'
        )


def write_page(path: Path, data: Mapping[str, Any]) -> Path:
    """Write a page with this data; tensors and arrays in it become float32."""
    path.write_text(html(data), "utf-8", errors="replace", newline="\n")  # a run's name may hold bytes of no character
    return path


def html(data: Mapping[str, Any]) -> str:
    """The page as text."""
    plain, numbers = packed(data)
    parts = {
        "style": (FOLDER / "page.css").read_text("utf-8"),
        "imports": json.dumps({"imports": {f"#{name}": as_address(code) for name, code in modules().items()}}),
        "data": safe_json(plain),
        "numbers": base64.b64encode(gzip.compress(numbers, 9, mtime=0)).decode("ascii"),
    }
    template = (FOLDER / "page.html").read_text("utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], template)


def modules() -> dict[str, str]:
    """The JavaScript modules of the page by the name that they are imported by, without the `#` before it."""
    return {path.stem: path.read_text("utf-8") for path in sorted(FOLDER.glob("*.js"))}


def as_address(code: str) -> str:
    """A module as the address of itself."""
    return "data:text/javascript;base64," + base64.b64encode(code.encode("utf-8")).decode("ascii")


def packed(data: Any) -> tuple[Any, bytes]:
    """The data with a place and a shape instead of every array, and the bytes of all arrays."""
    parts: list[bytes] = []
    done = 0

    def plain(value: Any) -> Any:
        nonlocal done
        if isinstance(value, Tensor):
            value = value.detach().float().cpu().numpy()
        if isinstance(value, np.ndarray):
            parts.append(np.ascontiguousarray(value, dtype="<f4").tobytes())
            place, done = done, done + value.size
            return {"at": place, "shape": list(value.shape)}
        if isinstance(value, Mapping):
            return {str(key): plain(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [plain(each) for each in value]
        return value

    return plain(data), b"".join(parts)


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
