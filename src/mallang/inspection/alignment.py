"""Which source word each output word looked at: the attention of a translation that was really made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mallang.inspection.attention import AttentionMap, attention_maps
from mallang.inspection.figures import draw_attention


def translation_maps(model: Any, text: str) -> dict[str, AttentionMap]:
    """All attention behind one translation: the text is translated, then read again with its output."""
    source = model.task.source.encode_batch([text])[0]
    (found,) = model.search([text], model.config)
    batch = model.task.prepare([((source, list(found[0].tokens)),)], np.random.default_rng(0))
    (maps,) = attention_maps(model.model, batch.to(model.device))
    return maps


def draw_translation(model: Any, text: str, path: Path) -> None:
    """A picture of where the last layer looked while it wrote the translation, one panel a head."""
    maps = translation_maps(model, text)
    last = [name for name in maps if name.endswith("cross")][-1]
    shown = maps[last]
    draw_attention(path, shown.weights, shown.keys, shown.queries, title=f"{text}  ({last})")
