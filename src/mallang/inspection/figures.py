"""Figures as PNG or SVG files, with readable Hangul on any machine.

matplotlib draws them without pyplot, so that no window, default setting or other figure is affected.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from mallang.errors import UserError, require

FORMATS = (".png", ".svg")
LONGEST_LABEL = 20
SLANTED = {"rotation": 45, "horizontalalignment": "left", "rotation_mode": "anchor"}
KOREAN_FONTS = (
    "Pretendard", "Noto Sans KR", "Noto Sans CJK KR", "Noto Sans CJK JP", "NanumGothic", "NanumBarunGothic",
    "Apple SD Gothic Neo", "Malgun Gothic",
)  # fmt: skip
"""Typefaces with Hangul, best first; matplotlib may know a Noto collection by its Japanese name only."""
NOT_DRAWN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
VENDORED_FONT = Path(__file__).parent / "vendor" / "NanumGothic-subset.ttf"
VENDORED_FAMILY = "Mallang Sans Subset"
FALLBACK = "DejaVu Sans"
"""The typeface of matplotlib, for characters that a Korean typeface lacks."""


def draw_attention(
    path: Path,
    weights: Float[Tensor, "heads target source"],
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    title: str = "",
) -> Path:
    """One heat map per head: rows are queries, columns are keys, darker cells have higher weights."""
    heads, rows, columns = weights.shape
    if (rows, columns) != (len(target_tokens), len(source_tokens)):
        named = f"{len(target_tokens)} target and {len(source_tokens)} source tokens"
        raise ValueError(f"{named} do not label weights of {rows} × {columns}")
    check_format(path)
    across = min(heads, 4)
    down = math.ceil(heads / across)
    cell = min(0.3, 12 / max(rows, columns))  # inches
    size = (across * (columns * cell + 1.4) + 0.8, down * (rows * cell + 1.4) + 0.6)
    figure = require("matplotlib.figure", "plots").Figure(figsize=size, layout="constrained")
    fields = figure.subplots(down, across, squeeze=False).flatten().tolist()
    letters = {"fontfamily": families(), "parse_math": False}  # a token may hold a dollar sign
    small = {**letters, "fontsize": max(3.0, min(10.0, cell * 40))}
    darkest = max(float(weights.max()), 1e-9)  # one scale for all heads
    for head, field in enumerate(fields[:heads]):
        image = field.imshow(weights[head].float().cpu().numpy(), cmap="Blues", vmin=0.0, vmax=darkest)
        field.set_xticks(range(columns), [show(token) for token in source_tokens], **small, **SLANTED)
        field.set_yticks(range(rows), [show(token) for token in target_tokens], **small)
        field.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False)
        if heads > 1:
            field.set_xlabel(f"head {head + 1}")
    for field in fields[heads:]:
        field.set_axis_off()
    figure.colorbar(image, ax=fields, shrink=0.6, label="weight")
    figure.suptitle(unicodedata.normalize("NFC", title), **letters)
    save(figure, path)
    return path


def save(figure: Any, path: Path) -> None:
    """Write a figure of matplotlib, every text of it as it can be drawn."""
    for text in figure.findobj(require("matplotlib.text", "plots").Text):
        if (said := drawable(text.get_text())) != text.get_text():
            text.set_text(said)
    figure.savefig(path, dpi=150)


def drawable(text: str) -> str:
    """A text without control characters and surrogates, which no typeface draws and XML 1.0 (so SVG) forbids."""
    return NOT_DRAWN.sub("\ufffd", text)


def check_format(path: Path) -> None:
    """Refuse a file name without the suffix of a figure format."""
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"a figure cannot be written as {path.name}", todo=f"end the name in {' or '.join(FORMATS)}")


def check_figure(path: Path) -> None:
    """Refuse a figure that cannot be drawn or written there, before anything is computed."""
    check_format(path)
    require("matplotlib.figure", "plots")
    if not path.parent.is_dir():
        raise UserError(f"there is no folder {path.parent} for the figure", todo="make it first")


def families() -> list[str]:
    """The typefaces to draw with: an installed one with Hangul or else the bundled one, then matplotlib's."""
    fonts: Any = require("matplotlib.font_manager", "plots").fontManager
    known = {font.name for font in fonts.ttflist}
    for name in KOREAN_FONTS:
        if name in known:
            return [name, FALLBACK]
    if VENDORED_FAMILY not in known:
        fonts.addfont(VENDORED_FONT)
    return [VENDORED_FAMILY, FALLBACK]


def show(token: str) -> str:
    """A token for display: jamo joined to syllables, blanks made visible, truncated when it is very long."""
    text = "".join("␣" if letter.isspace() else letter for letter in drawable(unicodedata.normalize("NFC", token)))
    return text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"
