"""Cross-entropy with label smoothing, over hidden vectors: the logits of all positions never exist at once.

    nll  = −Σ log p(label)                      even = −Σ mean over words of log p(word)
    loss = (1 − smoothing) · nll + smoothing · even     (Szegedy et al. 2016, arXiv:1512.00567, section 7)

Projecting positions × dim onto the vocabulary takes positions × words numbers, by far the largest tensor of a small
model. Here a chunk of positions is projected, its loss is taken and, while its probabilities are at hand, the
gradient of its logits: softmax − (1 − smoothing) · one-hot − smoothing / words. That is folded into the gradients of
the hidden vectors and of the weight at once, so that nothing is computed twice and the chunk is forgotten. Few passes
over the logits matter more than few products, so masks and the last term are applied to the small sides.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from mallang.layers.head import Projection
from mallang.text.vocabulary import PAD

LOGITS = {"cpu": 2**22, "cuda": 2**28}
"""Logits held at once: a CPU is fastest while they fit its cache, a GPU when it is fed in large pieces."""


def cross_entropy_of(
    model: Any, hidden: Float[Tensor, "positions dim"], labels: Int[Tensor, " positions"], smoothing: float = 0.0
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The loss and the negative log-likelihood of a model's hidden vectors, in chunks if its `head` is a Projection.

    Such a head says that `output` is that projection and nothing else; any other output gives all logits at once. So
    does a compiled model, by a formula that a compiler fuses well.
    """
    if isinstance(head := getattr(model, "head", None), Projection):
        if not torch.compiler.is_compiling():
            return cross_entropy(hidden, head.weight, head.bias, labels, smoothing)
        if torch.is_grad_enabled() and head.bias is None and not smoothing:
            loss: Tensor = AtOnce.apply(*lowered(hidden, head.weight), labels)  # type: ignore[no-untyped-call]
            return loss, loss.detach()
    sums = summed(model.output(hidden).log_softmax(dim=1, dtype=torch.float32), labels, smoothing)
    return sums[0], sums[1].detach()


