"""Optimizers by name, weight decay, gradient clipping, and the moving average of the weights (EMA)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mallang.renamed import fit_names
from mallang.runs.weights import own_weights, set_weights
from mallang.tasks.contract import Group
from mallang.training import muon
from mallang.training.adagrad import Adagrad

RMSPROP_DECAY, RMSPROP_EPSILON = 0.99, 1e-8
"""torch's defaults."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The optimizer and its peak learning rate."""

    name: Literal["adam", "adamw", "sgd", "asgd", "adagrad", "muon"] = "adam"
    """The optimizer; asgd is averaged SGD, which ends with a mean of its weights."""
    learning_rate: float = 1e-3
    """Peak learning rate; with the noam schedule the factor of dim^-0.5."""
    betas: tuple[float, float] = (0.9, 0.98)
    """adam, adamw, muon: decay rates of the first and second moment."""
    epsilon: float = 1e-9
    """adam, adamw, muon: added to the square root of the second moment."""
    weight_decay: float = 0.0
    """Weight decay of matrices; biases and norms have none. adamw and muon use decoupled weight decay."""
    momentum: float | None = None
    """Momentum of sgd and asgd (default 0) and of muon (default 0.95)."""
    adam_learning_rate: float | None = None
    """muon: peak learning rate of embeddings, output and vectors, which adamw updates; default: learning_rate."""
    trigger: int = 5
    """asgd: averaging starts when a validation is worse than the best of those before the last `trigger` ones."""
    average_from: int | None = None
    """asgd: averaging starts at the latest with the first validation from this update on."""
    max_grad_norm: float = 0.0
    """Gradient clipping: the maximum norm of all gradients together; 0: no clipping."""

    def __post_init__(self) -> None:
        if self.learning_rate <= 0:
            raise ValueError(f"learning_rate must be above 0, but is {self.learning_rate}")
        if self.name in ("adam", "adamw", "adagrad") and self.momentum:  # runs of earlier versions say 0
            raise ValueError(f"momentum belongs to sgd and muon; {self.name} has none")
        if self.name != "muon" and self.adam_learning_rate is not None:
            raise ValueError(f"adam_learning_rate belongs to muon; {self.name} has one rate")
        if self.adam_learning_rate is not None and self.adam_learning_rate <= 0:
            raise ValueError(f"adam_learning_rate must be above 0, but is {self.adam_learning_rate}")
        if not 0 <= (self.momentum or 0.0) < 1:
            raise ValueError(f"momentum must be at least 0 and less than 1, but is {self.momentum}")
        if self.name != "asgd" and (self.trigger, self.average_from) != (5, None):
            raise ValueError(f"trigger and average_from belong to asgd and have no effect on {self.name}")
        if self.trigger < 0 or (self.average_from or 0) < 0:
            raise ValueError("trigger and average_from must not be negative")
        if self.name in ("sgd", "asgd", "adagrad") and (self.betas, self.epsilon) != ((0.9, 0.98), 1e-9):
            raise ValueError(f"betas and epsilon belong to adam and adamw, and have no effect on {self.name}")
        if self.weight_decay < 0 or self.max_grad_norm < 0 or self.epsilon <= 0:
            raise ValueError("weight_decay and max_grad_norm must not be negative, and epsilon must be above 0")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas must lie between 0 and 1, but are {self.betas}")


def copies_of(config: Config) -> int:
    """A lower bound of the values per weight in training: the weight, its gradient, the optimizer state."""
    return 4 if config.name in ("adam", "adamw") else 2


def build(config: Config, groups: Sequence[Group], model: nn.Module | None = None) -> torch.optim.Optimizer:
    """One optimizer over the task's parameter groups; each group's rate is scaled as the task says.

    Muon treats the parts of a model differently, so it must see the model.
    """
    others = [group for group in groups if group.optimizer != "recipe"]
    if others:
        own = build(config, [group for group in groups if group.optimizer == "recipe"], model)
        return Joint([own, rmsprop(config, others)])
    if config.name == "muon":
        if model is None:
            raise ValueError("muon needs the model")
        return muon.build(config, groups, model)
    parts: list[dict[str, Any]] = []
    for group in groups:
        for decayed in (True, False):
            chosen = [p for _, p in group.parameters if muon.is_matrix(p) == decayed]
            if chosen:
                decay = config.weight_decay if decayed else 0.0
                parts.append(
                    {"params": chosen, "scale": group.scale, "weight_decay": decay, "lr": config.learning_rate}
                )
    if config.name in ("sgd", "asgd"):
        return torch.optim.SGD(parts, lr=config.learning_rate, momentum=config.momentum or 0.0, fused=True)
    if config.name == "adagrad":
        return Adagrad(parts, rate=config.learning_rate)
    kind = torch.optim.AdamW if config.name == "adamw" else torch.optim.Adam
    return kind(parts, lr=config.learning_rate, betas=config.betas, eps=config.epsilon, fused=True)


