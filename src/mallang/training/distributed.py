"""Several processes, one training: gradients and counts are summed, nothing else is shared.

The processes of a step do what one process with accumulation would do: micro-batch m goes to process m mod size,
each part of the loss is divided by its count over all of them, and the gradients are added up.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from mallang.errors import UserError

PATIENCE = timedelta(hours=6)
"""How long processes wait for each other: the first one makes the data ready for all."""


@dataclass(frozen=True)
class World:
    """Which process this is, and of how many."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """The first process writes files and talks; the others only compute."""
        return self.rank == 0

    def barrier(self) -> None:
        """Wait for all."""
        if self.size > 1:
            dist.barrier()

    def sum_numbers(self, numbers: list[int], device: torch.device) -> list[int]:
        """Each number summed over all processes."""
        if self.size == 1:
            return numbers
        total = torch.tensor(numbers, dtype=torch.int64, device=device)
        dist.all_reduce(total)
        return [int(number) for number in total.tolist()]

    def sum_tensor(self, tensor: Tensor) -> None:
        """A tensor summed over all processes, in its place."""
        if self.size > 1:
            dist.all_reduce(tensor)

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Every gradient summed over all processes, in one transfer a data type."""
        if self.size == 1:
            return
        chosen = [p for p in parameters if p.requires_grad]
        for p in chosen:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        gradients = [p.grad for p in chosen if p.grad is not None]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        dist.all_reduce(flat)
        for gradient, part in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def share(self, value: Any, device: torch.device) -> Any:
        """The first process's value, in all of them; it travels as JSON."""
        if self.size == 1:
            return value
        content = json.dumps(value).encode() if self.is_first else b""
        length = self.sum_numbers([len(content)], device)[0]
        box = torch.zeros(length, dtype=torch.uint8, device=device)
        if self.is_first:
            box.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
        dist.broadcast(box, src=0)
        return json.loads(bytes(box.cpu().numpy()).decode())


def connect(device: torch.device) -> World:
    """The world that `torchrun` describes, or a world of one."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return World()
    if not dist.is_initialized():
        try:
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
        except (RuntimeError, ValueError) as error:
            raise UserError(
                f"the processes cannot reach each other: {error}", todo="start them with torchrun"
            ) from error
    return World(dist.get_rank(), size)


def local_rank() -> int:
    """Which process of this machine this is, and so which of its GPUs it takes."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def disconnect() -> None:
    """Leave the world, if there is one."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
