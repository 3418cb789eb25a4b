"""Learning-rate schedules: pure functions of the step, and one that reduces the rate on plateaus of validation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Config:
    """The learning-rate schedule: a factor of `optimizer.learning_rate`."""

    name: Literal["noam", "inverse-sqrt", "linear", "cosine", "exponential", "constant", "plateau"] = "inverse-sqrt"
    """noam: dim^-0.5 · min(step^-0.5, step · warmup^-1.5), as in the Transformer paper; the others peak at 1."""
    warmup: int = 4000
    """Warm-up steps, over which the rate grows linearly from zero; 0: no warm-up."""
    hold: float = 0.0
    """linear, cosine, exponential: share of the steps after the warm-up at the peak rate, before the decay."""
    floor: float = 0.0
    """Minimum rate as a share of the peak: linear, cosine and exponential end there, plateau stops there."""
    factor: float = 0.5
    """plateau: the factor of the rate when validation stops improving."""
    patience: int = 1
    """plateau: validations without improvement before the rate is reduced."""

    def __post_init__(self) -> None:
        if self.warmup < 0:
            raise ValueError(f"warmup must not be negative, but is {self.warmup}")
        if self.name == "noam" and self.warmup == 0:
            raise ValueError(
                "noam divides by the warm-up, so warmup = 0 is impossible; inverse-sqrt can do without one"
            )
        if not 0.0 <= self.floor <= 1.0:
            raise ValueError(f"floor is a share of the peak, so it lies between 0 and 1, but is {self.floor}")
        if not 0.0 < self.factor < 1.0:
            raise ValueError(f"factor must lie between 0 and 1, but is {self.factor}")
        if not 0.0 <= self.hold < 1.0:
            raise ValueError(f"hold is a share of the steps, so it lies between 0 and 1, but is {self.hold}")
        if self.hold and self.name not in ("linear", "cosine", "exponential"):
            raise ValueError(
                f"hold = {self.hold} has no effect on {self.name}; linear, cosine and exponential have one"
            )
        if self.name == "exponential" and not self.floor:
            raise ValueError("exponential needs floor, the share of the peak rate that it ends at, such as 0.01")
        if self.name != "plateau" and (self.factor, self.patience) != (0.5, 1):
            raise ValueError(f"factor and patience belong to plateau and have no effect on {self.name}")
        if self.floor and self.name in ("noam", "inverse-sqrt", "constant"):
            raise ValueError(
                f"floor = {self.floor} has no effect on {self.name}; linear, cosine, exponential and plateau do"
            )
        if self.patience < 1:
            raise ValueError(f"patience must be at least 1, but is {self.patience}")


def multiplier(config: Config, step: int, *, total: int, dim: int) -> float:
    """The factor of the learning rate at this step; the first step is 1."""
    if config.name == "noam":
        return float(dim**-0.5 * min(step**-0.5, step * config.warmup**-1.5))
    if step <= config.warmup:
        return step / config.warmup
    if config.name == "inverse-sqrt":
        return math.sqrt(max(1, config.warmup) / step)
    done = min(1.0, (step - config.warmup) / max(1, total - config.warmup))
    done = max(0.0, done - config.hold) / (1 - config.hold)
    if config.name == "exponential":
        return float(config.floor**done)
    if config.name == "linear":
        return config.floor + (1 - config.floor) * (1 - done)
    if config.name == "cosine":
        return config.floor + (1 - config.floor) * (1 + math.cos(math.pi * done)) / 2
    return 1.0


@dataclass(frozen=True)
class Plateau:
    """The state of the plateau schedule: part of a checkpoint, changed only by validation."""

    scale: float = 1.0
    waited: int = 0

    def after(self, improved: bool, config: Config) -> Plateau:
        """The state after a validation."""
        if config.name != "plateau" or improved:
            return Plateau(self.scale, 0)
        if self.waited + 1 < config.patience:
            return Plateau(self.scale, self.waited + 1)
        return Plateau(max(config.floor, self.scale * config.factor), 0)
