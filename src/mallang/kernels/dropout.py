"""Dropout masks: torch's own, and faster ones on a CPU.

On a CPU torch draws one 32-bit random number per value, one after the other, which took a tenth of the training time of
a small Transformer. Here one 64-bit number decides about four values, 16 bits each, so the probability is rounded to
1/65,536; the scale is that of the rounded probability.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mallang.kernels.dispatch import is_left_out

STEPS = 2**16


def dropout(x: Float[Tensor, "*shape"], probability: float) -> Float[Tensor, "*shape"]:
    """Set every value to zero with this probability, and scale the others up."""
    return F.dropout(x, probability) if draws_by_torch(x) else x * draw_mask(x, probability)


def dropout_mask(x: Float[Tensor, "*shape"], probability: float) -> Float[Tensor, "*shape"]:
    """A dropout mask of the shape of x: 0 or the scale for every value."""
    return F.dropout(torch.ones_like(x), probability) if draws_by_torch(x) else draw_mask(x, probability)


def draws_by_torch(x: Tensor) -> bool:
    """Whether torch draws the mask: on a GPU, and where a compiler fuses it with other operations."""
    return x.is_cuda or torch.compiler.is_compiling() or is_left_out("cpu-dropout")


def draw_mask(x: Float[Tensor, "*shape"], probability: float) -> Float[Tensor, "*shape"]:
    """A dropout mask drawn on a CPU: 0 or the scale for every value."""
    dropped = min(round(probability * STEPS), STEPS - 1)
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    kept = bits[: x.numel()].view(x.shape) >= dropped - STEPS // 2
    return kept.to(x.dtype).mul_(STEPS / (STEPS - dropped))
