"""Writes a model that was trained elsewhere as a finished run folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import nn

from mallang.data.columns import LabelSet
from mallang.find import find
from mallang.recipe import Recipe
from mallang.runs.beginning import begin, check_place, locked
from mallang.runs.files import replace_file, sha256
from mallang.runs.folder import Run
from mallang.runs.own_files import WEIGHTS
from mallang.runs.weights import own_weights
from mallang.tasks.contract import text_columns
from mallang.text.tokenizer import Tokenizer


def write_imported(
    folder: Path,
    recipe: Recipe,
    tokenizer: Tokenizer,
    model: nn.Module,
    *,
    about: str,
    sources: Mapping[str, str],
    fresh: bool,
    labels: Mapping[str, LabelSet] | None = None,
) -> Run:
    """Write the run; `about` goes onto its card, and `sources` are the files it came from.

    `labels` are the sets of labels by column.
    """
    named = labels or {}
    columns = text_columns(find("tasks", recipe.task_name).Task, recipe.task)
    check_place(folder, recipe, fresh=fresh)
    with locked(folder):
        run = begin(folder, recipe, fresh=fresh)
        tokenizer.save(folder)
        for each, found in named.items():
            found.save(folder, each)
        run.write_weights(own_weights(model))
        replace_file(folder / "card.md", f"# {folder.name}\n\n{about}\n".encode("utf-8", "backslashreplace"))
        return run.update(
            status="finished",
            weights=sha256(folder / WEIGHTS),
            tokenizers=dict.fromkeys(columns, tokenizer.fingerprint),
            **({"labels": {each: found.fingerprint for each, found in named.items()}} if named else {}),
            imported=dict(sources),
            parameters=sum(parameter.numel() for parameter in model.parameters()),
            steps=0,
            tokens=0,
            seconds=0.0,
        )
