"""What a page shows of runs: their texts (shown_texts.py), training curves, positions and layer mixes.

write_page(Path("page.html"), shown_runs([(Path("runs/x"), mallang.load("runs/x"))], ["유나는 배를 탔다."]))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mallang import __version__
from mallang.errors import UserError
from mallang.inspection.next_token import TEMPERATURES
from mallang.inspection.page import Page
from mallang.inspection.shown_texts import Wanted, shown_text
from mallang.inspection.shown_vectors import vectors_of
from mallang.layers.head import Headed
from mallang.layers.mix import LayerMix
from mallang.layers.position import LearnedPositions, RotaryPositions, SinusoidalPositions
from mallang.runs.folder import Run
from mallang.training import record

FORMAT = "mallang-page/1"
MOST_POINTS = 400
"""The maximum number of points of a training curve; of a longer one every second point is shown, or every third …"""
POSITIONS, DIMENSIONS = 50, 128
"""The size of a position map."""
CLOCK = (*record.CLOCK, "step", "epoch")


def inspect(
    model: Any, texts: str | Sequence[str] = (), *, run: Path | str | None = None, numbers: bool = False, **search: Any
) -> Page:
    """The page of a loaded model and some texts, for a notebook; `.write("page.html")` writes it.

    `run` is the model's folder, which has its training curves; `numbers` shows attention step by step in large models
    too. Options of the search are those of `translate` and `generate`, and `target="…"` and `domain="…"`.
    """
    target, domain = search.pop("target", None), search.pop("domain", None)
    wanted = Wanted(numbers=numbers, target=target, domain=domain, search=search)
    given = [texts] if isinstance(texts, str) else list(texts)
    return Page(shown_runs([(None if run is None else Path(run), model)], given, wanted))


def shown_runs(
    runs: Sequence[tuple[Path | None, Any]], texts: Sequence[str], wanted: Wanted | None = None
) -> dict[str, Any]:
    """All that a page shows of some runs and some texts."""
    wanted = wanted or Wanted()
    shown = [shown_run(folder, verbs, texts, wanted, alone=len(runs) == 1) for folder, verbs in runs]
    return {"format": FORMAT, "mallang": __version__, "temperatures": list(TEMPERATURES), "runs": shown}


def shown_run(folder: Path | None, verbs: Any, texts: Sequence[str], wanted: Wanted, *, alone: bool) -> dict[str, Any]:
    """One run; a text that it cannot read is refused, or is said to be refused where other runs may read it."""
    found = []
    for text in texts:
        try:
            found.append(shown_text(verbs, text, wanted))
        except UserError as error:
            if alone:
                raise
            found.append({"input": text, "output": "", "score": None, "problem": str(error)})
    return {**about(folder, verbs), "vectors": vectors_of(verbs, texts), "texts": found}


def about(folder: Path | None, verbs: Any) -> dict[str, Any]:
    """A run without any text."""
    run = None if folder is None else Run.open(folder)
    model = verbs.model.model if isinstance(verbs.model, Headed) else verbs.model
    return {
        "name": type(model).__name__ if folder is None else folder.resolve().name,
        "model": str(run.info.get("model", "")) if run is not None else type(model).__name__,
        "task": verbs.task_name if run is None else run.task,
        "parameters": count_parameters(model) if run is None else run.info.get("parameters", 0),
        "curves": {} if folder is None else curves(folder),
        "positions": position_map(verbs.model),
        "mixes": [
            {"name": name, "weights": part.weights().detach(), "scale": float(part.scale)}
            for name, part in parts_of(verbs.model)
            if isinstance(part, LayerMix)
        ],
    }


def count_parameters(model: Any) -> int:
    """The number of weights; 0 of a model that is fitted by counting."""
    return sum(part.numel() for part in model.parameters()) if isinstance(model, nn.Module) else 0


def parts_of(model: Any) -> Iterable[tuple[str, nn.Module]]:
    """The named modules of a model; one that is fitted by counting may have none."""
    return model.named_modules() if isinstance(model, nn.Module) else ()


def curves(folder: Path) -> dict[str, Any]:
    """The metrics of training and validation by name: the steps, and the values at them."""
    path = folder / record.FILE
    found: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for entry in record.read(path) if path.exists() else ():
        kind = found.setdefault(str(entry.get("kind", "train")), {})
        for key, value in entry.items():
            if key not in CLOCK and isinstance(value, int | float) and abs(value) < float("inf"):
                kind.setdefault(key, []).append((entry["step"], float(value)))
    return {
        kind: {name: torch.tensor(thinned(points)).T for name, points in values.items()}
        for kind, values in found.items()
    }


def thinned(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most `MOST_POINTS` points at equal distances, the last one among them."""
    every = -(-len(points) // MOST_POINTS)
    return list(points[::-1][::every][::-1])


def position_map(model: Any) -> dict[str, Any] | None:
    """The vectors of the first positions; none if the model adds or rotates by no position."""
    for _, part in parts_of(model):
        if isinstance(part, LearnedPositions):
            table, kind = part.table.weight, "learned"
        elif isinstance(part, SinusoidalPositions):
            table, kind = part.table, "rotary" if isinstance(part, RotaryPositions) else "sinusoidal"
        else:
            continue
        return {"kind": kind, "size": list(table.shape), "table": table[:POSITIONS, :DIMENSIONS].detach()}
    return None
