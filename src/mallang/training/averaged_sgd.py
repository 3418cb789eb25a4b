"""NT-ASGD: averaged SGD, triggered by validation (Merity et al. 2017, arXiv:1708.02182, algorithm 1).

SGD with a constant learning rate ends up moving around a minimum; the mean of its iterates is nearer to that minimum
than the last one (Polyak and Juditsky 1992). Averaging too early includes the way there. So it starts when a validation
is worse than the best of those before the last `trigger` ones: a single bad validation does not start it.

    validations  5.1  4.9  4.7  4.6  4.8  4.5  4.55  4.65  |  trigger 2: worse than the earlier 4.6: averaging starts
    mean ← mean + (weights − mean) / number of updates since then          validated, and the final weights of the run

The updates themselves continue from the weights, never from their mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from mallang.errors import UserError
from mallang.renamed import fit_names
from mallang.runs.weights import own_weights
from mallang.training.optimizer import Average, Config


@dataclass(frozen=True)
class Trigger:
    """The state of the trigger: part of a checkpoint, changed only by validation."""

    losses: list[float] = field(default_factory=list)
    """The validation losses until averaging started; lower is better."""
    began: int | None = None
    """The update after which averaging started."""

    def after(self, loss: float, step: int, config: Config) -> Trigger:
        """The state after a validation."""
        if config.name != "asgd" or self.began is not None:
            return self
        long_ago = self.losses[: len(self.losses) - config.trigger]
        late = config.average_from is not None and step >= config.average_from
        begins = late or (len(self.losses) > config.trigger and loss > min(long_ago))
        return Trigger([*self.losses, loss], step if begins else None)

    def updates(self, step: int) -> int:
        """The number of updates since averaging started, after update number `step`."""
        return 0 if self.began is None else step - self.began


class Mean(Average):
    """The mean of the weights after every update since averaging started; before that, the weights themselves."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.weights, self.count = model, {}, 0
        """Updates in the mean."""

    def follow(self, trigger: Trigger) -> None:
        """Start averaging if the trigger has fired."""
        if trigger.began is not None and not self.weights:
            self.weights = {name: value.clone() for name, value in own_weights(self.model).items()}

    @torch.no_grad()
    def update(self, model: nn.Module, skipped: Tensor) -> None:
        """Add the current weights to the mean; after a skipped update they are the previous ones once more."""
        if not self.weights:
            return
        self.count += 1
        for name, value in own_weights(model).items():
            mean = self.weights[name]
            if mean.is_floating_point():
                mean.lerp_(value, 1 / self.count)
            else:
                mean.copy_(value)

    def restore(self, saved: Mapping[str, Tensor], updates: int) -> None:
        """Restore a saved mean of `updates` updates, if averaging had started."""
        places = {name: value.device for name, value in own_weights(self.model).items()}
        self.weights = {name: value.to(places[name], copy=True) for name, value in fit_names(saved, places).items()}
        self.count = updates

    @contextmanager
    def in_place_of(self, model: nn.Module) -> Iterator[None]:
        """Run the block with the mean, once there is one, as the model's weights."""
        if not self.weights:
            yield
            return
        with super().in_place_of(model):
            yield


def average_of(model: nn.Module, config: Config, ema: float, final: str) -> Average | None:
    """The average of the weights that training keeps: none, an EMA, or the mean of averaged SGD."""
    if config.name != "asgd":
        return Average(model, ema) if ema else None
    if ema:
        raise UserError(
            'train.ema_decay and optimizer.name = "asgd" both average the weights', todo="leave train.ema_decay out"
        )
    if final == "average":
        raise UserError(
            'optimizer.name = "asgd" ends with a mean of its own; train.final = "average" is that of checkpoints',
            todo="train.final=best, or train.final=last",
        )
    return Mean(model)
