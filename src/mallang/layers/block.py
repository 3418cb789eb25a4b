"""The residual block of the Transformer and the models derived from it (Vaswani et al. 2017, section 3.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, TypeAlias

from jaxtyping import Float
from torch import Tensor, nn

from mallang.layers.attention import CrossAttention, KeyValue, LayerCache, Mask, SelfAttention
from mallang.layers.dropout import Dropout
from mallang.layers.feedforward import FeedForward

Norm: TypeAlias = Literal["post", "pre", "none"]


class Block(nn.Module):
    """Self-attention, then cross-attention where there is a memory, then the feed-forward network.

    Around each: LayerNorm(x + dropout(sublayer(x))) when the norm comes after ("post", as in the paper), or
    x + dropout(sublayer(LayerNorm(x))) when it comes before ("pre"; the stack then ends with a norm of its own), or
    x + dropout(sublayer(x)) without any normalization ("none", as an ablation).
    """

    is_recomputable = True

    def __init__(
        self,
        self_attention: SelfAttention,
        feedforward: FeedForward,
        cross_attention: CrossAttention | None = None,
        norm: Norm = "post",
        dropout: float = 0.0,
        epsilon: float = 1e-5,
        bias: bool = True,
    ) -> None:
        super().__init__()
        dim = self_attention.output.out_features
        self.norm_first = norm == "pre"
        self.self_attention = self_attention
        self.self_norm = make_norm(norm, dim, epsilon, bias)
        if cross_attention is not None:
            self.cross_attention = cross_attention
            self.cross_norm = make_norm(norm, dim, epsilon, bias)
        self.feedforward = feedforward
        self.feedforward_norm = make_norm(norm, dim, epsilon, bias)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "rows time dim"],
        mask: Mask = None,
        memory: KeyValue | None = None,
        memory_mask: Mask = None,
    ) -> Float[Tensor, "rows time dim"]:
        """The new x; `memory` holds the keys and values that `remember` returned."""
        return self.step(x, None, mask, memory, memory_mask)[0]

    def step(
        self,
        x: Float[Tensor, "rows time dim"],
        past: LayerCache | None,
        mask: Mask = None,
        memory: KeyValue | None = None,
        memory_mask: Mask = None,
    ) -> tuple[Float[Tensor, "rows time dim"], KeyValue]:
        """The new x of positions that follow the cached ones, and the cache with these positions added."""
        attended, seen = self.self_attention(self.enter(x, self.self_norm), mask, past)
        x = self.leave(x, attended, self.self_norm)
        if memory is not None:
            attended = self.cross_attention(self.enter(x, self.cross_norm), memory, memory_mask)
            x = self.leave(x, attended, self.cross_norm)
        fed = self.feedforward(self.enter(x, self.feedforward_norm))
        return self.leave(x, fed, self.feedforward_norm), seen

    def remember(self, memory: Float[Tensor, "sentences source dim"]) -> KeyValue:
        """The keys and values of a memory for this block's cross-attention."""
        return self.cross_attention.remember(memory)

    def enter(self, x: Tensor, norm: nn.Module) -> Tensor:
        """The input of a sublayer: x, normalized if the norm comes first."""
        if self.norm_first:
            x = norm(x)
        return x

    def leave(self, x: Tensor, sublayer: Tensor, norm: nn.Module) -> Tensor:
        """The residual sum of x and the sublayer's output, normalized if the norm comes after."""
        x = x + self.dropout(sublayer)
        if not self.norm_first:
            x = norm(x)
        return x


def make_norm(norm: Norm, dim: int, epsilon: float, bias: bool) -> nn.Module:
    """Layer normalization, or the identity for "none"."""
    return nn.Identity() if norm == "none" else nn.LayerNorm(dim, epsilon, bias=bias)


class Blocks(nn.ModuleList):
    """A stack of blocks."""

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[Block]: ...
