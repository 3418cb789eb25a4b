"""Initial weights of a training run: the model's own initialization, torch's defaults, or those of another run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch import nn

from mallang.errors import UserError
from mallang.layers.head import Headed
from mallang.layers.initialization import torch_defaults
from mallang.runs.folder import Run
from mallang.runs.own_files import WEIGHTS
from mallang.runs.weights import AdaptsWeights, own_weights, set_some_weights, set_weights, without_head
from mallang.training.options import Config


def check_initial(config: Config, start: Path | None) -> None:
    """Refuse an initialization that another run's weights would replace."""
    if start is not None and config.initialization != "paper":
        raise UserError(
            f"train.initialization = {config.initialization!r} has no effect: --from gives the initial weights",
            todo="train.initialization=paper, or leave --from out",
        )


def initialize(model: nn.Module, config: Config, start: Path | None, say: Callable[[str], None]) -> None:
    """Set the initial weights of a model that was just built.

    Under the head of a task, the model takes what fits of the other run's model, and a report says what did not.
    """
    if config.initialization == "default":
        torch_defaults(model)
    if start is None:
        return
    weights = Run.open(start).read_weights()
    if not isinstance(model, Headed):
        set_weights(model, without_head(weights), start / WEIGHTS)
    elif set(weights) == set(own_weights(model)):
        say(f"from {start}: {set_some_weights(model, weights, start / WEIGHTS)}")
    else:
        given = without_head(weights)
        if isinstance(model.model, AdaptsWeights):
            given = model.model.adapted(given)
        say(f"from {start}: {set_some_weights(model.model, given, start / WEIGHTS)}; the head is new")
