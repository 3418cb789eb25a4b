"""The cost of a run: its training FLOPs, its decoding speed, and the size of its state."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import mallang
from mallang.data.batch import Batch
from mallang.data.loader import gather
from mallang.decoding.contract import Autoregressive, device_of, inference
from mallang.errors import UserError
from mallang.evaluation.flops import flops_of_fit, flops_per_token
from mallang.find import find
from mallang.layers.cache import map_nest
from mallang.models.contract import Fitted, longest_of
from mallang.recipe import Recipe
from mallang.runs.files import is_read_only, replace_file, to_json
from mallang.runs.folder import Run
from mallang.runs.own_files import RECIPE
from mallang.tasks import generation, translator
from mallang.tasks.contract import TextLayout
from mallang.training.materials import Materials, prepare_data
from mallang.training.seeding import seed_everything

FILE = "cost.json"
BATCHES, TOKENS = 32, 512
"""Number of training batches whose FLOPs are counted, and the padded tokens of each."""
LONGEST = 64
"""Maximum number of tokens of a sample or of a text generated to measure speed."""
REPEATS = 3
"""Number of measurements of the decoding speed; the fastest counts, because noise only slows a machine down."""


@dataclass(frozen=True)
class Speed:
    """The speed of a model: decoding, or scoring where nothing is decoded."""

    sentences: float
    """Sentences, or rows, per second."""
    tokens: float | None
    """Tokens per second of its own tokenizer, `</s>` included; none where no tokens are written."""


def training_flops(run: Run) -> float:
    """The training FLOPs of a run: FLOPs per token, counted on some of its batches, times its training tokens.

    The number that a run recorded itself, as one without gradients may, is used as it is. The result is kept in the
    run folder, if that is writable.
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
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        each = None
    if each is None:
        each = count(run)
        try:
            replace_file(path, to_json({"flops_per_token": each, "made_of": stamp}))
        except UserError as error:
            if not is_read_only(error):
                raise
    return each * float(run.info["tokens"])


def count(run: Run) -> float:
    """Training FLOPs per target token, counted on the run's own text; its weights do not matter."""
    recipe = run.recipe()
    return count_for(recipe, prepare_data(recipe, run.folder))


def count_for(recipe: Recipe, materials: Materials) -> float:
    """Training FLOPs per target token of a recipe, counted on some batches of its text."""
    seed_everything(recipe.seed, 0, 0)
    model = materials.task.build(find("models", recipe.model_name), recipe.model)
    count_each = flops_of_fit if isinstance(model, Fitted) else flops_per_token
    each = count_each(materials.task, model, some_batches(materials, recipe))
    if each is None:
        raise UserError("it learns nothing from text by gradients or by a fit")
    return each


def some_batches(materials: Materials, recipe: Any) -> Iterator[Batch]:
    """Batches sampled evenly from the first epoch, smaller than those of training but with as little padding."""
    task, train = materials.task, materials.train
    widest = (task.width if isinstance(task, TextLayout) else None) or int(train.lengths.max()) + 1
    tokens = max(min(recipe.train.batch_tokens, TOKENS), widest)
    plan = task.plan(train, tokens=tokens, sentences=recipe.train.batch_sentences, seed=recipe.seed, epoch=0)
    examples = task.examples(train, recipe.seed, 0)
    chosen = np.unique(np.linspace(0, len(plan) - 1, BATCHES).astype(int))
    for number in chosen.tolist():
        yield task.prepare(gather(examples, plan[number]), np.random.default_rng(number))


def decoding_speed(
    model: translator.Verbs, texts: Sequence[str], domains: Sequence[str | None], **search: Any
) -> Speed:
    """The speed of translating a list of texts in one call, after one warm-up call."""
    best, outputs = float("inf"), model.translate(texts, domain=domains, **search)
    for _ in range(REPEATS):
        began = time.perf_counter()
        model.translate(texts, domain=domains, **search)
        best = min(best, time.perf_counter() - began)
    return Speed(len(texts) / best, sum(len(output.tokens) + 1 for output in outputs) / best)


def writing_speed(model: generation.Verbs, texts: int, **search: Any) -> Speed:
    """The speed of generating many texts from an empty prompt in one call, after one warm-up call."""
    asked = {"max_length": LONGEST, **search}
    best, outputs = float("inf"), model.generate([""] * texts, **asked)
    for _ in range(REPEATS):
        began = time.perf_counter()
        model.generate([""] * texts, **asked)
        best = min(best, time.perf_counter() - began)
    return Speed(texts / best, sum(len(output.tokens) + 1 for output in outputs) / best)


def state_bytes(model: Autoregressive, tokens: int) -> int | None:
    """Bytes of the generation state (such as the KV cache) after `tokens` tokens; None beyond the model's context."""
    if (longest := longest_of(model)) is not None and tokens > longest:
        return None
    device, total = device_of(model), 0

    def add(tensor: Tensor) -> Tensor:
        nonlocal total
        total += tensor.numel() * tensor.element_size()
        return tensor

    text = torch.full((1, tokens), model.vocabulary.unk, device=device)
    with inference(model):
        _, state = model.step(text, model.start(Batch(tokens=text[:, :1], lengths=text[:, 0] * 0 + 1)))
    map_nest(state.moving, add)
    return total
