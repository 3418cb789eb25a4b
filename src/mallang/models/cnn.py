"""CNN for sentences: filters over windows of three to five words, and max pooling over time.

Convolutional Neural Networks for Sentence Classification. Kim 2014, arXiv:1408.5882.

New against bag_of_means: a filter responds to a phrase, not to a single word, wherever in the text the phrase is. New
against rnn_classifier: nothing is recurrent, so that all windows of a text are computed in parallel.

    tokens → embedding → filters of each width, ReLU → max over time, concatenated → dropout

The channels are the paper's variants, of use with pretrained vectors (CNN-rand is `trained` without any):

    static         the word vectors are not trained
    trained        they are (the paper's non-static)
    multichannel   two sets of the same vectors, one static and one trained; a filter adds its responses to both

Where this differs from the paper: a token may have a second vector, from its characters; the mean over time may be read
too; the trained channel of `multichannel` is stored as its difference to the static one, which starts at zero; windows
are centered on the words of the text, with zeros around it, where the paper's code also had windows that hold only its
first or last word; the norms of the output weights are not limited to 3, which hardly matters (Zhang and Wallace 2015,
arXiv:1510.03820).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.characters import character_features, check_characters, with_features
from mallang.layers.checks import check_sizes
from mallang.layers.convolution import Convolution
from mallang.layers.dropout import Dropout
from mallang.layers.encoded import Encoded, EncoderDims
from mallang.layers.initialization import xavier
from mallang.layers.pooling import pooled
from mallang.text.vocabulary import Vocabulary

__all__ = ["CNN", "SIZES", "Config", "Model"]

TASK = "classification"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of a CNN for sentences; the defaults are the paper's."""

    embedding_dim: int = 300
    """Size of word embeddings."""
    characters: int = 0
    """Size of a second vector of every token, from its characters; 0: none."""
    jamo: bool = False
    """Those characters are jamo, not syllables."""
    widths: list[int] = field(default_factory=lambda: [3, 4, 5])
    """Widths of the filters in words."""
    filters: int = 100
    """Filters (feature maps) of each width."""
    channels: Literal["static", "trained", "multichannel"] = "trained"
    """Word vectors that are not trained, that are, or one set of each."""
    pooling: Literal["max", "mean-max"] = "max"
    """How the feature maps become the vector of the text: their maximum over time, as in the paper, or the mean too."""
    embedding_dropout: float = 0.0
    """Dropout on word embeddings; the paper drops none."""
    dropout: float = 0.5
    """Dropout on the vector of the text."""

    def __post_init__(self) -> None:
        check_sizes(self, "embedding_dim", "filters", dropouts=("embedding_dropout", "dropout"))
        check_characters(self.characters, self.jamo)
        if not self.widths or min(self.widths) < 1:
            raise ValueError(f"widths must be one or more numbers of at least 1, but are {self.widths}")


class CNN(nn.Module):
    """Convolutions of several widths and max pooling over time."""

    reads_source = False

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        dim = config.embedding_dim
        self.embedding = nn.Embedding(len(vocabulary), dim)
        self.trained_change = nn.Embedding(len(vocabulary), dim) if config.channels == "multichannel" else None
        self.spelling = character_features(vocabulary, config.characters, config.jamo)
        dim += config.characters
        self.embedding_dropout = Dropout(config.embedding_dropout)
        self.convolutions = nn.ModuleList(Convolution(dim, width, output_dim=config.filters) for width in config.widths)
        self.dropout = Dropout(config.dropout)
        self.init_weights()
        self.embedding.weight.requires_grad_(config.channels == "trained")

    def forward(self, batch: Batch) -> Float[Tensor, "batch pooled"]:
        """The vector of every text."""
        return self.encode(batch).pooled

    def encode(self, batch: Batch) -> Encoded:
        """The feature maps at every word, and the maximum of each over time, or also the mean."""
        words = self.embedding_dropout(self.embed(batch.tokens)) * batch.mask[:, :, None]  # padding is zeros
        features = torch.cat([convolution(words) for convolution in self.convolutions], dim=-1).relu()
        text = self.dropout(pooled(features, batch.mask, self.config.pooling))
        return Encoded(layers=[features], mask=batch.mask, pooled=text)

    def embed(self, tokens: Int[Tensor, "batch time"]) -> Float[Tensor, "batch time dim"]:
        """The word vectors; with two channels a and b their sum, since a filter W gives W a + W b = W (a + b)."""
        words: Tensor = self.embedding(tokens)
        if self.trained_change is not None:
            words = 2 * words + self.trained_change(tokens)
        return with_features(words, self.spelling, tokens)

    def encoder_dims(self) -> EncoderDims:
        """The sizes of what `encode` gives."""
        dim = self.config.filters * len(self.config.widths)
        return EncoderDims(pooled=2 * dim if self.config.pooling == "mean-max" else dim, token=dim)

    def input_embedding(self) -> nn.Embedding:
        """The word embeddings; of two channels the static ones, which the trained ones start from."""
        return self.embedding

    def token_lookups(self) -> list[nn.Module]:
        """The word embeddings of all channels, and the characters."""
        return [part for part in (self.embedding, self.trained_change, self.spelling) if part is not None]

    def init_weights(self) -> None:
        """Xavier for the filters, the paper's U(−0.25, 0.25) for embeddings, zero for the change of a channel."""
        xavier(self)
        nn.init.uniform_(self.embedding.weight, -0.25, 0.25)
        if self.spelling is not None:
            self.spelling.init_weights(0.1)
        if self.trained_change is not None:
            nn.init.zeros_(self.trained_change.weight)


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"embedding_dim": 24, "filters": 8},
    "small": {"embedding_dim": 100, "filters": 64},
    "base": {},
}
"""Named shapes, as changes to the defaults; base is the paper's."""

Model = CNN
