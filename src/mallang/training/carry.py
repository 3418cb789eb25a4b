"""The state that a model carries from one update to the next, for every row of a stream.

The micro-batches of an update are streams: stream j reads rows of its own, whichever process computes it. So what is
carried belongs to a stream, two processes do what one with twice the accumulation does, and a checkpoint holds all
streams. An epoch begins with nothing carried."""

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
    """The states of the streams that this process computes."""

    def __init__(self, streams: int, world: World) -> None:
        self.streams, self.world = streams, world
        self.kept: dict[int, Nest] = {}

    def begin(self, place: int) -> None:
        """An update begins at this place of its epoch."""
        if place == 0:
            self.kept = {}

    def get(self, stream: int) -> Nest:
        """What a stream continues from; nothing at the beginning of an epoch."""
        return self.kept.get(stream)

    def put(self, stream: int, carry: Nest) -> None:
        """What a stream has come to."""
        if carry is not None:
            self.kept[stream] = carry

    def tensors(self) -> dict[str, Tensor]:
        """The states of all streams by name, those of other processes included; all processes ask for them together."""
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

    def restore(self, saved: Mapping[str, Tensor] | None, model: Any, place: int) -> None:
        """Go on from what a checkpoint holds, which was written at this place of an epoch."""
        self.kept = {}
        if place == 0 or not saved:
            return
        streams = 1 + max(int(name.split(".")[0]) for name in saved)
        if streams != self.streams:
            raise UserError(
                f"this run reads its text in the rows of {streams} micro-batches, and would now have {self.streams}",
                todo=f"train.micro_batches={streams} for any number of processes, or as many processes as before",
            )
        like, device = carry_like(model), device_of(model)
        for stream in range(self.world.rank, streams, self.world.size):
            mine = [saved[f"{stream}.{number}"].to(device) for number in range(len(leaves(like)))]
            self.kept[stream] = filled(like, mine)


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
        return model.forward_stateful(one, None).carry
