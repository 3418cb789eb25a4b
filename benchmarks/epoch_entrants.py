"""Systems of `epoch_speed`: ours with two kinds of batches, and JoeyNMT on the same tokens.

A turn is the next updates of an endless training run, the preparation of batches included; its work is the number of
target tokens without padding.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.contest import Turn


def ours(overrides: list[str], updates: int, sentences: int) -> Turn:
    """Our loader, step and optimizer; `sentences` a batch in random order, or 0: our batches of like lengths."""
    from dataclasses import replace

    import torch

    from mallang.data.loader import Position, load
    from mallang.find import find
    from mallang.training import optimizer as optimizers
    from mallang.training.step import Step

    recipe, materials, source = our_data(overrides)
    if sentences:
        source = replace(source, plan=lambda epoch: random_plan(len(materials.train), sentences, epoch))
    task = materials.task
    model = task.build(find("models", recipe.model_name), recipe.model).train()
    step = Step(task, model, torch.device("cpu"), recipe.train.precision, recipe.train.engine)
    optimizer = optimizers.build(recipe.optimizer, task.updates(model))
    stream = (item[0] for item in load(source, Position(), workers=recipe.train.workers))

    def run() -> float:
        asked = 0
        for batch in itertools.islice(stream, updates):
            totals = task.counts(batch)
            optimizer.zero_grad()
            step.run(batch, list(totals.values()))
            optimizers.clip_gradients(model.parameters(), recipe.optimizer)
            optimizer.step()
            asked += totals["loss"]
        return asked

    return run


def joeynmt(folder: str, settings: dict[str, Any], updates: int) -> Turn:
    """JoeyNMT's trainer, driven batch by batch as its own loop does."""
    from joeynmt.config import parse_global_args, set_validation_args
    from joeynmt.prediction import prepare
    from joeynmt.training import TrainManager

    place = Path(folder) / "model"
    place.mkdir(exist_ok=True)
    args = parse_global_args(settings | {"model_dir": str(place)}, rank=0, mode="train")
    model, train, _, _ = prepare(args, rank=0, mode="train")
    trainer = TrainManager(
        rank=0, model=model, model_dir=args.model_dir, device=args.device, n_gpu=args.n_gpu,
        num_workers=args.num_workers, autocast=args.autocast, seed=args.seed, train_args=args.train,
        dev_args=set_validation_args(args.test),
    )  # fmt: skip
    batches = train.make_iter(
        batch_size=args.train.batch_size, batch_type=args.train.batch_type, seed=args.seed, shuffle=True,
        num_workers=args.num_workers, device=args.device, eos_index=model.eos_index, pad_index=model.pad_index,
    )  # fmt: skip

    def endless() -> Iterator[Any]:
        for epoch in itertools.count():
            batches.batch_sampler.set_seed(args.seed + epoch)
            yield from batches

    stream = endless()
    model.train()
    model.zero_grad()

    def run() -> float:
        asked = 0
        for batch in itertools.islice(stream, updates):
            asked += int((batch.trg != model.pad_index).sum())
            trainer._train_step(batch)
            if trainer.clip_grad_fun is not None:
                trainer.clip_grad_fun(parameters=model.parameters())
            trainer.optimizer.step()
            model.zero_grad()
        return asked

    return run


def our_data(overrides: list[str]) -> tuple[Any, Any, Any]:
    """The recipe, what was prepared for it, and where its batches come from."""
    import torch

    from mallang import recipe as recipes
    from mallang.training.materials import prepare_data
    from mallang.training.train import source_of

    recipe = recipes.read("transformer-multi30k-en-de", overrides).build()
    materials = prepare_data(recipe, None)
    return recipe, materials, source_of(recipe, materials, torch.device("cpu"))


def random_plan(examples: int, sentences: int, epoch: int) -> list[list[tuple[int, ...]]]:
    """The examples in random order, cut into batches of equal numbers."""
    import numpy as np

    order = np.random.default_rng(epoch).permutation(examples).tolist()
    return [[(place,) for place in order[i : i + sentences]] for i in range(0, examples, sentences)]
