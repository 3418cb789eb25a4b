"""Training without gradients: models with a `fit` of their own, such as n-gram models, in place of the training loop.

    for measured in model.fit(stream):      called once; the metrics of each pass go to metrics.jsonl

`stream` iterates over the batches of the training text, any number of times, always in the same order. Run folder,
model card, validation and `mallang.load` are those of any training run. There are no checkpoints: a fit that was
stopped starts again. A fit reads only the keys READ of [train], and nothing of [optimizer] and [schedule]; other keys
that are set are refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from mallang import schema
from mallang.data.batch import Batch
from mallang.data.loader import BatchDataset, BatchRequest, Position, Source
from mallang.errors import UserError
from mallang.evaluation.score import Score
from mallang.models.contract import Fitted
from mallang.recipe import Recipe
from mallang.tasks.contract import Task
from mallang.training.record import Recorder

READ = ("batch_tokens", "batch_sentences", "metric", "threads", "tensorboard")
"""The keys of [train] that a fit reads."""


def check_used(recipe: Recipe, *, processes: int, started: bool) -> None:
    """Refuse values and options that have no effect on a fitted model."""
    values = recipe.resolved.resolved()
    of_task = schema.part("task", recipe.task_name).get("x-defaults", {})
    unread = [
        f"{section}.{key} = {values[section][key]}"
        for section in ("train", "optimizer", "schedule")
        for key, rule in schema.part(section)["properties"].items()
        if not (section == "train" and key in READ)
        and values[section][key] != of_task.get(section, {}).get(key, plain(rule["default"]))
    ]
    if unread:
        raise UserError(
            f"{recipe.model_name} is fitted to the text, without gradients, so this has no effect: {', '.join(unread)}",
            todo=f"leave it out; of [train] it reads {', '.join(READ)}",
        )
    if started:
        raise UserError(f"--from has no effect: {recipe.model_name} is fitted again", todo="leave it out")
    if processes > 1:
        raise UserError(f"{recipe.model_name} is fitted by one process, not {processes}", todo="start it alone")


def plain(default: Any) -> Any:
    """A default of the schema as a recipe holds it."""
    return None if default == "none" else default


@dataclass
class Stream:
    """The batches of the training text; every iteration is one pass."""

    source: Source
    task: Task
    device: torch.device
    tokens: int = 0
    """The number of tokens read so far, over all passes."""

    def __iter__(self) -> Iterator[Batch]:
        dataset = BatchDataset(replace(self.source, shapes=None))
        for number, rows in enumerate(self.source.plan(0)):
            batch, _ = dataset[BatchRequest(number, 0, rows), Position()]
            self.tokens += max(self.task.counts(batch).values())
            yield batch.to(self.device)


@dataclass(frozen=True)
class Fit:
    """The result of a fit."""

    passes: int
    tokens: int
    seconds: float
    best: float


def fit(model: Fitted, stream: Stream, recorder: Recorder, validate: Callable[[], list[Score]], metric: str) -> Fit:
    """Fit the model, log its metrics, and validate it."""
    recorder.cut_back(-1)  # a fit that was killed may have left some lines
    began, passes = time.monotonic(), 0
    for passes, measured in enumerate(model.fit(stream), start=1):
        seconds = time.monotonic() - began
        recorder.write(
            kind="train", step=passes, epoch=passes - 1, **measured, tokens=stream.tokens, seconds=round(seconds, 3)
        )
        recorder.show(passes, "  ".join(f"{name} {value:.6g}" for name, value in measured.items()))
    seconds = time.monotonic() - began
    values = {score.name: score.value for score in validate()}
    recorder.write(kind="valid", step=passes, epoch=passes, **values)
    recorder.say("validation: " + "  ".join(f"{name} {number:.4f}" for name, number in values.items()))
    return Fit(passes, stream.tokens, seconds, values[metric])
