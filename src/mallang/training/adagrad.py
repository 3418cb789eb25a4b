"""Adagrad: every weight has a rate of its own, which falls with the squares of its gradients.

Duchi, Hazan, Singer 2011, Adaptive Subgradient Methods for Online Learning and Stochastic Optimization, JMLR 12.

    G ← G + g²                w ← w − rate · g / (√G + ε)

A row of an embedding that is rarely in a batch keeps a high rate. With weight decay λ the gradient is g + λ w. Unlike
torch's Adagrad this one skips an update that `found_inf` says to skip, on any device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

EPSILON = 1e-10


class Adagrad(torch.optim.Optimizer):
    """Adagrad over several groups of parameters."""

    def __init__(self, groups: list[dict[str, Any]], *, rate: float) -> None:
        super().__init__(groups, {"lr": rate, "weight_decay": 0.0})
        self.found_inf: Tensor | None = None
        """1 to skip an update, 0 to make it, on the device: the name by which torch's fused optimizers know it."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update."""
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not parameters:
                continue
            gradients = [parameter.grad for parameter in parameters]
            for parameter in parameters:
                if "sum" not in self.state[parameter]:
                    self.state[parameter]["sum"] = torch.zeros_like(parameter)
            sums = [self.state[parameter]["sum"] for parameter in parameters]
            if group["weight_decay"]:
                gradients = list(torch._foreach_add(gradients, parameters, alpha=group["weight_decay"]))
            if self.found_inf is not None:  # a gradient of 0 changes neither weights nor sums
                gradients = [gradient.masked_fill(self.found_inf.bool(), 0.0) for gradient in gradients]
            torch._foreach_addcmul_(sums, gradients, gradients)
            scales = torch._foreach_sqrt(sums)
            torch._foreach_add_(scales, EPSILON)
            torch._foreach_addcdiv_(parameters, gradients, scales, value=-group["lr"])