def rmsprop(config: Config, groups: Sequence[Group]) -> torch.optim.Optimizer:
    """RMSProp, for groups with an optimizer of their own; it has no momentum."""
    parts = [{"params": [p for _, p in group.parameters], "scale": group.scale} for group in groups]
    # Without its first moment AdamW is RMSProp with bias correction; it is fused, and skips updates on the device.
    return torch.optim.AdamW(
        parts, lr=config.learning_rate, betas=(0.0, RMSPROP_DECAY), eps=RMSPROP_EPSILON, weight_decay=0.0, fused=True
    )


class Joint(torch.optim.Optimizer):
    """Several optimizers as one: one list of parameter groups, one state, one step."""

    def __init__(self, parts: Sequence[torch.optim.Optimizer]) -> None:
        super().__init__([group for part in parts for group in part.param_groups], {})
        self.parts = list(parts)
        self.found_inf: Tensor | None = None
        """1 to skip an update, 0 to make it, on the device: the name by which torch's fused optimizers know it."""
        for part in self.parts:
            self.state.update(part.state)
            part.state = self.state  # the saved and restored state is that of all

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update of all parts."""
        for part in self.parts:
            part.found_inf = self.found_inf  # type: ignore[attr-defined]
            part.step()


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of all groups, each scaled by its own factor."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["scale"]


def clip_gradients(parameters: Iterable[nn.Parameter], config: Config) -> Tensor:
    """The norm of all gradients before clipping; above `max_grad_norm` they are scaled down to it."""
    chosen = [parameter for parameter in parameters if parameter.grad is not None]
    norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in chosen if parameter.grad is not None])
    if config.max_grad_norm > 0:
        torch.nn.utils.clip_grads_with_norm_(chosen, config.max_grad_norm, norm)
    return norm


def optimizer_tensors(optimizer: torch.optim.Optimizer, names: dict[Tensor, str]) -> dict[str, Tensor]:
    """The optimizer state as named tensors: `exp_avg/encoder.0.weight`."""
    return {
        f"{key}/{names[parameter]}": torch.as_tensor(value)
        for parameter, memory in optimizer.state.items()
        for key, value in memory.items()
        if value is not None
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, names: dict[Tensor, str], saved: dict[str, Tensor]) -> None:
    """Restore saved optimizer state, so that the next step is the one that would have been made."""
    kinds = {key.partition("/")[0] for key in saved}
    saved = fit_names(saved, [f"{kind}/{name}" for kind in kinds for name in names.values()])
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            ending = f"/{names[parameter]}"
            found = {key.removesuffix(ending): value for key, value in saved.items() if key.endswith(ending)}
            if "momentum" in found and "momentum" not in group:
                continue  # a column of gains, once Muon's and now AdamW's, starts again
            if found:
                optimizer.state[parameter] = {key: value.to(parameter.device) for key, value in found.items()}


class Average:
    """An exponential moving average of the weights, kept in fp32 beside the model."""

    def __init__(self, model: nn.Module, keep: float) -> None:
        self.keep = keep
        self.weights = {name: value.detach().clone() for name, value in own_weights(model).items()}

    @torch.no_grad()
    def update(self, model: nn.Module, skipped: Tensor) -> None:
        """Update the average with the current weights, unless the update of the weights was `skipped` (1, else 0)."""
        for name, value in own_weights(model).items():
            mean = self.weights[name]
            if mean.is_floating_point():
                mean.lerp_(torch.where(skipped.bool(), mean, value), 1 - self.keep)
            else:
                mean.copy_(value)

    def restore(self, saved: Mapping[str, Tensor], updates: int) -> None:
        """Restore a saved average."""
        for name, value in fit_names(saved, self.weights).items():
            self.weights[name].copy_(value)

    @contextmanager
    def in_place_of(self, model: nn.Module) -> Iterator[None]:
        """Run the block with the average as the model's weights."""
        own = {name: value.clone() for name, value in own_weights(model).items()}
        set_weights(model, self.weights, "moving average")
        try:
            yield
        finally:
            set_weights(model, own, "moving average")
