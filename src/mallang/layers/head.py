"""What sits on top of hidden vectors and turns them into answers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


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
        return F.linear(hidden, self.weight, self.bias)


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
