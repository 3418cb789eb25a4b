"""Cross-entropy with label smoothing from hidden vectors, in chunks: the logits of all positions never exist at once.

    nll  = −Σ log p(label)                      even = −Σ mean over words of log p(word)
    loss = (1 − smoothing) · nll + smoothing · even     (Szegedy et al. 2016, arXiv:1512.00567, section 7)

The logits of all positions, positions × words, are by far the largest tensor of a small model. Here a chunk of
positions is projected; its loss and the gradient of its logits are computed together from its probabilities:
softmax − (1 − smoothing) · one-hot − smoothing / words. The gradients of the hidden vectors and of the weight are
accumulated at once, so that nothing is computed twice and the chunk can be freed. Passes over the logits cost more than
matmuls, so masks and the last term are applied to the smaller tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from mallang.kernels import c_library, fp8
from mallang.kernels.c_cross_entropy import c_cross_entropy_
from mallang.kernels.dispatch import is_off
from mallang.kernels.fused_cross_entropy import fused_cross_entropy_, is_at_hand, padded_vocabulary
from mallang.kernels.linear import add_matmul_, multiply, multiply_back
from mallang.text.vocabulary import PAD

LOGITS = {"cpu": 2**22, "cuda": 2**28}
"""Logits per chunk: a CPU is fastest while they fit into its cache, a GPU with large chunks."""
FUSED = 2**30
"""Logits per chunk for the kernel of fused_cross_entropy.py, which needs no other memory."""


def is_chunked(device: torch.device) -> bool:
    """Whether `cross_entropy` is fastest here: for a model compiled for a CPU, the plain formula fuses well."""
    return is_at_hand(device) or not torch.compiler.is_compiling()


def cross_entropy(
    hidden: Float[Tensor, "positions dim"],
    weight: Float[Tensor, "words dim"],
    bias: Float[Tensor, " words"] | None,
    labels: Int[Tensor, " positions"],
    smoothing: float = 0.0,
    chunk: int | None = None,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The smoothed loss and the plain negative log-likelihood, each a sum; `<pad>` labels are ignored.

    Gradients flow from the loss alone. `chunk` is the number of positions projected at once; compiled code takes all
    at once, since a loop would be compiled again for every length.
    """
    if chunk is None:
        most = FUSED if is_at_hand(hidden.device) else LOGITS.get(hidden.device.type, LOGITS["cuda"])
        chunk = None if torch.compiler.is_compiling() else max(1, most // len(weight))
    hidden, weight = lowered(hidden, weight)
    bias = None if bias is None else bias.to(weight.dtype)
    if torch.is_grad_enabled() and hidden.requires_grad:
        total = Chunked.apply(hidden, weight, bias, labels, smoothing, chunk)  # type: ignore[no-untyped-call]
        return total[0], total[1].detach()
    total = torch.zeros(2, device=hidden.device)
    for part in parts_of(labels, chunk):
        total = total + summed(log_probs_of(hidden[part], weight, bias), labels[part], smoothing)
    return total[0], total[1]


def parts_of(labels: Int[Tensor, " positions"], chunk: int | None) -> list[slice]:
    """The positions in chunks of `chunk`, or as one chunk."""
    if chunk is None:
        return [slice(None)]
    return [slice(begin, begin + chunk) for begin in range(0, len(labels), chunk)]


class Chunked(torch.autograd.Function):
    """The loss of all chunks; their gradients are computed in forward."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        smoothing: float,
        chunk: int | None,
    ) -> Tensor:
        """The two sums, as one tensor: for two that share memory, torch 2.11 gives zero gradients in compiled code."""
        hidden_gradient, total = torch.empty_like(hidden), torch.zeros(2, device=hidden.device)
        weight_gradient = torch.zeros_like(weight, dtype=torch.float32)
        bias_gradient = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        measure = measure_for(hidden, weight)
        with torch.autocast(hidden.device.type, enabled=False):
            for part in parts_of(labels, chunk):
                some, said = hidden[part], labels[part]
                sums, gradient = measure(some, weight, bias, said, smoothing)
                total = total + sums
                asked = (said != PAD).to(weight.dtype)[:, None]
                hidden_gradient[part] = multiply_back(gradient, weight) * asked
                weight_gradient = add_matmul_(weight_gradient, gradient, some * asked)
                if bias_gradient is not None:
                    bias_gradient = bias_gradient + gradient.T @ asked[:, 0]
            if smoothing:  # the smoothing term is the same for all words: no pass over the logits is needed
                asked = (labels != PAD).float()
                hidden_gradient -= (smoothing * asked[:, None] * weight.float().mean(dim=0)).to(hidden.dtype)
                weight_gradient -= smoothing / len(weight) * (asked @ hidden.float())
                if bias_gradient is not None:
                    bias_gradient = bias_gradient - smoothing / len(weight) * asked.sum()
        ctx.save_for_backward(hidden_gradient, weight_gradient, bias_gradient)
        ctx.type = weight.dtype
        return total

    @staticmethod
    def backward(ctx: Any, total: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients that forward computed, times that of the loss."""
        hidden, weight, bias = ctx.saved_tensors
        loss = total[0]
        scaled = None if bias is None else (bias * loss).to(ctx.type)
        return hidden * loss.to(hidden.dtype), (weight * loss).to(ctx.type), scaled, None, None, None


def measure_for(hidden: Tensor, weight: Tensor) -> Callable[..., tuple[Tensor, Tensor]]:
    """The fastest of the three functions below that supports these."""
    if is_at_hand(hidden.device):
        return measure_fused
    in_c = not is_off("c-cross-entropy") and c_library.may_take(hidden, weight.detach())
    return measure_in_c if in_c else measure_plainly


def measure_plainly(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float
) -> tuple[Float[Tensor, " sums"], Float[Tensor, "positions words"]]:
    """The two sums of a chunk, and the gradient of its logits without the smoothing term and the mask."""
    log_probs = log_probs_of(hidden, weight, bias)
    sums = summed(log_probs, labels, smoothing)
    right = sums.new_full((len(labels), 1), smoothing - 1)
    # Converted last: p − 1 of a confident prediction would lose all precision.
    return sums, log_probs.exp_().scatter_add_(1, labels[:, None], right).to(weight.dtype)


def measure_fused(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float
) -> tuple[Float[Tensor, " sums"], Float[Tensor, "positions words"]]:
    """`measure_plainly` by one Triton kernel, with the vocabulary padded to a size that it reads fast."""
    matmul = fp8.multiply if fp8.is_wanted_forward(hidden, wide := padded_vocabulary(weight)) else F.linear
    logits = matmul(hidden, wide, None if bias is None else padded_vocabulary(bias))
    sums = fused_cross_entropy_(logits, labels, len(weight), smoothing)
    return sums.sum(dim=1), logits[:, : len(weight)]


def measure_in_c(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float
) -> tuple[Float[Tensor, " sums"], Float[Tensor, "positions words"]]:
    """`measure_plainly` by the C kernel."""
    logits = multiply(hidden, weight, bias)
    return c_cross_entropy_(logits, labels, smoothing).sum(dim=1), logits


def lowered(hidden: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Hidden vectors and weight in the dtype of matmuls: under autocast a lower precision."""
    if not torch.is_autocast_enabled(hidden.device.type):
        return hidden, weight
    low = torch.get_autocast_dtype(hidden.device.type)
    return hidden.to(low), weight.to(low)


def summed(
    log_probs: Float[Tensor, "positions words"], labels: Int[Tensor, " positions"], smoothing: float
) -> Float[Tensor, " sums"]:
    """The sums of the loss and of the negative log-likelihood, from log-probabilities."""
    asked = (labels != PAD).float()
    nll = -(log_probs.gather(1, labels[:, None])[:, 0] * asked).sum()
    if not smoothing:
        return torch.stack((nll, nll))
    even = -(log_probs.mean(dim=1) * asked).sum()
    return torch.stack(((1 - smoothing) * nll + smoothing * even, nll))


def log_probs_of(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Float[Tensor, "positions words"]:
    """The log-probability of every word, in float32."""
    return F.linear(hidden, weight, bias).log_softmax(dim=1, dtype=torch.float32)
