"""The training loop: draw the micro-batches of a step, count, run, sum, update; validate; save; stop.

Everything random depends on (seed, step, number of the micro-batch) and everything read on (seed, epoch, place), so
a run that was killed at any moment and started again ends with the same weights, bit for bit on a CPU, and two
processes do what one process with twice the accumulation does.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.data.loader import Position, Source, load
from mallang.errors import UserError
from mallang.evaluation.score import Score
from mallang.models.contract import Configured, dim_of
from mallang.runs.weights import own_weights, set_weights
from mallang.tasks.contract import RateScaled, StepAware, Task, TextLayout, TwoPhases, Unfreezing
from mallang.tasks.own_input import Completing
from mallang.training import checkpoint as checkpoints
from mallang.training import optimizer as optimizers
from mallang.training.averaged_sgd import Mean, average_of
from mallang.training.carry import Carries
from mallang.training.checkpoint import Checkpoint
from mallang.training.diagnosis import check_health, has_finite_weights, note_of_frequencies
from mallang.training.distributed import World
from mallang.training.options import Config
from mallang.training.progress import Progress
from mallang.training.record import Recorder
from mallang.training.schedule import Config as Schedule
from mallang.training.schedule import multiplier
from mallang.training.seeding import seed_everything
from mallang.training.skipping import Skipping
from mallang.training.step import Step
from mallang.training.stopping import Stop


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The inputs of a training loop: configuration, task, model, data, device, run folder."""

    config: Config
    optimizer: optimizers.Config
    schedule: Schedule
    seed: int
    task: Task
    model: nn.Module
    source: Source
    validate: Callable[[], list[Score]]
    """Scores the current model."""
    folder: Path
    device: torch.device
    world: World
    recorder: Recorder
    license: str = ""


