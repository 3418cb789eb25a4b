"""What sits on top of hidden vectors and turns them into answers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

ALIGN = 64
"""Logits that a row has a multiple of."""


class Projection(nn.Module):
    """Hidden vectors to one score (logit) per word, with a weight of its own or that of an embedding table.

    It takes any shape of hidden vectors, so a loss projects only the positions it needs, or in chunks; `weight` and
    `bias` are there for losses that fuse the projection.
    """

    def __init__(self, dim: int, words: int, tied: nn.Embedding | None = None, bias: bool = False) -> None:
        super().__init__()
        if tied is not None and tied.weight.shape != (words, dim):
            raise ValueError(f"{words} words of {dim} cannot share a table of {tuple(tied.weight.shape)}")
        self.own = nn.Linear(dim, words, bias=False) if tied is None else None
        # In a tuple, where torch does not look: the weight is saved and counted once, by its owner.
        self.tied: tuple[nn.Embedding, ...] = () if tied is None else (tied,)
        self.bias = nn.Parameter(torch.zeros(words)) if bias else None

    @property
    def weight(self) -> Float[Tensor, "words dim"]:
        """The vector of every word, whoever owns it."""
        return self.tied[0].weight if self.own is None else self.own.weight

    def forward(self, hidden: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch words"]:
        """One logit per word."""
        if is_worth_aligning(hidden, self.weight):
            logits: Tensor = project_aligned(hidden.flatten(0, -2), self.weight)[:, : len(self.weight)]
            logits = logits.view(*hidden.shape[:-1], len(self.weight))
            return logits if self.bias is None else logits + self.bias
        return F.linear(hidden, self.weight, self.bias)


def is_worth_aligning(hidden: Tensor, weight: Tensor) -> bool:
    """Whether rows of logits lie askew: for an odd number of words a GPU has only slow products.

    A single row has nothing after it; and gradients, or a change of precision on the way, need the product itself.
    """
    return (
        hidden.is_cuda
        and len(weight) % ALIGN != 0
        and hidden.numel() > hidden.shape[-1]
        and hidden.dtype == weight.dtype
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cuda")
    )


@torch.library.custom_op("mallang::project_aligned", mutates_args=(), schema="(Tensor hidden, Tensor weight) -> Tensor")
def project_aligned(
    hidden: Float[Tensor, "rows dim"], weight: Float[Tensor, "words dim"]
) -> Float[Tensor, "rows width"]:
    """hidden · weightᵀ in rows a little wider than the words, so that each begins at a round address."""
    logits: Tensor = allocate_aligned(hidden, weight)
    torch.mm(hidden, weight.T, out=logits[:, : len(weight)])
    return logits


@project_aligned.register_fake
def allocate_aligned(hidden: Tensor, weight: Tensor) -> Tensor:
    """Memory for it."""
    return hidden.new_empty(len(hidden), -(-len(weight) // ALIGN) * ALIGN)


class Capped(nn.Module):
    """A projection whose logits bend: cap · tanh(logit / cap) (Gemma 2, arXiv:2408.00118, section 2).

    It is no Projection itself: a loss that fuses the projection would forget the cap.
    """

    def __init__(self, projection: Projection, cap: float) -> None:
        super().__init__()
        self.projection, self.cap = projection, cap

    @property
    def weight(self) -> Float[Tensor, "words dim"]:
        """The vector of every word."""
        return self.projection.weight

    def forward(self, hidden: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch words"]:
        """One logit per word, none beyond the cap."""
        logits: Tensor = self.projection(hidden)
        return self.cap * torch.tanh(logits / self.cap)
