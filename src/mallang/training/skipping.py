"""Updates whose gradient norm is infinite or NaN are skipped: one such gradient would destroy all weights.

Gradient clipping does not help against them, since an infinite gradient times 0 is NaN. Whether to skip is decided on
the device, so that the host need not wait for the norm of every update.
"""

from __future__ import annotations

import torch
from torch import Tensor

LIMIT = 10
"""Skipped updates in a row after which training is given up; in a run that has just started, half of its updates."""


class Skipping:
    """Makes the updates of an optimizer, and skips and counts those with a gradient norm that is not finite."""

    def __init__(self, count: int = 0) -> None:
        self.count, self.in_a_row = torch.tensor(float(count)), torch.zeros(())

    def update(self, optimizer: torch.optim.Optimizer, norm: Tensor) -> Tensor:
        """One update: 1 where it was skipped and 0 otherwise, as a tensor on the device.

        A skipped update leaves the weights and the optimizer state as they are.
        """
        skipped = (~torch.isfinite(norm)).float()
        start_momentum(optimizer)
        optimizer.found_inf = skipped  # type: ignore[attr-defined]  # fused optimizers read it, and Muon
        optimizer.step()
        self.count = self.count + skipped
        self.in_a_row = (self.in_a_row + 1) * skipped
        return skipped

    def is_hopeless(self, step: int) -> bool:
        """Whether too many updates in a row were skipped; this waits for the device."""
        return int(self.in_a_row) >= min(LIMIT, max(2, step // 2))


def start_momentum(optimizer: torch.optim.Optimizer) -> None:
    """Give SGD a momentum of zeros: the fused kernel of its first update would leave it uninitialized if skipped."""
    if not isinstance(optimizer, torch.optim.SGD):
        return
    for group in optimizer.param_groups:
        for parameter in group["params"] if group["momentum"] else ():
            if parameter.grad is not None and optimizer.state[parameter].get("momentum_buffer") is None:
                optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
