"""Carried state for truncated BPTT: what each micro-batch stream keeps from one update to the next.

The micro-batches of an update are streams: stream j reads its own rows, whichever process computes it. So carried state
belongs to a stream, two processes do what one with twice the accumulation does, and a checkpoint holds all streams. An
epoch starts without carried state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from mallang.data.batch import Batch
from mallang.decoding.contract import device_of, inference
from mallang.errors import UserError
from mallang.layers.cache import Nest, map_nest
from mallang.text.vocabulary import BOS
from mallang.training.distributed import World


@runtime_checkable
class Carrying(Protocol):
    """A task whose loss carries a state of its own from batch to batch, such as a moving average."""

    def carry_like(self) -> Any:
        """An example of that state, for its structure."""


class Carries:
    """The carried states of the micro-batch streams of this process."""

    def __init__(self, streams: int, world: World) -> None:
        self.streams, self.world = streams, world
        self.kept: dict[int, Nest] = {}

    def begin(self, place: int) -> None:
        """Start an update at this position of its epoch; position 0 drops all carried state."""
        if place == 0:
            self.kept = {}

    def get(self, stream: int) -> Nest:
        """The carried state of a stream; None at the start of an epoch."""
        return self.kept.get(stream)

    def put(self, stream: int, carry: Nest) -> None:
        """Store the carried state of a stream."""
        if carry is not None:
            self.kept[stream] = carry

    def tensors(self) -> dict[str, Tensor]:
        """The states of all streams by name, including other processes'; all processes must call this together."""
        if not self.kept:  # then no process has any
            return {}
        blank = [torch.zeros_like(leaf) for leaf in leaves(next(iter(self.kept.values())))]
        found = {}
        for stream in range(self.streams):
            own = leaves(self.kept[stream]) if stream in self.kept else blank
            for number, leaf in enumerate(own):
                found[f"{stream}.{number}"] = leaf.detach().clone()
        for leaf in found.values():
            self.world.sum_tensor(leaf)
        return found

    def restore(self, saved: Mapping[str, Tensor] | None, task: object, model: Any, place: int) -> None:
        """Restore the states of a checkpoint that was written at this position of an epoch."""
        self.kept = {}
        if place == 0 or not saved:
            return
        streams = 1 + max(int(name.split(".")[0]) for name in saved)
        if streams != self.streams:
            raise UserError(
                f"this run reads its text in the rows of {streams} micro-batches, and would now have {self.streams}",
                todo=f"train.micro_batches={streams} for any number of processes, or as many processes as before",
            )
        like = task.carry_like() if isinstance(task, Carrying) else carry_like(model)
        device = device_of(model)
        for stream in range(self.world.rank, streams, self.world.size):
            mine = [saved[f"{stream}.{number}"].to(device) for number in range(len(leaves(like)))]
            self.kept[stream] = filled(like, mine)


def leaves(nest: Nest) -> list[Tensor]:
    """The tensors of nested containers, always in the same order."""
    found: list[Tensor] = []
    map_nest(nest, found.append)
    return found


def filled(nest: Nest, tensors: list[Tensor]) -> Nest:
    """A nest of this structure with these tensors as its leaves."""
    left = iter(tensors)
    return map_nest(nest, lambda leaf: next(left))


def carry_like(model: Any) -> Nest:
    """An example of a model's carried state, from a forward over a single token, for its structure."""
    one = Batch(tokens=torch.full((1, 1), BOS), lengths=torch.ones(1, dtype=torch.long)).to(device_of(model))
    with inference(model):
        return model.forward_stateful(one, None).carry
