"""R-Drop: the loss of two forward passes with different dropout, and the KL divergence between their predictions.

R-Drop: Regularized Dropout for Neural Networks. Liang et al. 2021, arXiv:2106.14448.

    loss = (CE(p) + CE(q)) / 2  +  strength / 4 · Σ (p − q) · (log p − log q)        the sum is KL(p‖q) + KL(q‖p)

p and q are the predictions of one model at one position with two dropout masks. As in `cross_entropy`, the gradients of
the logits are computed from the probabilities in the forward pass, chunk by chunk:

    ∂/∂logits of p = (p − target) / 2  +  strength / 4 · (p · (log p − log q − KL(p‖q)) + p − q)

Op by op this takes a dozen passes over positions × words values; a GPU spends more time on them than on a small model,
so there it is compiled into a few passes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from mallang.kernels.cross_entropy import LOGITS
from mallang.kernels.linear import add_matmul_
from mallang.text.vocabulary import PAD


class Sums(NamedTuple):
    """The sums over a batch; gradients flow from the loss alone."""

    loss: Float[Tensor, ""]
    nll: Float[Tensor, ""]
    """The mean negative log-likelihood of the two passes."""
    divergence: Float[Tensor, ""]
    """KL(p‖q) + KL(q‖p)."""


def agreement(
    hidden: Float[Tensor, "twice dim"],
    weight: Float[Tensor, "words dim"],
    bias: Float[Tensor, " words"] | None,
    labels: Int[Tensor, " positions"],
    smoothing: float,
    strength: float,
) -> Sums:
    """The sums over all positions; `hidden` holds the vectors of the first pass, then those of the second."""
    if torch.is_autocast_enabled(hidden.device.type):
        low = torch.get_autocast_dtype(hidden.device.type)
        hidden, weight, bias = hidden.to(low), weight.to(low), None if bias is None else bias.to(low)
    return Sums(*TwoReadings.apply(hidden, weight, bias, labels, smoothing, strength))  # type: ignore[no-untyped-call]


class TwoReadings(torch.autograd.Function):
    """The sums over all chunks; their gradients are computed in forward."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float, strength: float
    ) -> tuple[Tensor, ...]:
        """The three sums."""
        device = hidden.device.type
        chunk = max(1, LOGITS.get(device, LOGITS["cuda"]) // (2 * len(weight)))
        hidden_gradient, total = torch.empty_like(hidden), torch.zeros(3, device=hidden.device)
        weight_gradient = torch.zeros_like(weight, dtype=torch.float32)
        bias_gradient = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        readings, gradients = hidden.view(2, len(labels), -1), hidden_gradient.view(2, len(labels), -1)
        with torch.autocast(device, enabled=False):
            for begin in range(0, len(labels), chunk):
                some = slice(begin, begin + chunk)
                logits = [F.linear(reading[some], weight, bias) for reading in readings]
                sums, *both = made_for(device)(*logits, labels[some], smoothing, strength)
                total = total + sums
                for reading, gradient, into in zip(readings, both, gradients, strict=True):
                    into[some] = gradient @ weight
                    weight_gradient = add_matmul_(weight_gradient, gradient, reading[some])
                    if bias_gradient is not None:
                        bias_gradient = bias_gradient + gradient.sum(dim=0, dtype=torch.float32)
        ctx.save_for_backward(hidden_gradient, weight_gradient, bias_gradient)
        ctx.type = weight.dtype
        return total[0], total[1], total[2]

    @staticmethod
    def backward(ctx: Any, loss: Tensor, nll: Tensor, divergence: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients that forward computed, times that of the loss."""
        hidden, weight, bias = ctx.saved_tensors
        scaled = None if bias is None else (bias * loss).to(ctx.type)
        return hidden * loss.to(hidden.dtype), (weight * loss).to(ctx.type), scaled, None, None, None


@cache
def made_for(device: str) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """`sums_and_gradients`, compiled for a GPU, plain for a CPU."""
    if device != "cuda":
        return sums_and_gradients
    warnings.filterwarnings("ignore", r"\s*Online softmax is disabled")  # a note for the developers of the compiler
    return torch.compile(sums_and_gradients, dynamic=True)


def sums_and_gradients(
    first: Tensor, second: Tensor, labels: Tensor, smoothing: float, strength: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss, negative log-likelihood and divergence of a chunk, and the gradients of the logits of both passes."""
    asked = (labels != PAD).float()
    log_p, log_q = first.log_softmax(dim=1, dtype=torch.float32), second.log_softmax(dim=1, dtype=torch.float32)
    p, q, apart = log_p.exp(), log_q.exp(), log_p - log_q
    onward, back = (p * apart).sum(dim=1, keepdim=True), -(q * apart).sum(dim=1, keepdim=True)
    right = labels[:, None] == torch.arange(first.shape[1], device=labels.device)
    nll = -torch.where(right, log_p + log_q, 0.0).sum(dim=1) / 2
    even = -(log_p + log_q).mean(dim=1) / 2
    divergence = ((onward + back)[:, 0] * asked).sum()
    loss = (((1 - smoothing) * nll + smoothing * even) * asked).sum() + strength / 4 * divergence
    target = torch.where(right, 1 - smoothing, 0.0) + smoothing / first.shape[1]
    of_first = (p - target) / 2 + strength / 4 * (p * (apart - onward) + p - q)
    of_second = (q - target) / 2 + strength / 4 * (q * (-apart - back) + q - p)
    mask = asked[:, None]
    return (
        torch.stack((loss, (nll * asked).sum(), divergence)),
        (of_first * mask).to(first.dtype),
        (of_second * mask).to(second.dtype),
    )
