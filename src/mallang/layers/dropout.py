"""Dropout (Srivastava et al. 2014): training sets every value to zero with a probability and scales the others up.

torch draws a CPU's random numbers one after the other, 32 bits for every value, which took a tenth of a small
Transformer's training. Here 64 bits decide about four values, each by 16 of them, so that the probability is met to
1/65,536; the scale is that of the probability as it is met.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mallang.layers.kernel import is_off

STEPS = 2**16


class Dropout(nn.Dropout):
    """The same as torch's, faster on a CPU."""

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """The new x."""
        if not self.training or self.p == 0:
            return x
        if is_off("cpu-dropout") or x.is_cuda or torch.compiler.is_compiling():
            return super().forward(x)
        return x * scales(x, self.p)


class LockedDropout(nn.Dropout):
    """The same values of a row dropped at every time (variational dropout: Gal and Ghahramani 2016, arXiv:1512.05287).

    What was dropped once stays dropped to the end of the text, so that the noise a recurrent layer reads is constant.
    """

    def forward(self, x: Float[Tensor, "rows time dim"]) -> Float[Tensor, "rows time dim"]:
        """The new x."""
        if not self.training or self.p == 0:
            return x
        return x * kept(x[:, :1], self.p)


def kept(x: Float[Tensor, "*shape"], probability: float) -> Float[Tensor, "*shape"]:
    """For every value 0 or the scale; only the shape of x matters."""
    if is_off("cpu-dropout") or x.is_cuda or torch.compiler.is_compiling():
        return torch.nn.functional.dropout(torch.ones_like(x), probability)
    return scales(x, probability)


def scales(x: Float[Tensor, "*shape"], probability: float) -> Float[Tensor, "*shape"]:
    """For every value 0 or the scale."""
    dropped = min(round(probability * STEPS), STEPS - 1)
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    kept = bits[: x.numel()].view(x.shape) >= dropped - STEPS // 2
    return kept.to(x.dtype).mul_(STEPS / (STEPS - dropped))


def drops(model: nn.Module) -> bool:
    """Whether anything is dropped while the model trains."""
    return any(isinstance(part, nn.Dropout) and part.p > 0 for part in model.modules())
