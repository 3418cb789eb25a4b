"""Initial weights of a training run: the model's own initialization, torch's defaults, or those of another run."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from mallang.errors import UserError
from mallang.layers.initialization import torch_defaults
from mallang.training.loop import Config
from mallang.training.run import WEIGHTS, Run
from mallang.training.weights import set_weights


def check_initial(config: Config, start: Path | None) -> None:
    """Refuse an initialization that another run's weights would replace."""
    if start is not None and config.initialization != "paper":
        raise UserError(
            f"train.initialization = {config.initialization!r} has no effect: --from gives the initial weights",
            todo="train.initialization=paper, or leave --from out",
        )


def initialize(model: nn.Module, config: Config, start: Path | None) -> None:
    """Set the initial weights of a model that was just built."""
    if config.initialization == "default":
        torch_defaults(model)
    if start is not None:
        set_weights(model, Run.open(start).read_weights(), start / WEIGHTS)
