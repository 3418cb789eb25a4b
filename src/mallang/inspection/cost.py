"""What a run has cost, and what it costs to use: the FLOPs of its training, the speed of its decoding."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import mallang
from mallang.data.batch import Batch
from mallang.errors import UserError
from mallang.evaluation.flops import flops_of_fit, flops_per_token
from mallang.find import find
from mallang.training.checkpoint import replace_file, to_json
from mallang.training.loop import seed_everything
from mallang.training.run import RECIPE, Run
from mallang.training.train import Materials, prepare_data

FILE = "cost.json"
BATCHES, TOKENS = 32, 512
"""How many batches of the training text are counted, and the padded tokens of each."""
REPEATS = 3
"""Times that decoding is measured; the best one counts, for nothing makes a machine faster than it is."""


@dataclass(frozen=True)
class Speed:
    """How fast a model writes."""

    sentences: float
    """Sentences a second."""
    tokens: float
    """Tokens of its own tokenizer a second, `</s>` counted."""


def training_flops(run: Run) -> float:
    """The FLOPs of the run's training: those of some of its batches for each token, times its tokens.

    A run that says itself what it took, as one without gradients may, is believed. The number is kept in the folder.
    """
    if "flops" in run.info:
        return float(run.info["flops"])
    stamp = {
        "recipe": hashlib.sha256((run.folder / RECIPE).read_bytes()).hexdigest(),
        "data": run.info.get("data", {}).get("train"),
        "mallang": mallang.__version__,
    }
    path = run.folder / FILE
    try:
        known = json.loads(path.read_text("utf-8"))
        each = float(known["flops_per_token"]) if known["made_of"] == stamp else None
    except (OSError, ValueError, KeyError, TypeError):
        each = None
    if each is None:
        each = count(run)
        replace_file(path, to_json({"flops_per_token": each, "made_of": stamp}))
    return each * float(run.info["tokens"])


def count(run: Run) -> float:
    """The FLOPs of training for each target token, counted on the run's own text; its weights do not matter."""
    recipe = run.recipe()
    materials = prepare_data(recipe, run.folder)
    seed_everything(recipe.seed, 0, 0)
    model = materials.task.build(find("models", recipe.model_name), recipe.model)
    count_each = flops_of_fit if hasattr(model, "fit") else flops_per_token
    each = count_each(materials.task, model, some_batches(materials, recipe))
    if each is None:
        raise UserError("it learns nothing from text by gradients or by a fit")
    return each


def some_batches(materials: Materials, recipe: Any) -> Iterator[Batch]:
    """Batches from all over the first epoch, smaller than those of training: they are padded as little."""
    task, train = materials.task, materials.train
    tokens = max(min(recipe.train.batch_tokens, TOKENS), int(train.lengths.max()) + 1)
    plan = task.plan(train, tokens=tokens, sentences=recipe.train.batch_sentences, seed=recipe.seed, epoch=0)
    examples = task.examples(train, recipe.seed, 0)
    chosen = np.unique(np.linspace(0, len(plan) - 1, BATCHES).astype(int))
    for number in chosen.tolist():
        rows = [tuple(examples[place] for place in row) for row in plan[number]]
        yield task.prepare(rows, np.random.default_rng(number))


def decoding_speed(model: Any, texts: Sequence[str], domains: Sequence[str | None], **search: Any) -> Speed:
    """How fast a model translates texts that are handed over together; the first time is not counted."""
    best, outputs = float("inf"), model.translate(texts, domain=domains, **search)
    for _ in range(REPEATS):
        began = time.perf_counter()
        model.translate(texts, domain=domains, **search)
        best = min(best, time.perf_counter() - began)
    return Speed(len(texts) / best, sum(len(output.tokens) + 1 for output in outputs) / best)
