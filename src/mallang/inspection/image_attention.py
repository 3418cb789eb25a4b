"""Where a captioner looks: the image once for every word of its caption, dark where the word did not attend to it.

looked = looked_at(model, "picture.png")
draw_looked("attention.png", [looked])        or .html, which holds several images
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from mallang.data.images import Images, data_uri, fitted, read_image
from mallang.errors import UserError, require
from mallang.evaluation.pointing import is_hit, read_box
from mallang.inspection.alignment import Seen, attention_of, in_words
from mallang.inspection.figures import check_format, drawable, families, save
from mallang.layers.image_encoder import STRIDE, grid_of
from mallang.tasks import captioner

DARKEST = 0.15
"""The brightness of a place without attention."""
END = "</s>"
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>Attention to images</title>
<style>
body {{ font: 15px/1.5 system-ui, "Pretendard", "Noto Sans KR", "Malgun Gothic", sans-serif; margin: 1.5rem; }}
section {{ margin-bottom: 2rem; }} h2 {{ font-size: 1.1rem; }}
div {{ display: flex; flex-wrap: wrap; gap: .8rem; }} figure {{ margin: 0; text-align: center; }}
img {{ width: 140px; height: 140px; image-rendering: pixelated; border: 1px solid #bbb; }}
</style></head><body>
<h1>Attention to images</h1>
<p>The image, then once for every word: bright where the word attended to it.</p>
{sections}
</body></html>
"""


@dataclass(frozen=True)
class Looked:
    """An image, its caption, and the attention of every word to the places of the image."""

    input: str
    output: str
    score: float
    """Log-probability of the caption, `</s>` included."""
    pixels: UInt8[np.ndarray, "height width 3"]
    words: tuple[str, ...]
    weights: Float[np.ndarray, "words rows columns"]

    def shaded(self, word: int) -> UInt8[np.ndarray, "height width 3"]:
        """The image, dark where a word did not attend to it."""
        height, width = self.pixels.shape[:2]
        each = self.weights[word] / max(float(self.weights[word].max()), 1e-9)
        whole = each.repeat(STRIDE, axis=0).repeat(STRIDE, axis=1)[:height, :width, None]
        shaded: np.ndarray = (self.pixels * (DARKEST + (1 - DARKEST) * whole)).round().astype(np.uint8)
        return shaded

    def hits(self, boxes: Sequence[str]) -> list[bool]:
        """For every word with a box, whether it attended to the inside of its box most; `</s>` has none."""
        words = [word for word in self.words if word != END]
        if len(words) != len(boxes):
            raise UserError(f"the caption has {len(words)} words, but there are {len(boxes)} boxes")
        flat, columns = self.weights.reshape(len(self.weights), -1), self.weights.shape[2]
        return [
            is_hit(weights, box, columns, STRIDE)
            for weights, cell in zip(flat, boxes, strict=False)
            if (box := read_box(cell)) is not None
        ]


def looked_at(
    model: captioner.Verbs, image: Any, *, target: str | None = None, domain: str | None = None, **search: Any
) -> Looked:
    """The attention of every word of the model's caption to an image, or of a given caption."""
    if not isinstance(model.task.picture, Images):
        raise UserError(
            "region features that were given have no place in an image", todo="mallang inspect RUN FEATURES --json"
        )
    cell = captioner.as_cell(image)
    seen: Seen = in_words(attention_of(model, cell, target=target, domain=domain, **search))
    (shown,) = seen.maps.values()
    pixels = fitted(read_image(cell), model.task.picture.size)
    rows, columns = grid_of(shown.weights.shape[-1], pixels.shape[1], pixels.shape[0])
    weights = shown.weights[0].numpy().reshape(-1, rows, columns)
    return Looked(seen.input, seen.output, seen.score, pixels, shown.queries, weights)


def draw_looked(path: Path, looked: Sequence[Looked]) -> Path:
    """A page of all images, or a figure of one, by the suffix of the name."""
    if path.suffix.lower() in (".html", ".htm"):
        path.write_text(PAGE.format(sections="".join(map(section, looked))), "utf-8")
        return path
    check_format(path)
    (one,) = looked
    panels = [("", one.pixels), *((word, one.shaded(place)) for place, word in enumerate(one.words))]
    across = min(6, len(panels))
    down = math.ceil(len(panels) / across)
    figure = require("matplotlib.figure", "plots").Figure(figsize=(1.6 * across, 1.9 * down), layout="constrained")
    letters = {"fontfamily": families(), "parse_math": False}
    fields = figure.subplots(down, across, squeeze=False).flatten().tolist()
    for field, (word, pixels) in zip(fields, panels, strict=False):
        field.imshow(pixels, interpolation="nearest")
        field.set_title(drawable(word), fontsize=11, **letters)
    for field in fields:
        field.set_axis_off()
    save(figure, path)
    return path


def section(one: Looked) -> str:
    """One image of a page."""
    panels = [("", one.pixels), *((word, one.shaded(place)) for place, word in enumerate(one.words))]
    figures = "".join(
        f'<figure><img src="{data_uri(pixels)}" alt="{html.escape(word)}">'
        f"<figcaption>{html.escape(word) or '&nbsp;'}</figcaption></figure>"
        for word, pixels in panels
    )
    about = f"{html.escape(drawable(one.output))} <small>{html.escape(one.input)}, {one.score:.2f}</small>"
    return f"<section><h2>{about}</h2><div>{figures}</div></section>\n"
