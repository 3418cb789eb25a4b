"""Cross-entropy with label smoothing, over hidden vectors: the logits of all positions never exist at once.

    nll  = −Σ log p(label)                      even = −Σ mean over words of log p(word)
    loss = (1 − smoothing) · nll + smoothing · even     (Szegedy et al. 2016, arXiv:1512.00567, section 7)

Projecting positions × dim onto the vocabulary takes positions × words numbers, by far the largest tensor of a small
model. Here a chunk of positions is projected, its loss is taken and, while its probabilities are at hand, the
gradient of its logits: softmax − (1 − smoothing) · one-hot − smoothing / words. That is folded into the gradients of
the hidden vectors and of the weight at once, so that nothing is computed twice and the chunk is forgotten.
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

    Such a head says that `output` is that projection and nothing else; any other output gives all logits at once.
    """
    if isinstance(head := getattr(model, "head", None), Projection):
        return cross_entropy(hidden, head.weight, head.bias, labels, smoothing)
    log_probs = model.output(hidden).float().log_softmax(dim=-1)
    asked = (labels != PAD).float()
    nll = -(log_probs.gather(1, labels[:, None])[:, 0] * asked).sum()
    even = -(log_probs.mean(dim=1) * asked).sum() if smoothing else nll
    return (1 - smoothing) * nll + smoothing * even, nll.detach()


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
        chunk = max(1, LOGITS.get(hidden.device.type, 2**28) // len(weight))
    if torch.is_autocast_enabled(hidden.device.type):
        hidden, weight = (x.to(torch.get_autocast_dtype(hidden.device.type)) for x in (hidden, weight))
    if torch.is_grad_enabled() and hidden.requires_grad:
        loss, nll = Chunked.apply(hidden, weight, bias, labels, smoothing, chunk)  # type: ignore[no-untyped-call]
        return loss, nll
    parts = [
        losses(F.linear(some.to(weight.dtype), weight, bias).float(), said, smoothing)[:2]
        for some, said in zip(torch.split(hidden, chunk), torch.split(labels, chunk), strict=True)
    ]
    loss, nll = (torch.stack(part).sum() for part in zip(*parts, strict=True))
    return loss, nll


class Chunked(torch.autograd.Function):
    """The loss of all chunks, whose gradients are made on the way forward."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor, smoothing: float, chunk: int
    ) -> tuple[Tensor, Tensor]:
        """The two sums."""
        with torch.autocast(hidden.device.type, enabled=False):
            hidden_gradient = torch.empty_like(hidden)
            weight_gradient = torch.zeros_like(weight, dtype=torch.float32)
            bias_gradient = None if bias is None else torch.zeros_like(bias)
            total = torch.zeros(2, device=hidden.device)
            for begin in range(0, len(labels), chunk):
                some, said = hidden[begin : begin + chunk], labels[begin : begin + chunk]
                logits = F.linear(some, weight, None if bias is None else bias.to(weight.dtype)).float()
                loss, nll, gradient = losses(logits, said, smoothing)
                total = total + torch.stack((loss, nll))
                hidden_gradient[begin : begin + chunk] = gradient.to(weight.dtype) @ weight
                if weight.dtype == torch.float32:
                    weight_gradient.addmm_(gradient.T, some)
                else:
                    weight_gradient += gradient.to(weight.dtype).T @ some
                if bias_gradient is not None:
                    bias_gradient += gradient.sum(dim=0)
        ctx.save_for_backward(hidden_gradient, weight_gradient, bias_gradient)
        ctx.weight_type = weight.dtype
        return total[0], total[1]

    @staticmethod
    def backward(ctx: Any, loss: Tensor, nll: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients that are at hand, times that of the loss."""
        hidden, weight, bias = ctx.saved_tensors
        return (
            hidden * loss.to(hidden.dtype),
            (weight * loss).to(ctx.weight_type),
            None if bias is None else bias * loss,
            None,
            None,
            None,
        )


def losses(
    logits: Float[Tensor, "positions words"], labels: Int[Tensor, " positions"], smoothing: float
) -> tuple[Float[Tensor, ""], Float[Tensor, ""], Float[Tensor, "positions words"]]:
    """The loss and the likelihood of one chunk, and the gradient of its logits, which takes the logits' place."""
    words = logits.shape[1]
    asked = (labels != PAD).float()
    said = logits.gather(1, labels[:, None])[:, 0]
    norm = logits.logsumexp(dim=1)
    nll = ((norm - said) * asked).sum()
    loss = nll
    if smoothing:
        loss = (1 - smoothing) * nll + smoothing * ((norm - logits.mean(dim=1)) * asked).sum()
    gradient = logits.sub_(norm[:, None]).exp_()
    if smoothing:
        gradient.sub_(smoothing / words)
    gradient.scatter_add_(1, labels[:, None], torch.full_like(said, smoothing - 1)[:, None])
    return loss, nll, gradient.mul_(asked[:, None])
