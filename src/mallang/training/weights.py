"""A model's tensors by name, each once: tied weights have the name of the first layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from mallang.errors import UserError
from mallang.renamed import fit_names
from mallang.training import checkpoint


def own_weights(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of a model, not copies: changing them changes the model."""
    seen: set[int] = set()
    chosen = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            chosen[name] = tensor.detach()
    return chosen


@runtime_checkable
class Adopts(Protocol):
    """A model whose array sizes depend on its training text: it takes saved arrays as they are, memory-mapped."""

    def adopt(self, arrays: Mapping[str, Tensor]) -> None:
        """Use these arrays; raises a ValueError that says what does not fit."""


def set_weights(model: nn.Module, weights: Mapping[str, Tensor], where: Path | str) -> None:
    """Load weights into a model, also under names of earlier versions; the error names the first that does not fit."""
    if isinstance(model, Adopts):
        try:
            model.adopt(weights)
        except (ValueError, KeyError) as error:
            raise UserError(
                f"the weights do not fit the recipe: {error}",
                where=str(where),
                todo="use the recipe and the tokenizer that the weights were trained with",
            ) from error
        return
    own = own_weights(model)
    weights = fit_names(weights, own)
    for name in [*own, *weights]:
        here, there = own.get(name), weights.get(name)
        if here is None or there is None or here.shape != there.shape:
            raise UserError(
                f"the weights do not fit the recipe: {name} is {shape_of(there)} in the file but "
                f"{shape_of(here)} in the model",
                where=str(where),
                todo="use the recipe and the tokenizer that the weights were trained with",
            )
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(weights[name])


def shape_of(tensor: Tensor | None) -> str:
    """A shape as text, such as 3×4."""
    if tensor is None:
        return "missing"
    return "×".join(str(size) for size in tensor.shape) or "a single number"


def mean_weights(paths: Sequence[Path]) -> dict[str, Tensor]:
    """The average of the weights of several checkpoints, with one in memory at a time."""
    total: dict[str, Tensor] = {}
    # The names of the newest: an earlier version may have written the others.
    names = list(checkpoint.read(paths[-1]).tensors["model"])
    for path in paths:
        for name, value in fit_names(checkpoint.read(path).tensors["model"], names).items():
            is_summed = name in total and value.is_floating_point()
            addend = value.double() if value.is_floating_point() else value
            total[name] = total[name] + addend if is_summed else addend
    return {name: (value / len(paths)).float() if value.is_floating_point() else value for name, value in total.items()}
