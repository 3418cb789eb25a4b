"""Initial weights of a training run: the model's own initialization, torch's defaults, or those of another run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from mallang.errors import UserError
from mallang.layers.head import Headed
from mallang.layers.initialization import torch_defaults
from mallang.models.contract import ReadsEntities
from mallang.renamed import fit_names
from mallang.runs.folder import Run
from mallang.runs.own_files import WEIGHTS
from mallang.runs.weights import (
    AdaptsWeights,
    Partial,
    own_weights,
    set_some_weights,
    set_weights,
    with_new_rows,
    without_head,
)
from mallang.tasks.finetuning import FineTuning
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import Vocabulary
from mallang.training.options import Config


def check_initial(config: Config, task: Any, start: Path | None) -> None:
    """Refuse an initialization that another run's weights would replace, and LoRA of weights that nothing trained."""
    if start is None and isinstance(task, FineTuning) and task.lora_rank:
        raise UserError(
            f"task.lora_rank = {task.lora_rank} keeps the weights of the encoder, but nothing has trained them",
            todo="--from RUN, or leave task.lora_rank out",
        )
    if start is not None and config.initialization != "paper":
        raise UserError(
            f"train.initialization = {config.initialization!r} has no effect: --from gives the initial weights",
            todo="train.initialization=paper, or leave --from out",
        )


def initialize(
    model: nn.Module, config: Config, start: Path | None, say: Callable[[str], None], vocabulary: Vocabulary
) -> None:
    """Set the initial weights of a model that was just built for this vocabulary.

    Under the head of a task, the model takes what fits of the other run's model, and a report says what did not.
    Special tokens that the other run's vocabulary lacks keep their initial vectors.
    """
    if config.initialization == "default":
        torch_defaults(model)
    if start is None:
        return
    weights = Run.open(start).read_weights()
    if not isinstance(model, Headed):
        own = own_weights(model)
        given = fit_names(without_head(weights), own)
        if isinstance(model, ReadsEntities) and not set(own) <= set(given):  # a BERT has no weights for entities
            say(f"from {start}: {set_some_weights(model, given, start / WEIGHTS)}")
            return
        set_weights(model, {name: given[name] for name in given if name in own}, start / WEIGHTS)
        if left := [name for name in given if name not in own]:  # such as a pooler
            say(f"from {start}: {Partial(list(own), [], left)}")
    elif set(weights) == set(own_weights(model)):
        say(f"from {start}: {set_some_weights(model, weights, start / WEIGHTS)}")
    else:
        known, own = len(Tokenizer.load(start).vocabulary), without_head(weights)
        if isinstance(model.model, AdaptsWeights):
            own = model.model.adapted(own)
        own, grown = with_new_rows(model.model, own, known, len(vocabulary))
        more = f"; new rows for {' '.join(vocabulary.tokens[known:])}" if grown else ""
        say(f"from {start}: {set_some_weights(model.model, own, start / WEIGHTS)}; the head is new{more}")
