"""Precision: fp32 on a CPU, bf16 autocast on a GPU.

    bf16           autocast: matmuls in bf16; norms, sums and the residual stream in fp32
    bf16-weights   everything in bf16, with bf16 copies of the weights: less memory traffic, so faster, and less precise
    fp8            bf16-weights with FP8 matmuls where a GPU supports them (kernels/fp8.py): faster, less precise still

The weights that are trained and saved (master weights) are always fp32.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import nn
from torch.func import functional_call

from mallang.data.batch import Batch
from mallang.errors import UserError
from mallang.kernels import fp8
from mallang.layers.linear import Linear
from mallang.layers.lora import adapters
from mallang.tasks.contract import Loss

Precision = Literal["auto", "fp32", "bf16", "bf16-weights", "fp8"]


COPIED: tuple[Precision, ...] = ("bf16-weights", "fp8")
"""The precisions that compute with bf16 copies of the weights."""


def check_device(precision: Precision, device: torch.device) -> None:
    """Refuse FP8 on a device that does not support it."""
    if precision == "fp8" and not fp8.is_supported(device):
        raise UserError(
            'train.precision = "fp8" needs a GPU with FP8 matmuls (Ada, Hopper or later)',
            todo="train.precision=auto",
        )


def check(precision: Precision, device: torch.device, model: nn.Module) -> None:
    """Refuse FP8 on a device that does not support it, and for a model on which it has no effect."""
    check_device(precision, device)
    if precision != "fp8":
        return
    if adapters(model):
        raise UserError(
            'train.precision = "fp8" computes feed-forward networks in one pass, which knows no updates of LoRA',
            todo="train.precision=auto",
        )
    weights = [part.weight for part in model.modules() if isinstance(part, Linear)]
    if not any(fp8.fits(weight) and len(weight) <= fp8.WIDEST for weight in weights):
        raise UserError(
            f'train.precision = "fp8" has no effect on this model: it has no linear layer whose sizes are '
            f"multiples of {fp8.ALIGN} and at most {fp8.WIDEST}",
            todo="train.precision=auto",
        )


def autocast(precision: Precision, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """The context manager that the model runs in; the weights stay fp32."""
    wanted = ("bf16" if device.type == "cuda" else "fp32") if precision == "auto" else precision
    if wanted == "fp8":
        return fp8.fp8_matmuls()
    if wanted != "bf16":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


class Rounded(nn.Module):
    """A loss computed with bfloat16 copies of a model's weights; its gradients reach the fp32 weights.

    The copies are made for each micro-batch, within the graph, which takes a hundredth of its time. Buffers that are
    not saved, such as a table of sines, are not copied: they may grow in forward, and a grown copy would be lost.
    """

    def __init__(self, loss: Callable[[Any, Batch, Any], Loss], model: nn.Module, precision: Precision) -> None:
        super().__init__()
        if any(isinstance(part, nn.RNNBase) for part in model.modules()):
            raise UserError(
                f'train.precision = "{precision}" is not for recurrent layers, which accumulate over a whole text',
                todo="train.precision=bf16",
            )
        self.loss, self.model = loss, model
        self.saved = frozenset(model.state_dict())

    def forward(self, batch: Batch, carry: Any) -> Loss:
        """The loss with the weights that the model has at the moment."""
        return self.loss(self.model, batch, carry)

    def rounded(self, model: nn.Module, batch: Batch, carry: Any) -> Loss:
        """The loss with bfloat16 copies of the weights; it has the signature of a task's loss."""
        tensors = dict((*model.named_parameters(), *model.named_buffers()))
        chosen = {name: value for name, value in tensors.items() if name in self.saved and value.is_floating_point()}
        copies = {f"model.{name}": value.bfloat16() for name, value in chosen.items()}
        loss: Loss = functional_call(self, copies, (batch, carry))
        return loss
