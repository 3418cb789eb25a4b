"""The state that a model carries from one update to the next, for every row of a stream.

The micro-batches of an update are lanes: lane j reads rows of its own, whichever process computes it. So what is
carried belongs to a lane, two processes do what one with twice the accumulation does, and a checkpoint holds all lanes.
An epoch begins with nothing carried.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mallang.data.batch import Batch
from mallang.decoding.contract import device_of, inference
from mallang.errors import UserError
from mallang.layers.cache import Nest, map_nest
from mallang.text.vocabulary import BOS
from mallang.training.distributed import World


class Carries:
    """The states of the lanes that this process computes."""

    def __init__(self, lanes: int, world: World) -> None:
        self.lanes, self.world = lanes, world
        self.kept: dict[int, Nest] = {}

    def begin(self, place: int) -> None:
        """An update begins at this place of its epoch."""
        if place == 0:
            self.kept = {}

    def get(self, lane: int) -> Nest:
        """What a lane goes on from; nothing at the beginning of an epoch."""
        return self.kept.get(lane)

    def put(self, lane: int, carry: Nest) -> None:
        """What a lane has come to."""
        if carry is not None:
            self.kept[lane] = carry

    def tensors(self) -> dict[str, Tensor]:
        """The states of all lanes by name, those of other processes included; all processes ask for them together."""
        if not self.kept:  # then no process has any
            return {}
        blank = [torch.zeros_like(leaf) for leaf in leaves(next(iter(self.kept.values())))]
        found = {}
        for lane in range(self.lanes):
            own = leaves(self.kept[lane]) if lane in self.kept else blank
            for number, leaf in enumerate(own):
                found[f"{lane}.{number}"] = leaf.detach().clone()
        for leaf in found.values():
            self.world.sum_tensor(leaf)
        return found

    def restore(self, saved: Mapping[str, Tensor] | None, model: Any, place: int) -> None:
        """Go on from what a checkpoint holds, which was written at this place of an epoch."""
        self.kept = {}
        if place == 0 or not saved:
            return
        lanes = 1 + max(int(name.split(".")[0]) for name in saved)
        if lanes != self.lanes:
            raise UserError(
                f"this run reads its text in the rows of {lanes} micro-batches, and would now have {self.lanes}",
                todo=f"train.micro_batches={lanes} for any number of processes, or as many processes as before",
            )
        like, device = carry_like(model), device_of(model)
        for lane in range(self.world.rank, lanes, self.world.size):
            mine = [saved[f"{lane}.{number}"].to(device) for number in range(len(leaves(like)))]
            self.kept[lane] = filled(like, mine)


def leaves(nest: Nest) -> list[Tensor]:
    """The tensors of a nest, always in the same order."""
    found: list[Tensor] = []
    map_nest(nest, found.append)
    return found


def filled(nest: Nest, tensors: list[Tensor]) -> Nest:
    """The same nest with these tensors in it."""
    left = iter(tensors)
    return map_nest(nest, lambda leaf: next(left))


def carry_like(model: Any) -> Nest:
    """What a model carries, in its shape: it reads a single token for that."""
    one = Batch(tokens=torch.full((1, 1), BOS), lengths=torch.ones(1, dtype=torch.long)).to(device_of(model))
    with inference(model):
        return model.read_on(one, None).carry
