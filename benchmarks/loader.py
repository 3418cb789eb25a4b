"""Batches of like lengths hold little padding; how many the loader makes a second.

Padding is counted over both sides of one epoch of miniworld, beside batches in random order under the same budget of
padded tokens. Speed is that of the loader alone, from its first batch on, in the process itself and with two workers.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks.report import Result, show, versions
from mallang import recipe as recipes

RECIPE = "transformer-miniworld"


def measure(batches: int = 200) -> dict[str, Result]:
    """Padding of an epoch, and the speed of the loader over some batches."""
    import torch

    from mallang.training.materials import prepare_data
    from mallang.training.train import source_of

    began = time.monotonic()
    recipe = recipes.read(RECIPE, []).build()
    materials = prepare_data(recipe, None)
    source, tokens = source_of(recipe, materials, torch.device("cpu")), recipe.train.batch_tokens
    lengths = materials.train.lengths + 1
    plan = source.plan(0)
    padding = {
        "buckets": padding_of(lengths, ([place for (place,) in rows] for rows in plan)),
        "random order": padding_of(lengths, random_batches(lengths.max(axis=1), tokens, recipe.seed)),
    }
    speeds = {workers: speed_of(source, workers, batches) for workers in (0, 2)}
    show(f"batches of {tokens:,} tokens, {len(plan)} an epoch", [("padding", "share"), *padding.items()])
    show(f"{batches} batches", [("workers", "batches/s"), *((str(key), value) for key, value in speeds.items())])
    about: dict[str, Any] = {
        "system": "mallang", "recipe": RECIPE, "corpus": "miniworld", "direction": "ko-en", "split": "train",
        "seed": recipe.seed, "seconds": round(time.monotonic() - began, 1),
        "signature": versions("mallang", "torch", "numpy"),
    }  # fmt: skip
    shares = {
        f"padding-{name.replace(' ', '-')}": Result(
            **about | {"system": name}, metric="padding, share of all tokens", value=round(share, 4),
            protocol=f"one epoch, both sides, at most {tokens} padded tokens per batch on the longer side",
        )
        for name, share in padding.items()
    }  # fmt: skip
    return shares | {
        f"loader-{workers}-workers": Result(
            **about, overrides=[f"train.workers={workers}"], metric="loader, batches/s", value=round(speed, 1),
            protocol=f"{batches} batches of at most {tokens} tokens after the first, with nothing to train",
        )
        for workers, speed in speeds.items()
    }  # fmt: skip


def padding_of(lengths: np.ndarray[Any, Any], batches: Iterable[list[int]]) -> float:
    """The share of padding in rectangles that are as wide as their longest row, both sides together."""
    real = padded = 0
    for places in batches:
        chosen = lengths[places]
        real += int(chosen.sum())
        padded += int(chosen.max(axis=0).sum()) * len(places)
    return 1 - real / padded


def random_batches(widths: np.ndarray[Any, Any], tokens: int, seed: int) -> Iterable[list[int]]:
    """What one does without thinking: shuffle, and fill batches up to the budget."""
    batch: list[int] = []
    widest = 0
    for place in np.random.default_rng(seed).permutation(len(widths)).tolist():
        widest = max(widest, int(widths[place]))
        if widest * (len(batch) + 1) > tokens:
            yield batch
            batch, widest = [], int(widths[place])
        batch.append(place)
    yield batch


def speed_of(source: Any, workers: int, batches: int) -> float:
    """Batches a second, once the first is there."""
    from mallang.data.loader import Position, load

    stream = load(source, Position(), workers=workers)
    next(stream)
    began = time.perf_counter()
    for _ in itertools.islice(stream, batches):
        pass
    return batches / (time.perf_counter() - began)