class Loop:
    """The training loop of a run: it resumes from the newest checkpoint and trains to the end."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.config = plan, plan.config
        self.model, self.task, self.world = plan.model, plan.task, plan.world
        groups = self.task.updates(self.model)
        self.parameters = [parameter for group in groups for _, parameter in group.parameters]
        self.names: dict[Tensor, str] = {parameter: name for group in groups for name, parameter in group.parameters}
        self.optimizer = optimizers.build(plan.optimizer, groups, self.model)
        each = self.task, self.model, plan.device, self.config.precision, self.config.engine
        self.gradients = Step(*each, one_shape=isinstance(self.task, TextLayout) and self.task.one_shape)
        self.average = average_of(self.model, plan.optimizer, self.config.ema_decay, self.config.final)
        self.step, self.saved, self.progress = 0, 0, Progress()
        self.origin = (0, 0)
        """The step and the number of the micro-batch that this process started at."""
        self.carries = Carries(self.each_step, self.world)
        self.batches = len(plan.source.plan(0))
        """Micro-batches of the first epoch, and of every other one unless the task has a second phase."""
        self.sums: dict[str, Tensor] = {}
        self.norm, self.skipping = torch.zeros(()), Skipping()
        self.waited = 0.0
        """Seconds since the last log line in which the next batches were not ready."""

    @property
    def steps_an_epoch(self) -> int:
        """Updates per epoch."""
        return math.ceil(self.batches / self.each_step)

    @property
    def each_step(self) -> int:
        """Micro-batches per update, over all processes, when it has grown to its size."""
        return self.config.micro_batches or self.config.gradient_accumulation * self.world.size

    def micro_batches_of(self, step: int) -> int:
        """Micro-batches of an update, over all processes."""
        return self.config.micro_batches_at(step, self.world.size)

    @property
    def total(self) -> int:
        """Total number of updates; recomputed from `epochs` where the number of processes has changed."""
        if self.config.steps is not None:
            return self.config.steps
        step, read = self.origin
        return step + max(0, math.ceil((self.batches_in_all - read) / self.each_step))

    @cached_property
    def batches_in_all(self) -> int:
        """Micro-batches of all epochs."""
        epochs = self.config.epochs or 10
        first = min(epochs, self.task.first_phase) if isinstance(self.task, TwoPhases) else epochs
        return self.batches * first + (len(self.plan.source.plan(first)) * (epochs - first) if epochs > first else 0)

    def run(self, stop: Stop) -> bool:
        """Train to the end, or until a stop is requested; True when the end was reached."""
        if self.config.first_micro_batches is not None and isinstance(self.task, TextLayout) and self.task.carries:
            raise UserError(
                "the micro-batches of an update are streams that carry their state on, so their number cannot grow",
                todo="leave train.first_micro_batches out",
            )
        if (fewest := self.micro_batches_of(1)) < self.world.size:
            name = "micro_batches" if fewest == self.each_step else "first_micro_batches"
            raise UserError(
                f"train.{name} = {fewest} leaves nothing to do for some of {self.world.size} processes",
                todo=f"start fewer processes, or raise train.{name}",
            )
        self.resume()
        began = time.monotonic() - self.progress.seconds
        with self.plan.recorder.live(self.total, self.step):
            micro_batches = self.micro_batches()
            while self.step < self.total and not self.progress.stopped:
                asked = time.monotonic()
                drawn = list(itertools.islice(micro_batches, self.mine(self.step + 1)))
                self.waited += time.monotonic() - asked
                if self.update(drawn, stop):
                    self.save(validated=False)
                    return False
                self.progress.seconds = time.monotonic() - began
                self.look_up()
        return True

    def mine(self, step: int) -> int:
        """The micro-batches of an update that this process computes."""
        return len(range(self.world.rank, self.micro_batches_of(step), self.world.size))

    def micro_batches(self) -> Iterator[tuple[Batch, Position]]:
        """The micro-batches of this process from the current position on."""
        next_step = self.step + 1
        return load(
            self.plan.source,
            self.progress.position,
            workers=self.config.workers,
            rank=self.world.rank,
            processes=self.world.size,
            steps=lambda number: self.micro_batches_of(next_step + number),
            pin_memory=self.plan.device.type == "cuda",
        )

    def update(self, drawn: list[tuple[Batch, Position]], stop: Stop) -> bool:
        """One update over its micro-batches; True, without an update, when any process was asked to stop."""
        if isinstance(self.task, Completing):
            drawn = self.complete(self.task, drawn)
        counts = [self.task.counts(batch) for batch, _ in drawn]
        names = tuple(counts[0])  # parts of the loss, and reported metrics
        mine = [sum(count[name] for count in counts) for name in names]
        *totals, asked = self.world.sum_numbers([*mine, int(stop.asked)])
        if asked:
            return True
        summed = dict(zip(names, totals, strict=True))
        self.step += 1
        rate = self.plan.optimizer.learning_rate * self.progress.plateau.scale * self.multiplier()
        optimizers.set_rate(self.optimizer, rate * self.rate_factor(drawn))
        if isinstance(self.task, StepAware):
            self.task.at_step(self.step)
        if isinstance(self.task, Unfreezing) and self.task.unfreeze(self.model, self.step):
            self.gradients.forget()
        self.model.train()
        self.optimizer.zero_grad(set_to_none=not self.gradients.keeps_gradients)
        self.carries.begin(self.progress.position.place)
        for number, (batch, _) in enumerate(drawn):
            stream = number * self.world.size + self.world.rank
            seed_everything(self.plan.seed, self.step, stream)
            loss = self.gradients.run(batch, [summed[part] for part in self.task.parts], self.carries.get(stream))
            self.carries.put(stream, loss.carry)
            self.remember({**loss.sums, **loss.report})
        self.world.sum_gradients(self.parameters)
        self.norm = optimizers.clip_gradients(self.parameters, self.plan.optimizer)
        skipped = self.skipping.update(self.optimizer, self.norm)
        if self.average is not None:
            self.average.update(self.model, skipped)
        self.progress.position = drawn[-1][1]
        self.progress.counts = {name: self.progress.counts.get(name, 0) + total for name, total in summed.items()}
        self.progress.tokens += max(totals)
        return False

    def complete(self, task: Completing, drawn: list[tuple[Batch, Position]]) -> list[tuple[Batch, Position]]:
        """The micro-batches of the next update with what the model makes for them."""
        if isinstance(self.task, StepAware):
            self.task.at_step(self.step + 1)
        return [(task.complete(self.model, batch), position) for batch, position in drawn]

    def multiplier(self) -> float:
        """The factor of the learning-rate schedule at this step."""
        dim = dim_of(self.model.config) if isinstance(self.model, Configured) else None
        if dim is None and self.plan.schedule.name == "noam":
            raise UserError("the noam schedule needs the model dimension, but the model's config has no `dim`")
        return multiplier(self.plan.schedule, self.step, total=self.total, dim=dim or 1)

    def rate_factor(self, drawn: list[tuple[Batch, Position]]) -> float:
        """The task's factor of the learning rate: the mean over the micro-batches of all processes."""
        if not isinstance(self.task, RateScaled):
            return 1.0
        total = torch.tensor(sum(self.task.rate_factor(batch) for batch, _ in drawn), dtype=torch.float64)
        self.world.sum_tensor(total)
        return float(total) / self.micro_batches_of(self.step)

    def remember(self, sums: Mapping[str, Tensor]) -> None:
        """Add to the sums of the next log line, without a synchronization of host and device."""
        for name, value in sums.items():
            addend = value.detach().double()
            self.sums[name] = self.sums[name] + addend if name in self.sums else addend

    def look_up(self) -> None:
        """Log, validate and save at their intervals."""
        is_last = self.step == self.total
        if self.step % self.config.log_every == 0 or is_last:
            self.log()
        if self.step % (self.config.validate_every or self.steps_an_epoch) == 0 or is_last:
            self.validate()
            self.save(validated=True)
        elif self.config.save_every and self.step % self.config.save_every == 0:
            self.save(validated=False)

    def gather(self) -> None:
        """Sum the device's sums over all processes and copy them into the progress that checkpoints hold."""
        if self.sums:
            summed = torch.stack([self.sums[name] for name in sorted(self.sums)])
            self.world.sum_tensor(summed)
            self.progress.sums = dict(zip(sorted(self.sums), summed.tolist(), strict=True))

    def check(self, loss: float | None = None) -> None:
        """Stop with an error on NaN, infinity, divergence or zero gradients; report the first skipped update."""
        norm, before, skipped = float(self.norm), self.progress.skipped_updates, int(self.skipping.count)
        self.progress.skipped_updates = skipped
        if skipped and not before:
            self.plan.recorder.say(f"step {self.step}  skipped updates: {skipped}; their gradient norm was not finite")
        is_finite = math.isfinite(norm) and math.isfinite(loss or 0.0)
        if not is_finite and skipped and not self.skipping.is_hopeless(self.step) and has_finite_weights(self.model):
            return
        check_health(
            self.model, step=self.step, rate=self.optimizer.param_groups[0]["lr"], norm=norm, loss=loss,
            first_loss=self.progress.first_loss, saved=self.saved,
        )  # fmt: skip

    def log(self) -> None:
        """Write one log line: the means since the last one."""
        self.gather()
        progress, counts = self.progress, self.progress.counts
        default = max(counts[part] for part in self.task.parts)
        means = {name: value / max(1, counts.get(name, default)) for name, value in progress.sums.items()}
        loss = sum(means[part] for part in self.task.parts)
        self.check(loss)
        progress.first_loss = loss if progress.first_loss is None and math.isfinite(loss) else progress.first_loss
        self.sums, progress.sums, progress.counts = {}, {}, {}
        if not self.world.is_first:
            return
        rate, speed = self.optimizer.param_groups[0]["lr"], progress.tokens / max(progress.seconds, 1e-9)
        waited, self.waited = self.waited, 0.0
        self.plan.recorder.write(
            kind="train", step=self.step, epoch=progress.position.epoch, **{"loss": loss, **means},
            rate=rate, norm=float(self.norm),
            tokens=progress.tokens, seconds=round(progress.seconds, 3), tokens_per_second=round(speed),
            seconds_waited=round(waited, 3),
            **({"skipped_updates": progress.skipped_updates} if progress.skipped_updates else {}),
        )  # fmt: skip
        left = (self.total - self.step) * progress.seconds / max(1, self.step)
        self.plan.recorder.show(self.step, f"loss {loss:.4f}  {speed:,.0f} tokens/s  {left:,.0f} s left")

    def validate(self) -> None:
        """Score the model, and record whether it has improved."""
        self.check()
        scores: list[Score] = []
        if self.world.is_first:
            with self.average.in_place_of(self.model) if self.average else nullcontext():
                scores = self.plan.validate()
        values = self.world.share({score.name: score.value for score in scores})
        value, progress = values[self.config.metric], self.progress
        sign = 1 if self.task.metrics[self.config.metric] == "higher" else -1
        improved = progress.best is None or sign * value > sign * progress.best
        if improved:
            progress.best, progress.best_step, progress.waited = value, self.step, 0
        else:
            progress.waited += 1
        progress.plateau = progress.plateau.after(improved, self.plan.schedule)
        progress.trigger = progress.trigger.after(-sign * value, self.step, self.plan.optimizer)
        if isinstance(self.average, Mean):
            self.average.follow(progress.trigger)
        is_late = self.world.share(self.config.seconds is not None and progress.seconds >= self.config.seconds)
        progress.stopped = is_late or (self.config.patience is not None and progress.waited >= self.config.patience)
        if self.world.is_first:
            self.plan.recorder.write(kind="valid", step=self.step, epoch=progress.position.epoch, **values)
            shown = "  ".join(f"{name} {number:.4f}" for name, number in values.items())
            self.plan.recorder.say(f"step {self.step}  validation: {shown}{'  (best)' if improved else ''}")
            first = self.config.validate_every or self.steps_an_epoch
            if self.step > first and (note := note_of_frequencies(values)):
                self.plan.recorder.say(f"warning: {note}")

    def save(self, *, validated: bool) -> None:
        """Write a checkpoint and remove those no longer needed."""
        self.gather()
        self.check()
        carried = self.carries.tensors()
        if self.world.is_first:
            tensors: dict[str, Mapping[str, Tensor]] = {
                "model": own_weights(self.model),
                "optimizer": optimizers.optimizer_tensors(self.optimizer, self.names),
            }
            if self.average is not None and self.average.weights:
                tensors["average"] = self.average.weights
            if carried:
                tensors["carry"] = carried
            state = {**asdict(self.progress), "validated": validated}
            folder = self.plan.folder / "checkpoints"
            checkpoints.write(folder, Checkpoint(self.step, state, tensors))
            checkpoints.clear(folder, keep=self.config.keep, best=self.progress.best_step)
        self.saved = self.step
        self.world.barrier()

    def resume(self) -> None:
        """Resume from the newest undamaged checkpoint that the first process finds, if there is one."""
        folder = self.plan.folder / "checkpoints"
        saved = checkpoints.resume(folder, self.plan.recorder.say) if self.world.is_first else None
        step = self.world.share(None if saved is None else saved.step)
        if step is not None and saved is None:
            saved = checkpoints.await_step(folder, step)
        if saved is not None:
            set_weights(self.model, saved.tensors["model"], self.plan.folder)
            optimizers.restore_optimizer(self.optimizer, self.names, dict(saved.tensors["optimizer"]))
            self.step = self.saved = saved.step
            self.progress = Progress.from_json({k: v for k, v in saved.state.items() if k != "validated"})
            self.skipping = Skipping(self.progress.skipped_updates)
            self.carries.restore(saved.tensors.get("carry"), self.task, self.model, self.progress.position.place)
            if self.average is not None:
                self.average.restore(saved.tensors.get("average", {}), self.progress.trigger.updates(self.step))
            share = 1.0 if self.world.is_first else 0.0  # the saved sums are over all processes: one of them takes them
            self.sums = {
                name: torch.tensor(share * value, dtype=torch.float64, device=self.plan.device)
                for name, value in self.progress.sums.items()
            }
            self.origin = (self.step, self.progress.position.number)
            self.plan.recorder.say(f"resuming from step {self.step}")
        if self.world.is_first:
            self.plan.recorder.cut_back(self.step)
