"""Random masks of dropout: torch's own, and faster ones on a CPU.

torch draws a CPU's random numbers one after the other, 32 bits for every value, which took a tenth of a small
Transformer's training. Here 64 bits decide about four values, each by 16 of them, so that the probability is met to
1/65,536; the scale is that of the probability as it is met.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mallang.kernels.dispatch import is_left_out

STEPS = 2**16


def dropout(x: Float[Tensor, "*shape"], probability: float) -> Float[Tensor, "*shape"]:
    """Every value is set to zero with this probability, and the others are scaled up."""
    return F.dropout(x, probability) if draws_by_torch(x) else x * draw_mask(x, probability)


def dropout_mask(x: Float[Tensor, "*shape"], probability: float) -> Float[Tensor, "*shape"]:
    """For every value 0 or the scale; only the shape of x matters."""
    return F.dropout(torch.ones_like(x), probability) if draws_by_torch(x) else draw_mask(x, probability)


def draws_by_torch(x: Tensor) -> bool:
    """Whether torch draws the numbers: on a GPU, and where a compiler fuses them with what comes next."""
    return x.is_cuda or torch.compiler.is_compiling() or is_left_out("cpu-dropout")


def draw_mask(x: Float[Tensor, "*shape"], probability: float) -> Float[Tensor, "*shape"]:
    """For every value 0 or the scale, drawn on a CPU."""
    dropped = min(round(probability * STEPS), STEPS - 1)
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    kept = bits[: x.numel()].view(x.shape) >= dropped - STEPS // 2
    return kept.to(x.dtype).mul_(STEPS / (STEPS - dropped))
