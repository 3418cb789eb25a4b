"""The gradients of one micro-batch: computed eagerly, by a replayed CUDA graph, or compiled.

    eager        Python launches every operation, one after the other
    cuda-graphs  the operations of a micro-batch are captured once per shape and replayed by the GPU: the step of a
                 small model is then no longer bound by how fast Python launches kernels
    compile      torch.compile fuses the operations first; on a GPU the fused ones are captured and replayed as well

The results agree up to rounding. A shape is captured the second time it occurs, so a rare shape costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch
import torch.fx.experimental._config
from torch import Tensor, nn

from mallang.data.batch import Batch, rectangles
from mallang.decoding.capture import without_garbage_collection
from mallang.errors import UserError
from mallang.kernels.allocator import keep_pages
from mallang.kernels.attention import sdpa_backend
from mallang.layers.cache import map_nest
from mallang.layers.frozen import running_modules
from mallang.layers.recurrent import Recurrent
from mallang.tasks.contract import Loss, Task
from mallang.training.carry import leaves
from mallang.training.precision import COPIED, Precision, Rounded, autocast, check

Engine = Literal["auto", "eager", "cuda-graphs", "compile"]
SHAPES = 128
"""The maximum number of captured shapes; batches of other shapes run eagerly."""


def choose_engine(engine: Engine, device: torch.device) -> Engine:
    """The engine for a device; `auto` is cuda-graphs on a GPU, and eager on a CPU, where launches are cheap."""
    if engine == "auto":
        return "cuda-graphs" if device.type == "cuda" else "eager"
    if engine == "cuda-graphs" and device.type != "cuda":
        raise UserError('train.engine = "cuda-graphs" needs a GPU', todo="train.engine=eager or train.engine=compile")
    return engine


class Step:
    """Adds the gradients of micro-batches to the parameters' `grad`."""

    def __init__(
        self,
        task: Task,
        model: nn.Module,
        device: torch.device,
        precision: Precision,
        engine: Engine,
        one_shape: bool = False,
    ) -> None:
        self.task, self.model, self.device, self.precision = task, model, device, precision
        self.engine = choose_engine(engine, device)
        keep_pages()
        check(precision, device, model)
        if self.engine == "compile" and not task.can_compile:
            raise UserError(
                "a loss that is computed token by token, as in scheduled sampling, cannot be compiled",
                todo="train.engine=eager, or on a GPU train.engine=cuda-graphs",
            )
        if (
            self.engine == "compile"
            and not one_shape
            and any(isinstance(part, Recurrent) for part in running_modules(model))
        ):
            raise UserError(
                "a recurrent model would be compiled again for every length of text",
                todo="train.engine=eager, or on a GPU train.engine=cuda-graphs",
            )
        # Compiled with dynamic shapes where batches have many: one compilation per shape would take longer than most
        # training runs.
        loss = Rounded(task.loss, model, precision).rounded if precision in COPIED else task.loss
        self.loss = torch.compile(loss, dynamic=not one_shape) if self.engine == "compile" else loss
        self.keeps_gradients = self.engine != "eager" and device.type == "cuda"
        """Whether gradients must keep their memory, for CUDA graphs: set them to zero, not to None."""
        self.recorded: dict[tuple[Any, ...], Recorded | None] = {}
        self.stream = torch.cuda.Stream(device) if self.keeps_gradients else None  # type: ignore[no-untyped-call]
        self.pool = torch.cuda.graph_pool_handle() if self.keeps_gradients else None

    def run(self, batch: Batch, totals: Sequence[int], carry: Any = None) -> Loss:
        """The loss of a micro-batch; each part is divided by its total before the backward pass.

        The next micro-batch may overwrite the tensors of the loss: accumulate or copy them before.
        """
        if self.stream is None:
            return self.compute(batch.to(self.device), self.on_device(totals), carry)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            loss = self.replay(batch, self.on_device(totals), carry)
        torch.cuda.current_stream().wait_stream(self.stream)
        return loss

    def compute(self, batch: Batch, totals: Tensor, carry: Any) -> Loss:
        """Forward and backward."""
        longest = max(value.shape[1] for _, value in rectangles(batch))
        with autocast(self.precision, self.device), sdpa_backend(self.device, longest), sizes_apart():
            loss = self.loss(self.model, batch, carry)
        parts = torch.stack([loss.sums[name] for name in self.task.parts])
        self.add_gradients((parts / totals).sum())
        return replace(loss, sums={name: value.detach() for name, value in loss.sums.items()})

    def add_gradients(self, loss: Tensor) -> None:
        """Run the backward pass. Where gradients must keep their memory, a few large kernels add the new ones.

        All new gradients exist at once, which takes as much memory again. They get the strides of their parameters, as
        fused optimizers require and `backward` would ensure.
        """
        if not self.keeps_gradients:
            loss.backward()  # type: ignore[no-untyped-call]
            return
        asking = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        found = torch.autograd.grad(loss, asking, allow_unused=True)
        kept, added = [], []
        for parameter, gradient in zip(asking, found, strict=True):
            if gradient is not None and parameter.grad is not None:
                kept.append(parameter.grad)
                added.append(gradient)
            elif gradient is not None:
                # A copy, since autograd may return the same tensor for two parameters.
                parameter.grad = torch.empty_like(parameter).copy_(gradient)
        if kept:
            torch._foreach_add_(kept, added)

    def forget(self) -> None:
        """Drop the captured graphs: they compute the gradients of what was trained until now."""
        self.recorded.clear()

    def replay(self, batch: Batch, totals: Tensor, carry: Any = None) -> Loss:
        """Run the first batch of a shape eagerly, capture the second, and replay the graph from then on."""
        key = tuple(tuple(value.shape) for value in (*tensors(batch), *leaves(carry)))
        if key not in self.recorded:
            loss = self.compute(batch.to(self.device), totals, carry)
            if len(self.recorded) < SHAPES:
                self.recorded[key] = None
            return loss
        recorded = self.recorded[key]
        if recorded is None:
            recorded = self.recorded[key] = self.record(batch.to(self.device), totals, map_nest(carry, torch.clone))
        return recorded.replay(batch, totals, carry)

    def record(self, batch: Batch, totals: Tensor, carry: Any = None) -> Recorded:
        """Capture forward and backward of this shape as a CUDA graph; nothing is computed yet."""
        graph = torch.cuda.CUDAGraph()
        # Other threads, such as the loader's thread that pins memory, may use the GPU meanwhile.
        captured = torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local")
        with without_garbage_collection(), captured:
            loss = self.compute(batch, totals, carry)
        # Buffers that a module replaces later, such as a growing position table, must outlive the graph.
        buffers = [buffer for part in running_modules(self.model) for buffer in part.buffers(recurse=False)]
        return Recorded(graph, batch, totals, loss, buffers, carry)

    def on_device(self, totals: Sequence[int]) -> Tensor:
        """The counts as a tensor."""
        numbers = torch.tensor(totals, dtype=torch.float32).clamp(min=1.0)  # an empty part of the loss costs nothing
        if self.device.type == "cuda":
            return numbers.pin_memory().to(self.device, non_blocking=True)
        return numbers


