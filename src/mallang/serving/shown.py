"""A worker's side of the page: what `mallang inspect` shows of a text, and the model that a browser runs itself."""

from __future__ import annotations

import base64
import gzip
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mallang.errors import UserError
from mallang.inspection.comparison_tables import finite
from mallang.inspection.live import check, live_parts
from mallang.inspection.page import packed
from mallang.inspection.shown_runs import shown_runs
from mallang.inspection.shown_texts import Wanted
from mallang.serving.requests import DATA_URI
from mallang.tasks import captioner

MOST_BYTES = 32 * 2**20
"""Bytes of the numbers of one text: more would fill the memory of a browser."""
OWN = ("words", "head", "layers", "numbers", "start", "target", "domain")
"""Options of what is shown; all others are options of the search."""


def inspect(verbs: Any, items: Sequence[tuple[str, Sequence[str]]], options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a page shows of a run and texts: JSON with the places of arrays, and their numbers, gzipped, in base64."""
    own = {name: value for name, value in options.items() if name in OWN}
    if "layers" in own:
        own["layers"] = tuple(own["layers"])
    wanted = Wanted(**own, search={name: value for name, value in options.items() if name not in OWN})
    found = []
    for folder, texts in items:
        refuse_paths(verbs, texts)
        if wanted.target is not None and len(texts) != 1:
            raise UserError(f"target is the output of one text, but there are {len(texts)}", todo="send one text")
        shown = shown_runs([(Path(folder), verbs)], texts, wanted)
        plain, numbers = packed(shown)
        if len(numbers) > MOST_BYTES:
            raise UserError(
                f"there are {len(numbers) / 2**20:.0f} MB of attention to show", todo="less text, or fewer layers"
            )
        zipped = base64.b64encode(gzip.compress(numbers, 6, mtime=0)).decode("ascii")
        found.append({"data": finite(plain), "numbers": zipped})
    return found


def refuse_paths(verbs: Any, texts: Sequence[str]) -> None:
    """Refuse to read what a captioner would take for the path of a file: that file would be one of the server."""
    if isinstance(verbs, captioner.Verbs) and not all(re.fullmatch(DATA_URI, text) for text in texts):
        raise UserError("this run reads images, and the text is none", todo="an image as data:image/png;base64,…")


def live(verbs: Any, items: Sequence[tuple[str, None]], options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parts of a live page: its header, and the weights as int8, gzipped, in base64."""
    return [live_parts(verbs, Path(folder).name) for folder, _ in items]


def is_live(verbs: Any) -> bool:
    """Whether a browser can run this model itself."""
    try:
        check(verbs, "")
    except (UserError, AttributeError):  # a model without weights, or a task without tokenizers
        return False
    return True
