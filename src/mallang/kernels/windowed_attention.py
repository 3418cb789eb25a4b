"""Restricted (sliding-window) self-attention (Vaswani et al. 2017, section 4, table 1), at a cost linear in the text.

A mask could hide the keys outside the window, but the scores of all pairs would be computed first. Here the text is
split into blocks as long as the window. A block of queries then needs only its own keys and those of the block before:

    window 3      keys     a b c | d e f | g h i          2 · time · window scores instead of time²
    queries d e f see      × × ×   × × ×                  and within them the mask: e sees b to e
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

WORTH = 16
"""The minimum block size: for smaller windows, smaller blocks would not be faster."""


class Window(NamedTuple):
    """A causal mask with a window: a position sees itself and `back` positions before it."""

    back: int

    def mask(self, time: int, device: torch.device) -> Bool[Tensor, "1 1 time time"]:
        """The window as a boolean mask over all pairs."""
        places = torch.arange(time, device=device)
        behind = places[:, None] - places[None, :]
        return ((behind >= 0) & (behind <= self.back))[None, None]


def is_worth(time: int, window: int) -> bool:
    """Whether blocks are cheaper than a mask over all pairs."""
    return time > 4 * max(window, WORTH)


def windowed_attention(
    window: Window,
    queries: Float[Tensor, "batch heads time key_dim"],
    keys: Float[Tensor, "batch heads time key_dim"],
    values: Float[Tensor, "batch heads time value_dim"],
    dropout: float = 0.0,
) -> Float[Tensor, "batch heads time value_dim"]:
    """Attention from every position to those in its window, block by block."""
    batch, heads, time, key_dim = queries.shape
    size = max(window.back, WORTH)
    blocks = -(-time // size)
    rest = blocks * size - time

    def before_and_own(x: Float[Tensor, "batch heads time dim"]) -> Float[Tensor, "rows heads keys dim"]:
        """Every block together with the block before it; blocks are rows of a batch."""
        pairs = F.pad(x, (0, 0, size, rest)).unfold(2, 2 * size, size)  # [batch, heads, blocks, dim, 2 · size]
        return pairs.permute(0, 2, 1, 4, 3).flatten(0, 1)

    asked = F.pad(queries, (0, 0, 0, rest)).view(batch, heads, blocks, size, key_dim).transpose(1, 2).flatten(0, 1)
    mask = block_mask(window, blocks, size, queries.device).repeat(batch, 1, 1)[:, None]
    context = F.scaled_dot_product_attention(
        asked, before_and_own(keys), before_and_own(values), attn_mask=mask, dropout_p=dropout
    )
    return context.view(batch, blocks, heads, size, -1).transpose(1, 2).flatten(2, 3)[:, :, :time]


def block_mask(
    window: Window, blocks: int, size: int, device: torch.device
) -> Bool[Tensor, "{blocks} {size} {2*size}"]:
    """The mask of the queries of each block over the block before it and their own; the first has none before it."""
    places = torch.arange(2 * size, device=device)
    behind = size + places[:size, None] - places[None, :]
    near = (behind >= 0) & (behind <= window.back)
    exists = (torch.arange(blocks, device=device)[:, None] > 0) | (places >= size)[None, :]
    return near[None] & exists[:, None, :]
