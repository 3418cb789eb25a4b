"""A hashed bag of n-grams: one weight per bucket and class, to be added to the logits of a network.

    n-grams of a text → buckets, each once → sum of their rows / √(number of buckets)

Wide & Deep Learning for Recommender Systems. Cheng et al. 2016, arXiv:1606.07792. For texts it is the default text
classifier of spaCy: a small network plus a linear model over hashed n-grams. The linear part memorizes n-grams that
decide a label, which a network learns slowly from few texts; the network generalizes. Dividing by the root gives every
text a feature vector of length 1, as in a linear classifier with normalized binary features.

    joint      one loss for the sum of both logits: the bag learns fast, and leaves the network little to learn
    separate   a loss for each: both learn as they would alone, and the mean of their logits predicts, as in an ensemble
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int, Int32
from torch import Tensor, nn

from mallang.kernels.ngram_rows import NgramIndex, Texts

BagLoss = Literal["joint", "separate"]


class HashedBag(nn.Module):
    """A table with one row per bucket, which starts at zero; row 0 is padding and stays zero."""

    def __init__(self, buckets: int, outputs: int, dropout: float = 0.0, loss: BagLoss = "joint") -> None:
        super().__init__()
        self.loss = loss
        self.table = nn.Embedding(buckets + 1, outputs, padding_idx=0)
        nn.init.zeros_(self.table.weight)
        self.dropout = nn.Dropout(dropout)
        """Drops whole n-grams."""

    def forward(self, ngrams: Int[Tensor, "examples ngrams"]) -> Float[Tensor, "examples outputs"]:
        """The logits of each text; 0 for a text without n-grams."""
        is_there = (ngrams > 0).float()
        lengths = is_there.sum(dim=1, keepdim=True).clamp(min=1.0).sqrt()
        rows: Tensor = self.table(ngrams)
        weights: Tensor = self.dropout(is_there / lengths)
        return (rows * weights[:, :, None]).sum(dim=1)

    def beside(
        self, logits: Float[Tensor, "examples outputs"], ngrams: Int[Tensor, "examples ngrams"] | None
    ) -> list[Float[Tensor, "examples outputs"]]:
        """The logits of a network and of the bag: their sum, or each, where each has a loss of its own."""
        assert ngrams is not None
        own = self(ngrams)
        return [logits + own] if self.loss == "joint" else [logits, own]


def hashed_ngrams(symbols: Sequence[Int[np.ndarray, " _symbols"]], index: NgramIndex) -> Int32[Tensor, "texts ngrams"]:
    """The different buckets of the n-grams of each text, counted from 1 and padded with 0."""
    offsets = np.zeros(len(symbols) + 1, np.int64)
    np.cumsum([len(each) for each in symbols], out=offsets[1:])
    ids: Any = np.concatenate([*symbols, np.empty(0, np.int32)])
    found = index.count(Texts(ids.astype(np.int32), offsets))
    counts = np.diff(found.indptr)
    rectangle = np.zeros((len(symbols), counts.max(initial=0)), np.int32)
    rectangle[np.arange(rectangle.shape[1]) < counts[:, None]] = found.indices + 1
    return torch.from_numpy(rectangle)
