"""The pointing game over a whole split: attention inside the box of what each word of a caption names.

A corpus that has boxes (a column `boxes`, or `en-boxes` beside captions `en`) says where in the image each word is:
`left,top,right,bottom` in pixels, or `-` for a word that is not drawn, with spaces or tabs between the words. The
captions of the corpus are given to the model, so that every word with a box counts, whatever the model would have said.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mallang.data.column_names import column_names
from mallang.data.columns import split_cell
from mallang.data.corpus import Rows, open_corpus
from mallang.errors import UserError
from mallang.evaluation.pointing import pointing_statistics
from mallang.evaluation.score import Score
from mallang.inspection.image_attention import looked_at
from mallang.inspection.outputs import of_file
from mallang.runs.folder import Run
from mallang.tasks import captioner, captioning

ROLES = (*captioning.Task.columns, "boxes")


def pointing_of(run: Path, model: Any, split: str, data: str | None) -> list[Score]:
    """How often attention points at the box of a word, where the run is a captioner and the rows have boxes."""
    if not isinstance(model, captioner.Verbs) or not isinstance(model.model, captioning.AttendsToRegions):
        return []
    rows = rows_with_boxes(run, split, data) if model.task.config.picture == "images" else None
    return [] if rows is None else [pointing(model, rows)]


def rows_with_boxes(run: Path, split: str, data: str | None) -> Rows | None:
    """The images, captions and boxes of a split, or of a file; none where there are no boxes."""
    config = Run.open(run).data()
    if data is not None:
        config = of_file(config, data)
    if config.columns is not None and len(config.columns) != len(ROLES):
        return None  # they name the image and the caption alone
    try:
        rows = open_corpus(config, ROLES).split("test" if data is not None else split)
    except UserError:
        return None  # images and captions were read before: what is missing are boxes
    named = rows.picks[-1] in column_names(config.source, config.target, "text")["boxes"]
    return rows if named or config.columns is not None else None


def pointing(model: captioner.Verbs, rows: Iterable[tuple[str, ...]]) -> Score:
    """The percentage of words with a box whose most attended place lies in it."""
    hits = [looked_at(model, image, target=caption).hits(split_cell(boxes, "words")) for image, caption, boxes in rows]
    return pointing_statistics(hits).score()
