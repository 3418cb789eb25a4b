"""Character CNN: a deep stack of convolutions over the characters of a text, without any notion of a word.

Character-level Convolutional Networks for Text Classification. Zhang, Zhao, LeCun 2015, arXiv:1509.01626.

New against cnn: it reads characters (`text.unit = "char"`, or jamo for Korean), so that no word is unknown, and a
misspelled word resembles the right one; six layers with pooling between them, so that the first filters respond to
pieces of words and the last to phrases. It needs more text than cnn: the paper's corpora begin at 120,000 texts.

    characters → embedding → [convolution, ReLU, max pooling] × 6 → max over time → hidden layer, ReLU → dropout

Where this differs from the paper: texts have any length, where the paper cuts and pads all to 1,014 characters, so
that the maximum over time takes the place of its 34 frames, and one hidden layer that of two. Characters have learned
vectors in place of one-hot ones. Windows are centered on the characters, with zeros around the text. He initialization
is the paper's N(0, 0.05) in its small model, and suits other sizes as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch, lengths_to_mask
from mallang.layers.checks import check_sizes
from mallang.layers.convolution import Convolution
from mallang.layers.dropout import Dropout
from mallang.layers.encoded import Encoded, EncoderDims
from mallang.layers.pooling import masked_max
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "CharCNN", "Config", "Model"]

TASK = "classification"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of a character CNN; the defaults are the paper's small model."""

    embedding_dim: int = 64
    """Size of the vectors of characters; the paper's are one-hot, of 70."""
    dim: int = 256
    """Filters (feature maps) of each layer."""
    widths: list[int] = field(default_factory=lambda: [7, 7, 3, 3, 3, 3])
    """Width of the filters of each layer, in characters and then in pooled ones."""
    pools: list[int] = field(default_factory=lambda: [3, 3, 1, 1, 1, 3])
    """Positions that max pooling joins after each layer; 1: no pooling."""
    hidden_dim: int = 1024
    """Size of the hidden layer above the convolutions."""
    embedding_dropout: float = 0.0
    """Dropout on the vectors of characters; the paper drops none."""
    dropout: float = 0.5
    """Dropout before and after the hidden layer."""

    def __post_init__(self) -> None:
        check_sizes(self, "embedding_dim", "dim", "hidden_dim", dropouts=("embedding_dropout", "dropout"))
        for name in ("widths", "pools"):
            if not getattr(self, name) or min(getattr(self, name)) < 1:
                raise ValueError(f"{name} must be one or more numbers of at least 1, but are {getattr(self, name)}")
        if len(self.widths) != len(self.pools):
            raise ValueError(f"{len(self.widths)} widths and {len(self.pools)} pools: every layer has one of each")


class CharCNN(nn.Module):
    """Convolutions and max pooling over characters."""

    reads_source = False

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.embedding = nn.Embedding(len(vocabulary), config.embedding_dim)
        self.embedding_dropout = Dropout(config.embedding_dropout)
        inputs = [config.embedding_dim] + [config.dim] * (len(config.widths) - 1)
        self.convolutions = nn.ModuleList(
            Convolution(size, width, output_dim=config.dim) for size, width in zip(inputs, config.widths, strict=True)
        )
        self.hidden = nn.Linear(config.dim, config.hidden_dim)
        self.dropout = Dropout(config.dropout)
        self.init_weights()

    def forward(self, batch: Batch) -> Float[Tensor, "batch pooled"]:
        """The vector of every text."""
        return self.encode(batch).pooled

    def encode(self, batch: Batch) -> Encoded:
        """One vector of every text; pooled positions are no tokens, so that there are no vectors of tokens."""
        x, lengths = self.embedding_dropout(self.embedding(batch.tokens)), batch.lengths
        for convolution, pool in zip(self.convolutions, self.config.pools, strict=True):
            x = without_padding(x, lengths)
            x = without_padding(convolution(x).relu(), lengths)
            x, lengths = max_pool(x, lengths, pool)
        maxima = self.dropout(masked_max(x, lengths_to_mask(lengths, x.shape[1])))
        text: Tensor = self.dropout(self.hidden(maxima).relu())
        return Encoded(layers=[], mask=batch.mask, pooled=text)

    def encoder_dims(self) -> EncoderDims:
        """The sizes of what `encode` gives."""
        return EncoderDims(pooled=self.config.hidden_dim, token=None)

    def input_embedding(self) -> nn.Embedding:
        """The vectors of characters."""
        return self.embedding

    def init_weights(self) -> None:
        """He for every matrix, which keeps the variance through layers of ReLU; N(0, 1) for characters."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                nn.init.zeros_(module.bias)
        nn.init.normal_(self.embedding.weight)


def without_padding(x: Float[Tensor, "batch time dim"], lengths: Int[Tensor, " batch"]) -> Tensor:
    """The vectors, with zeros in place of padding."""
    return x * lengths_to_mask(lengths, x.shape[1])[:, :, None]


def max_pool(
    x: Float[Tensor, "batch time dim"], lengths: Int[Tensor, " batch"], size: int
) -> tuple[Float[Tensor, "batch pooled dim"], Int[Tensor, " batch"]]:
    """The maximum of each `size` positions in a row, and the new lengths.

    The last positions of a text may be fewer: padding is zero there, and no value is below zero.
    """
    if size == 1:
        return x, lengths
    filled = F.pad(x, (0, 0, 0, -x.shape[1] % size))
    groups = filled.reshape(len(x), -1, size, x.shape[2])
    return groups.amax(dim=2), (lengths + size - 1) // size


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"embedding_dim": 16, "dim": 24, "widths": [3, 3], "pools": [2, 1], "hidden_dim": 24},
    "small": {"dim": 128, "widths": [5, 3, 3], "pools": [2, 2, 1], "hidden_dim": 256},
    "base": {},
    "large": {"dim": 1024, "hidden_dim": 2048},
}
"""Named shapes, as changes to the defaults; base is the paper's small model, large its large one."""

Model = CharCNN
