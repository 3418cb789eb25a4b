"""A time budget (`train.seconds` alone): the number of updates that fit into it on this machine.

Schedules depend on the total number of updates, so it must be known before the first one, and a killed run must resume
with the same. So it is measured once, when the run starts: a few real updates, a validation and a checkpoint are timed
and undone; the resulting number is written to run.json and never changes. If the machine slows down later, training
takes longer, but the result is the same.
"""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import asdict, dataclass, replace

import torch

from mallang.recipe import Recipe
from mallang.runs import own_files
from mallang.runs.folder import Run
from mallang.runs.weights import own_weights, set_weights
from mallang.training.averaged_sgd import average_of
from mallang.training.carry import Carries
from mallang.training.loop import Loop
from mallang.training.options import Config
from mallang.training.progress import Progress
from mallang.training.schedule import Config as Schedule
from mallang.training.skipping import Skipping
from mallang.training.stopping import Stop

TRIAL = 0.1
"""Share of the time that the trial may take, without its validation and its checkpoint."""
LONGEST = 30.0
"""Seconds that the trial takes at most, however long the run is."""
FEWEST = 6
"""Updates that a trial times, unless they are slow; the first half is warm-up of memory and kernels, not counted."""
VALIDATIONS = 20
"""Default number of validations per run, if they are cheap."""
LOOKING = 0.1
"""Share of the time that validations and their checkpoints may take, unless validate_every is given."""
WARMUP = 10
"""A warm-up that was not given on the command line is at most the updates divided by this."""


@dataclass(frozen=True)
class Costs:
    """The measured times of a trial, in seconds."""

    update: float
    validation: float
    checkpoint: float
    start: float = 0.0
    """The time until the first batch is ready."""


@dataclass(frozen=True)
class Budget:
    """The budget as written to run.json."""

    steps: int
    validate_every: int
    warmup: int


def is_alone(config: Config) -> bool:
    """Whether `seconds` alone determines the length of training."""
    return config.seconds is not None and config.steps is None and config.epochs is None


def plan_updates(seconds: float, costs: Costs, config: Config, warmup: int, *, is_typed: bool) -> Budget:
    """The number of updates that fit into the remaining seconds, the validation interval and the warm-up."""
    left, look = seconds - costs.start, costs.validation + costs.checkpoint
    saving = costs.checkpoint / config.save_every if config.save_every else 0.0
    if config.validate_every is not None:
        steps = max(1, int((left - look) / (costs.update + saving + look / config.validate_every)))
        every = config.validate_every
    else:
        looks = max(1, min(VALIDATIONS, int(LOOKING * left / look) if look > 0 else VALIDATIONS))
        steps = max(1, int((left - looks * look) / (costs.update + saving)))
        every = math.ceil(steps / looks)
    return Budget(steps, every, warmup if is_typed else min(warmup, math.ceil(steps / WARMUP)))


def settle(loop: Loop, recipe: Recipe, run: Run, stop: Stop) -> Run:
    """Set the loop's number of updates: the one in run.json, or a measured one, which is written there.

    If a stop is requested meanwhile, nothing is set: the loop then saves, and the next start measures again.
    """
    known = run.info.get("budget")
    if known is None:
        found = measure(loop, recipe, stop)
        if found is None:
            return run
        known = loop.world.share(asdict(found))
        if loop.world.is_first:
            run = run.update(budget=known)
    budget = Budget(**known)
    config = replace(loop.config, steps=budget.steps, validate_every=budget.validate_every, seconds=None)
    schedule: Schedule = replace(loop.plan.schedule, warmup=budget.warmup)
    loop.config, loop.plan = config, replace(loop.plan, config=config, schedule=schedule)
    loop.plan.recorder.say(f"{recipe.train.seconds:g} s: {budget.steps:,} updates, of which {budget.warmup:,} warm up")
    return run


def measure(loop: Loop, recipe: Recipe, stop: Stop) -> Budget | None:
    """Time real updates, a validation and a checkpoint, and restore the loop; None if a stop is requested."""
    assert recipe.train.seconds is not None
    began = time.monotonic()
    weights = {name: tensor.clone() for name, tensor in own_weights(loop.model).items()}
    try:
        costs = costs_of(loop, share_of(recipe.train.seconds), stop)
    finally:
        restore(loop, weights)
    if costs is None:
        return None
    left = time_left(recipe.train.seconds, time.monotonic() - began)
    is_typed = recipe.resolved.origins.get("schedule.warmup") == "command line"
    return plan_updates(left, costs, recipe.train, recipe.schedule.warmup, is_typed=is_typed)


def costs_of(loop: Loop, limit: float, stop: Stop) -> Costs | None:
    """The seconds that an update, a validation and a checkpoint take."""
    mine = loop.mine(1)
    micro_batches, times = loop.micro_batches(), []
    asked = time.monotonic()
    drawn = list(itertools.islice(micro_batches, mine))
    start = time.monotonic() - asked
    while True:
        began = time.monotonic()
        if loop.update(drawn, stop):
            return None
        wait(loop.plan.device)
        drawn = list(itertools.islice(micro_batches, mine))
        times.append(time.monotonic() - began)
        if loop.world.share(is_enough(times, limit)):
            break
    validation = timed_validation(loop)
    counted = times[len(times) // 2 :]
    return Costs(sum(counted) / len(counted), validation, timed_checkpoint(loop), start)


def share_of(seconds: float) -> float:
    """The seconds that a trial may take."""
    return min(TRIAL * seconds, LONGEST)


def is_enough(times: list[float], limit: float) -> bool:
    """Whether a trial may end: its time is over, or, with fewer than FEWEST updates, over twice."""
    return sum(times) >= limit * (1 if len(times) >= FEWEST else 2) and len(times) >= 2


def time_left(seconds: float, trial: float) -> float:
    """The seconds that a trial leaves to the run.

    Half of a short trial counts, so that the run ends near its time with and without it. Of a long trial, which a slow
    model needs, all time beyond its share counts.
    """
    return seconds - max(trial / 2, trial - share_of(seconds))


def timed_validation(loop: Loop) -> float:
    """The seconds of one validation, which only the first process runs."""
    began = time.monotonic()
    if loop.world.is_first:
        loop.plan.validate()
    loop.world.barrier()
    return time.monotonic() - began


def timed_checkpoint(loop: Loop) -> float:
    """The seconds of one checkpoint, written to the run folder, since another disk may differ, and removed again."""
    plan, began = loop.plan, time.monotonic()
    try:
        loop.plan = replace(plan, folder=plan.folder / own_files.TRIAL)
        loop.save(validated=False)
    finally:
        loop.plan = plan
        if loop.world.is_first:
            own_files.sweep(plan.folder)
    return time.monotonic() - began


def restore(loop: Loop, weights: dict[str, torch.Tensor]) -> None:
    """Undo all updates: reset the loop to its initial state."""
    set_weights(loop.model, weights, "trial")
    loop.optimizer.state.clear()
    loop.average = average_of(loop.model, loop.plan.optimizer, loop.config.ema_decay, loop.config.final)
    loop.step, loop.saved, loop.progress = 0, 0, Progress()
    loop.carries = Carries(loop.each_step, loop.world)
    loop.sums, loop.norm, loop.waited, loop.skipping = {}, torch.zeros(()), 0.0, Skipping()


def wait(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
