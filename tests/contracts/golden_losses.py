"""The first losses of every recipe, as they were before the last change to the code: refactoring leaves them alone.

    python -m contracts.golden_losses check            every loss, bit for bit, on the same kind of machine
    python -m contracts.golden_losses write            after a change that is meant to change the numbers
    python -m contracts.golden_losses write NAME ...   these recipes alone, such as new ones

(with PYTHONPATH=src:tests). Recipes keep all their options; sizes shrink to what a CPU trains in seconds, yet large
enough for the kernels of a CPU to run. `test_recipe_training.py` compares them on any machine, to four digits.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from gpu import stand_ins
from mallang import recipe
from mallang.data import storage
from mallang.find import find
from mallang.models import contract
from mallang.training.loop import Loop
from mallang.training.record import FILE, read
from mallang.training.train import Options, train

GOLDEN = Path(__file__).with_name("golden_losses.json")
STEPS = 20
MOST = {"layers": 2, "decoder_layers": 2, "blocks": 2, "block_layers": 2, "heads": 4, "filters": 6}
"""The most of each size of a model; of all that ends in `dim` or `dims` the most is the `dim` that is asked for."""

NO_VECTORS = {"vectors": "none", "freeze_vectors": "false", "scale_vectors": "true", "extra_words": 0}


def is_fitted(name: str) -> bool:
    return contract.is_fitted(find("models", recipe.read(name).resolved()["model"]["name"]))


def shrunk(value: Any, most: int) -> Any:
    return [min(each, most) for each in value] if isinstance(value, list | tuple) else min(value, most)


def small(name: str, *, dim: int, batch_tokens: int, context: int, steps: int, precision: str) -> recipe.Recipe:
    """The recipe with smaller sizes: options, units and schedules stay as they are."""
    values = recipe.read(name).resolved()
    most = {key: dim if key.endswith(("dim", "dims")) else MOST.get(key) for key in values["model"]}
    changes = {
        f"model.{key}": shrunk(values["model"][key], limit)
        for key, limit in most.items()
        if limit is not None and values["model"][key] is not None
    }
    if values["model"].get("vectors"):  # they would not fit into a smaller embedding
        changes |= {f"model.{key}": value for key, value in NO_VECTORS.items()}
    changes["text.vocabulary"] = min(values["text"]["vocabulary"], 400)
    changes["train.batch_tokens"] = min(values["train"]["batch_tokens"], batch_tokens)
    for key in ("context", "stride"):
        if values["task"].get(key):
            changes[f"task.{key}"] = min(values["task"][key], context)
    if not is_fitted(name):
        changes |= {"train.steps": steps, "train.precision": precision, "train.workers": 0, "train.log_every": 1}
    sizes = {"dim": dim, "batch_tokens": batch_tokens, "context": context, "steps": steps, "precision": precision}
    given = stand_ins.given_runs(
        name,
        storage.cache_folder() / f"given-{dim}",
        lambda other: small(other, **sizes),
        "cpu",  # type: ignore[arg-type]
    )
    return recipe.read(name, [*(f"{key}={value}" for key, value in changes.items()), *given]).build()


@contextmanager
def corpora() -> Iterator[None]:
    """Small stand-ins of all corpora that the recipes name, in the cache folder."""
    every = [recipe.read(name).resolved() for name in recipe.names()]
    names = {corpus for each in every for corpus in stand_ins.corpora_of(each)}
    entries = stand_ins.write(sorted(names), stand_ins.SMALL)
    with stand_ins.in_registry(entries), stand_ins.shortened(train=300, valid=8):
        yield


class EnoughError(Exception):
    """What ends a run before its last update."""


def losses(name: str, folder: Path, updates: int = STEPS) -> list[float]:
    """The loss of each of the first updates; of a fitted model, what its fit measured."""
    built = small(name, dim=128, batch_tokens=1024, context=64, steps=STEPS, precision="fp32")
    look_up = Loop.look_up

    def look_up_or_end(loop: Loop) -> None:
        look_up(loop)
        if updates <= loop.step < STEPS:
            raise EnoughError

    with (
        patch("mallang.training.loop.check_health"),  # at these sizes some diverge, which would end them
        patch.object(Loop, "look_up", look_up_or_end),
        suppress(EnoughError),
    ):
        train(built, Options(folder=folder, device="cpu", quiet=True))
    # An update and the validation after it have a line each; both say what a change would alter.
    return [entry[key] for entry in read(folder / FILE) for key in ("loss", "nll") if key in entry]


def all_losses(names: Sequence[str] = ()) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MALLANG_CACHE"] = folder
        with corpora():
            return {name: losses(name, Path(folder, "runs", name)) for name in names or recipe.names()}


def differences(found: Mapping[str, list[float]], wanted: Mapping[str, list[float]]) -> list[str]:
    """One line for every recipe whose losses are not the same, bit for bit."""
    told = []
    for name in sorted({*found, *wanted}):
        ours, golden = found.get(name), wanted.get(name)
        if ours != golden:
            first = next(
                (i for i, pair in enumerate(zip(ours or [], golden or [], strict=False)) if len({*pair}) > 1), 0
            )
            told.append(f"{name}: from number {first} on {(ours or [])[first:][:3]}, not {(golden or [])[first:][:3]}")
    return told


def main(verb: str, *names: str) -> int:
    import torch

    torch.set_num_threads(1)
    found, golden = all_losses(names), json.loads(GOLDEN.read_text("utf-8"))
    if verb == "write":
        kept = {name: golden[name] for name in recipe.names() if name in golden} if names else {}
        merged = dict(sorted((kept | found).items()))
        GOLDEN.write_text(json.dumps(merged, indent=0) + "\n", encoding="utf-8")
        print(f"{len(found)} recipes written to {GOLDEN}")
        return 0
    told = differences(found, {name: golden[name] for name in names} if names else golden)
    print("\n".join(told) or f"{len(found)} recipes: every loss as before")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