def cross_entropy(
    hidden: Float[Tensor, "positions dim"],
    weight: Float[Tensor, "words dim"],
    bias: Float[Tensor, " words"] | None,
    labels: Int[Tensor, " positions"],
    smoothing: float = 0.0,
    chunk: int | None = None,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The smoothed loss and the plain negative log-likelihood, each a sum; `<pad>` labels ask for nothing.

    Gradients flow from the loss alone. `chunk` is the number of positions projected at once.
    """
    if chunk is None:
        chunk = max(1, LOGITS.get(hidden.device.type, LOGITS["cuda"]) // len(weight))
    hidden, weight = lowered(hidden, weight)
    bias = None if bias is None else bias.to(weight.dtype)
    if torch.is_grad_enabled() and hidden.requires_grad:
        loss, nll = Chunked.apply(hidden, weight, bias, labels, smoothing, chunk)  # type: ignore[no-untyped-call]
        return loss, nll
    total = torch.zeros(2, device=hidden.device)
    for some, said in zip(torch.split(hidden, chunk), torch.split(labels, chunk), strict=True):
        total = total + summed(log_probs_of(some, weight, bias), said, smoothing)
    return total[0], total[1]


class Chunked(torch.autograd.Function):
    """The loss of all chunks, whose gradients are made on the way forward."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float, chunk: int
    ) -> tuple[Tensor, Tensor]:
        """The two sums."""
        hidden_gradient, total = torch.empty_like(hidden), torch.zeros(2, device=hidden.device)
        weight_gradient = torch.zeros_like(weight, dtype=torch.float32)
        bias_gradient = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
        with torch.autocast(hidden.device.type, enabled=False):
            for begin in range(0, len(labels), chunk):
                some, said = hidden[begin : begin + chunk], labels[begin : begin + chunk]
                log_probs = log_probs_of(some, weight, bias)
                total = total + summed(log_probs, said, smoothing)
                right = total.new_full((len(said), 1), smoothing - 1)
                # Not converted before: p − 1 of a sure word would lose all its digits.
                gradient = log_probs.exp_().scatter_add_(1, said[:, None], right).to(weight.dtype)
                asked = (said != PAD).to(weight.dtype)[:, None]
                seen = some * asked
                hidden_gradient[begin : begin + chunk] = (gradient @ weight) * asked
                weight_gradient = add_product(weight_gradient, gradient.T, seen)
                if bias_gradient is not None:
                    bias_gradient = bias_gradient + gradient.T @ asked[:, 0]
            if smoothing:  # what the even part takes from every word is the same for all: no need to touch the logits
                asked = (labels != PAD).float()
                hidden_gradient -= (smoothing * asked[:, None] * weight.float().mean(dim=0)).to(hidden.dtype)
                weight_gradient -= smoothing / len(weight) * (asked @ hidden.float())
                if bias_gradient is not None:
                    bias_gradient = bias_gradient - smoothing / len(weight) * asked.sum()
        ctx.save_for_backward(hidden_gradient, weight_gradient, bias_gradient)
        ctx.type = weight.dtype
        return total[0], total[1]

    @staticmethod
    def backward(ctx: Any, loss: Tensor, nll: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients that are at hand, times that of the loss."""
        hidden, weight, bias = ctx.saved_tensors
        scaled = None if bias is None else (bias * loss).to(ctx.type)
        return hidden * loss.to(hidden.dtype), (weight * loss).to(ctx.type), scaled, None, None, None


class AtOnce(torch.autograd.Function):
    """The same for a compiler: all positions at once, every step on the logits one that it can fuse with the others.

    Two passes over the logits, then, where the plain formula takes four: the gradient is made while they are at hand.
    One output alone: of two that share their memory, the compiler of torch 2.11 gives back gradients of zero.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        """The loss, without smoothing."""
        with torch.autocast(hidden.device.type, enabled=False):
            log_probs = F.linear(hidden, weight).log_softmax(dim=1, dtype=torch.float32)
            asked = (labels != PAD)[:, None]
            loss = -torch.where(asked, log_probs.gather(1, labels[:, None]), 0.0).sum()
            is_label = torch.arange(len(weight), device=labels.device) == labels[:, None]  # fuses; a scatter does not
            gradient = torch.where(asked, log_probs.exp() - is_label.float(), 0.0).to(weight.dtype)
            ctx.save_for_backward(gradient @ weight, gradient.T @ hidden)
        return loss

    @staticmethod
    def backward(ctx: Any, loss: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients that are at hand, times that of the loss."""
        hidden, weight = ctx.saved_tensors
        return hidden * loss.to(hidden.dtype), (weight * loss).to(weight.dtype), None


def lowered(hidden: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the type that products are computed in: under autocast a lower one."""
    if not torch.is_autocast_enabled(hidden.device.type):
        return hidden, weight
    low = torch.get_autocast_dtype(hidden.device.type)
    return hidden.to(low), weight.to(low)


def summed(
    log_probs: Float[Tensor, "positions words"], labels: Int[Tensor, " positions"], smoothing: float
) -> Float[Tensor, " sums"]:
    """The loss and the negative log-likelihood."""
    asked = (labels != PAD).float()
    nll = -(log_probs.gather(1, labels[:, None])[:, 0] * asked).sum()
    if not smoothing:
        return torch.stack((nll, nll))
    even = -(log_probs.mean(dim=1) * asked).sum()
    return torch.stack(((1 - smoothing) * nll + smoothing * even, nll))


def log_probs_of(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Float[Tensor, "positions words"]:
    """What the model gives every word, in full precision."""
    return F.linear(hidden, weight, bias).log_softmax(dim=1, dtype=torch.float32)


def add_product(total: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """total + left @ right, the total in full precision whatever the others have."""
    if left.dtype == total.dtype:
        return total.addmm_(left, right)
    return total + left @ right
