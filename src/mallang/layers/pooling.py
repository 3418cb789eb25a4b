"""Pooling: the vectors of many tokens as one vector, or of its first token for each word. Masks hide positions."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Pooling = Literal["last", "mean", "max", "mean-max"]


def masked_mean(
    vectors: Float[Tensor, "batch time dim"], mask: Bool[Tensor, "batch time"]
) -> Float[Tensor, "batch dim"]:
    """The mean over the positions that may be seen; zero where there are none."""
    seen = mask[:, :, None].to(vectors.dtype)
    return (vectors * seen).sum(dim=1) / seen.sum(dim=1).clamp(min=1.0)


def masked_max(
    vectors: Float[Tensor, "batch time dim"], mask: Bool[Tensor, "batch time"]
) -> Float[Tensor, "batch dim"]:
    """The maximum over the positions that may be seen; zero where there are none."""
    lowest = torch.finfo(vectors.dtype).min
    highest = vectors.masked_fill(~mask[:, :, None], lowest).amax(dim=1)
    return torch.where(mask.any(dim=1, keepdim=True), highest, torch.zeros_like(highest))


def last_seen(vectors: Float[Tensor, "batch time dim"], mask: Bool[Tensor, "batch time"]) -> Float[Tensor, "batch dim"]:
    """The vector of the last position that may be seen."""
    places = (mask.long().sum(dim=1) - 1).clamp(min=0)
    return vectors[torch.arange(len(vectors), device=vectors.device), places]


def pooled(
    vectors: Float[Tensor, "batch time dim"], mask: Bool[Tensor, "batch time"], pooling: Pooling
) -> Float[Tensor, "batch _"]:
    """The vector of each text; `mean-max` joins the mean and the maximum."""
    if pooling == "mean-max":
        return torch.cat((masked_mean(vectors, mask), masked_max(vectors, mask)), dim=1)
    return {"last": last_seen, "mean": masked_mean, "max": masked_max}[pooling](vectors, mask)


def first_of_words(
    vectors: Float[Tensor, "batch time dim"], words: Int[Tensor, "batch words"]
) -> Float[Tensor, "batch words dim"]:
    """The vector of the first token of every word; any vector where there is no word (−1)."""
    places = words.clamp(min=0)[:, :, None].expand(-1, -1, vectors.shape[2])
    return vectors.gather(1, places)
