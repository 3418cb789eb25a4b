"""A model's tensors by name, each once: tied weights have the name of the first layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from mallang.errors import UserError
from mallang.renamed import fit_names


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


@runtime_checkable
class AdaptsWeights(Protocol):
    """A model that can start from the weights of other kinds of models, whose names or scales differ."""

    def adapted(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The weights of another model under the names of this one; those without a counterpart stay as they are."""

    @classmethod
    def adapted_shape(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values of this model's configuration that fit those of another one."""


def to_file(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The names in a weight file: `model.*`, and `head.*` for what a task added to the model."""
    return dict(weights) if are_headed(weights) else {f"model.{name}": value for name, value in weights.items()}


def from_file(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The names of weights in the model that wrote them."""
    return dict(weights) if are_headed(weights) else {name.removeprefix("model."): weights[name] for name in weights}


def are_headed(weights: Mapping[str, Tensor]) -> bool:
    """Whether these are the weights of a model with a task's head (layers.head.Headed)."""
    return any(name.startswith("head.") for name in weights) and all(
        name.startswith(("model.", "head.")) for name in weights
    )


def without_head(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of the model alone, without a task's head."""
    if not are_headed(weights):
        return dict(weights)
    return {name.removeprefix("model."): value for name, value in weights.items() if name.startswith("model.")}


def head_alone(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a task's head, without those of the model; empty where there is no head."""
    is_headed = are_headed(weights)
    return {n.removeprefix("head."): value for n, value in weights.items() if is_headed and n.startswith("head.")}


@dataclass(frozen=True)
class Partial:
    """What became of weights that were loaded in part."""

    loaded: list[str]
    new: list[str]
    """In the model but not in the file, or of another shape: they keep their initialization."""
    left: list[str]
    """In the file but not in the model, or of another shape."""

    def __str__(self) -> str:
        parts = (f"{len(self.loaded)} tensors loaded", listed("new", self.new), listed("left out", self.left))
        return "; ".join(part for part in parts if part)


def listed(title: str, names: Sequence[str], most: int = 6) -> str:
    """Some names, and how many more there are; empty for none."""
    if not names:
        return ""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{title}: {', '.join(names[:most])}{more}"


def with_new_rows(
    model: nn.Module, weights: Mapping[str, Tensor], known: int, words: int
) -> tuple[dict[str, Tensor], list[str]]:
    """Weights of a model whose vocabulary has got more words at its end, and the names of the tables that have grown.

    The first `known` of the rows for `words` words are those of the weights; the others keep their initialization.
    """
    own, grown = own_weights(model), dict[str, Tensor]()
    for name, value in fit_names(weights, own).items():
        mine = own.get(name)
        if mine is not None and value.shape == (known, *mine.shape[1:]) and len(mine) == words > known:
            grown[name] = torch.cat((value.to(mine), mine[known:]))
    return {**weights, **grown}, list(grown)


def set_some_weights(model: nn.Module, weights: Mapping[str, Tensor], where: Path | str) -> Partial:
    """Load the weights that fit into a model by name and shape; refuse where none does."""
    own = own_weights(model)
    given = fit_names(weights, own)
    loaded = [name for name, tensor in own.items() if name in given and given[name].shape == tensor.shape]
    if not loaded:
        raise UserError(
            f"none of the {len(weights)} tensors fits the model: the first is {next(iter(weights), 'missing')}",
            where=str(where),
            todo="start from a run of the same model and size",
        )
    with torch.no_grad():
        for name in loaded:
            own[name].copy_(given[name])
    fits = set(loaded)
    return Partial(loaded, [name for name in own if name not in fits], [name for name in given if name not in fits])


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