def sizes_apart() -> AbstractContextManager[object]:
    """Let torch.compile treat sizes that are equal by chance as independent; it would otherwise compile again."""
    return torch.fx.experimental._config.patch(use_duck_shape=False)  # type: ignore[no-any-return, attr-defined, unused-ignore]


@dataclass(frozen=True)
class Recorded:
    """The CUDA graph of a micro-batch of one shape, and the tensors it reads and writes."""

    graph: torch.cuda.CUDAGraph
    batch: Batch
    totals: Tensor
    loss: Loss
    buffers: list[Tensor]
    carry: Any = None

    def replay(self, batch: Batch, totals: Tensor, carry: Any = None) -> Loss:
        """Replay the graph with this batch and this carried state."""
        given = zip((*tensors(batch), *leaves(carry)), (*tensors(self.batch), *leaves(self.carry)), strict=True)
        for value, place in given:
            place.copy_(value, non_blocking=True)
        self.totals.copy_(totals)
        self.graph.replay()
        if self.loss.carry is None:
            return self.loss
        # The carried state must outlive the graphs of other shapes, which use the same memory pool.
        return replace(self.loss, carry=map_nest(self.loss.carry, torch.clone))


def tensors(batch: Batch) -> list[Tensor]:
    """The tensors of a batch, always in the same order."""
    values = (getattr(batch, field.name) for field in fields(batch))
    return [value for value in values if isinstance(value, Tensor)]
