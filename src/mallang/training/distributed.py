"""Distributed data-parallel training: gradients and counts are all-reduced, nothing else is shared.

The processes of a step do what one process with gradient accumulation would do: process m mod size gets micro-batch m,
each part of the loss is divided by its count over all processes, and the gradients are summed.

`torchrun` starts the processes, on one machine or on several, and restarts them when one is lost; they then resume from
the last checkpoint. Numbers and messages use gloo, gradients on GPUs use NCCL: a number never makes the host wait for a
GPU.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from mallang.errors import UserError
from mallang.runs.device import choose_device

PREPARATION = timedelta(hours=6)
"""Timeout of the processes before training: the first one prepares the data for all."""
PATIENCE = "MALLANG_PATIENCE"
"""The environment variable with the timeout in training, in seconds: a validation must fit into it."""
SETTING = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""Set to 1 in the environment of `torchrun`, it gives every restart of the processes a rendezvous store of its own."""
BUCKET = 1 << 24
"""Gradients per all-reduce: 16 million values, 64 MB."""
GRACE = 60.0
"""Seconds in which a process whose launcher has died must save and exit."""


@dataclass(frozen=True)
class World:
    """The rank of this process and the number of processes."""

    rank: int = 0
    size: int = 1
    group: Any = None
    """The process group; None for a single process."""

    @property
    def is_first(self) -> bool:
        """Whether this is the first process, which writes files and prints; the others only compute."""
        return self.rank == 0

    def barrier(self) -> None:
        """Wait for all processes."""
        self.sum_numbers([0])

    def sum_numbers(self, numbers: list[int]) -> list[int]:
        """Each number summed over all processes."""
        if self.group is None:
            return numbers
        total = torch.tensor(numbers, dtype=torch.int64)
        with naming_lost_process():
            dist.all_reduce(total, group=self.group)
        return [int(number) for number in total.tolist()]

    def sum_tensor(self, tensor: Tensor) -> None:
        """Sum a tensor over all processes, in place."""
        if self.group is not None:
            with naming_lost_process():
                dist.all_reduce(tensor, group=self.group)

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sum every gradient over all processes: a few large asynchronous all-reduces, overlapped with packing."""
        if self.group is None:
            return
        chosen = [p for p in parameters if p.requires_grad]
        for p in chosen:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        under_way = []
        with naming_lost_process():
            for gradients in buckets([p.grad for p in chosen if p.grad is not None]):
                flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
                under_way.append((gradients, flat, dist.all_reduce(flat, group=self.group, async_op=True)))
            for gradients, flat, work in under_way:
                work.wait()
                parts = torch.split(flat, [gradient.numel() for gradient in gradients])
                torch._foreach_copy_(gradients, [part.view_as(g) for part, g in zip(parts, gradients, strict=True)])

    def share(self, value: Any) -> Any:
        """Broadcast the first process's value to all, as JSON."""
        if self.group is None:
            return value
        content = json.dumps(value).encode() if self.is_first else b""
        box = torch.zeros(self.sum_numbers([len(content)])[0], dtype=torch.uint8)
        if self.is_first:
            box.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
        with naming_lost_process():
            dist.broadcast(box, src=0, group=self.group)
        return json.loads(bytes(box.numpy()).decode())

    def hurried(self) -> World:
        """This world with the shorter timeout of training: a process that does not answer is then considered lost."""
        if self.group is None:
            return self
        with naming_lost_process():
            return replace(self, group=dist.new_group(timeout=patience()))


def buckets(gradients: list[Tensor]) -> Iterator[list[Tensor]]:
    """Gradients of one dtype in lists of at most BUCKET values; a larger gradient is alone."""
    bucket: list[Tensor] = []
    filled = 0
    for gradient in gradients:
        if bucket and (filled + gradient.numel() > BUCKET or gradient.dtype != bucket[0].dtype):
            yield bucket
            bucket, filled = [], 0
        bucket.append(gradient)
        filled += gradient.numel()
    if bucket:
        yield bucket


def own_device(name: str) -> torch.device:
    """The device of this process: on a machine with several GPUs each process has its own."""
    local_rank, count = number("LOCAL_RANK", 0), number("LOCAL_WORLD_SIZE", 1)
    gpus = torch.cuda.device_count()
    if count > 1 and name.startswith("cuda:"):
        raise UserError(
            f"--device {name} is one GPU for {count} processes", todo="--device cuda: each process takes its own"
        )
    if name in ("auto", "cuda") and count > gpus > 0:
        raise UserError(
            f"{count} processes were started on a machine with {gpus} GPU{'s' * (gpus > 1)}",
            todo="torchrun with a smaller --nproc-per-node, or --device cpu",
        )
    return choose_device(name, local_rank)


def connect(device: torch.device, *, even_alone: bool = False) -> World:
    """The world that `torchrun` describes, or that of a single process, which needs no process group."""
    size = number("WORLD_SIZE", 1)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        follow_parent()
    if size == 1 and not even_alone:
        return World()
    if may_restart() and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        # The store then outlives a restart, and new processes would use the addresses of dead ones.
        raise UserError(
            f"torchrun --max-restarts cannot restart processes unless {SETTING} is 1",
            todo=f"{SETTING}=1 torchrun …",
        )
    if not dist.is_initialized():
        is_cuda = device.type == "cuda"
        try:
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if is_cuda else "gloo",
                timeout=PREPARATION,
                device_id=device if is_cuda else None,
            )
        except (RuntimeError, ValueError) as error:
            raise UserError(
                f"the processes cannot reach each other: {error}", todo="start them with torchrun"
            ) from error
    return World(dist.get_rank(), size, dist.group.WORLD)


def disconnect() -> None:
    """Destroy the process group, if there is one."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def may_restart() -> bool:
    """Whether the launcher restarts the processes when one is lost."""
    return number("TORCHELASTIC_MAX_RESTARTS", 0) > 0


def patience() -> timedelta:
    """The timeout in training for a process that does not answer."""
    return timedelta(seconds=number(PATIENCE, 1800))


def number(variable: str, default: int) -> int:
    """An integer from the environment."""
    text = os.environ.get(variable, str(default))
    if not text.isdecimal():
        raise UserError(f"the variable {variable} is {text!r}, not a number", todo=f"unset {variable}")
    return int(text)


@contextmanager
def naming_lost_process() -> Iterator[None]:
    """Turn errors of torch.distributed into one that says that another process has died or does not answer."""
    try:
        yield
    except RuntimeError as error:
        # Such as: [/path/of/pair.cc:537] Read error [10.0.0.2]:11455: Connection reset by peer. This is typically …
        reason = re.sub(r"^\[\S+\]\s*|\. This is.*$", "", str(error).strip(), flags=re.DOTALL)
        raise UserError(
            f"another process of this training is lost: {reason.splitlines()[0] if reason else type(error).__name__}",
            todo="the same command resumes from the last checkpoint; torchrun --max-restarts does so by itself",
        ) from error


def follow_parent() -> None:
    """Save and exit when the launcher dies: no one could stop or restart this process any more."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE)
        os._exit(1)

    threading.Thread(target=watch, name="follow-parent", daemon=True).start()
