"""Training progress without tensors: data position, best score, sums for the next log line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mallang.data.loader import Position
from mallang.training.averaged_sgd import Trigger
from mallang.training.schedule import Plateau


@dataclass
class Progress:
    """The state of the training loop besides tensors; part of every checkpoint."""

    position: Position = field(default_factory=Position)
    plateau: Plateau = field(default_factory=Plateau)
    trigger: Trigger = field(default_factory=Trigger)
    best: float | None = None
    best_step: int = 0
    waited: int = 0
    stopped: bool = False
    first_loss: float | None = None
    """The mean loss of the first log line, with which later ones are compared to detect divergence."""
    skipped_updates: int = 0
    """Updates that were skipped because their gradient norm was not finite."""
    tokens: int = 0
    seconds: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)
    """Sums for the next log line."""
    counts: dict[str, int] = field(default_factory=dict)

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Progress:
        """The progress from a checkpoint's `state.json`."""
        plain = dict(saved)
        kinds = {"position": Position, "plateau": Plateau, "trigger": Trigger}
        return cls(**{name: kinds[name](**plain.pop(name, {})) for name in kinds}, **plain)
