"""Micro-batches as large as a GPU's memory allows, on request: `train.auto_micro_batch = true`.

An update reads batch_tokens × gradient_accumulation tokens; this number stays that of the recipe, so that the result is
the same. The search is for the smallest number of micro-batches, 1, 2, 4 …, whose size fits. Each size is tried out:
forward and backward of the largest batches of an epoch, beside memory for the optimizer state.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from mallang.data.batch import Batch, Shapes
from mallang.data.loader import gather
from mallang.data.prepared import Prepared
from mallang.data.sampler import Rows
from mallang.errors import UserError
from mallang.models.contract import longest_of
from mallang.tasks.contract import Task, TextLayout, TwoPhases
from mallang.training.options import Config
from mallang.training.step import Step

SPARE = 0.1
"""Share of the memory that stays free: CUDA graphs, other shapes and libraries need some as well."""


def fitted(config: Config, fits: Callable[[int], bool], longest: int) -> Config:
    """The config with the fewest micro-batches per update that fit; `longest` is the length of the longest example."""
    total, pieces = config.batch_tokens * config.gradient_accumulation, 1
    while (tokens := -(-total // pieces)) >= longest:
        if fits(tokens):
            return replace(config, batch_tokens=tokens, gradient_accumulation=pieces, auto_micro_batch=False)
        pieces *= 2
    raise UserError(
        f"not even the longest example, of {longest} tokens, fits into the GPU's memory",
        todo="lower data.max_length, or choose a smaller model",
    )


def restored(config: Config, found: Mapping[str, int]) -> Config:
    """The config with the micro-batches that were found when the run started."""
    return replace(
        config, auto_micro_batch=False, batch_tokens=found["batch_tokens"], gradient_accumulation=found["accumulation"]
    )


class Trial:
    """Whether the largest batches of a size fit beside a model in training."""

    def __init__(self, task: Task, model: nn.Module, corpus: Prepared, config: Config, device: torch.device) -> None:
        if device.type != "cuda":
            raise UserError(
                "train.auto_micro_batch measures the memory of a GPU, but this run trains on a CPU",
                todo="train.auto_micro_batch=false",
            )
        self.task, self.model, self.corpus, self.config, self.device = task, model, corpus, config, device
        self.longest = width_of(task) or int(corpus.lengths.max()) + 2

    def fits(self, tokens: int) -> bool:
        """Run the largest batches of this size once and check that memory suffices."""
        copies = 2 + bool(self.config.ema_decay)  # the optimizer's two moments, and the EMA
        kept: list[Any] = []
        self.model.train()
        try:
            kept = [torch.empty_like(p) for p in self.model.parameters() for _ in range(copies)]
            step = Step(self.task, self.model, self.device, self.config.precision, "eager")
            for batch in largest(self.task, self.corpus, tokens, self.config.batch_sentences, longest_of(self.model)):
                step.run(batch, [1] * len(self.task.parts))
            torch.cuda.synchronize(self.device)
            free, size = torch.cuda.mem_get_info(self.device)
            return free >= SPARE * size
        except torch.OutOfMemoryError:
            return False
        finally:
            kept.clear()
            self.model.zero_grad(set_to_none=True)
            gc.collect()
            torch.cuda.empty_cache()


def shapes_of(task: object, tokens: int, sentences: int | None, longest: int | None) -> Shapes | None:
    """The shapes that batches are padded to where an engine needs few shapes; `longest` is the model's limit."""
    found = task.shapes(tokens, sentences) if isinstance(task, TextLayout) else Shapes(tokens, sentences)
    return None if found is None else replace(found, longest=longest)


def largest(
    task: Task, corpus: Prepared, tokens: int, sentences: int | None, longest: int | None = None
) -> list[Batch]:
    """The batch with the most tokens on all sides, and the one with the most rows, padded as training pads them."""
    shapes = shapes_of(task, tokens, sentences, longest)
    multiple = shapes.multiple if shapes else 1
    epoch = task.first_phase if isinstance(task, TwoPhases) else 0  # later ones have longer texts
    plan = task.plan(corpus, tokens=tokens, sentences=sentences, multiple=multiple, seed=0, epoch=epoch)
    examples, random = task.examples(corpus, 0, epoch), np.random.default_rng(0)
    made = [task.prepare(gather(examples, rows), random) for rows in chosen_rows(task, corpus, plan)]
    return [shapes.fill(batch) if shapes else batch for batch in made]


def chosen_rows(task: Task, corpus: Prepared, plan: Sequence[Rows]) -> list[Rows]:
    """The rows of the largest batches; where all batches are windows of one width, those of the first."""
    if width_of(task):
        return [plan[0]]
    batches = [plan[place] for place in range(len(plan))]
    lengths = corpus.epoch(0, 0).lengths
    area = [len(rows) * int(lengths[[row[0] for row in rows]].max(axis=0).sum()) for rows in batches]
    chosen = {int(np.argmax(area)), int(np.argmax([len(rows) for rows in batches]))}
    return [batches[place] for place in sorted(chosen)]


def width_of(task: Task) -> int | None:
    """The width of all batches of a task, if they are windows."""
    return task.width if isinstance(task, TextLayout) else None
