"""The encoder of the Transformer alone, as a classifier: words attend to each other, and the text is pooled.

Attention Is All You Need. Vaswani, Shazeer, Parmar, Uszkoreit, Jones, Gomez, Kaiser, Polosukhin 2017, arXiv:1706.03762;
the class token: BERT, Devlin, Chang, Lee, Toutanova 2019, arXiv:1810.04805.

New against the Transformer: no decoder. New against rnn_classifier: no recurrence, every word attends to every other
one in each layer. Without pretraining it needs more text than recurrent and convolutional networks.

    tokens → embedding + position → encoder blocks → norm → pooling

    mean, max, mean-max   over the vectors of the words
    first                 the vector of a class token, [CLS], that is put before the text

Where this differs from the paper: biases of the projections, `norm = "pre"` and `positions = "none"` as in transformer;
the class token is a learned vector of the model, not a word of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad

from mallang.data.batch import Batch
from mallang.layers.attention import SelfAttention, padding_mask
from mallang.layers.block import Block, Blocks
from mallang.layers.checks import check_sizes
from mallang.layers.dropout import Dropout
from mallang.layers.embedding import Embedding
from mallang.layers.encoded import Encoded, EncoderDims
from mallang.layers.feedforward import FeedForward
from mallang.layers.initialization import xavier
from mallang.layers.pooling import pooled
from mallang.layers.position import LearnedPositions, NoPositions, SinusoidalPositions
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "Config", "Model", "TransformerEncoder"]

TASK = "classification"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of an encoder; the defaults are those of the Transformer's base model."""

    layers: int = 6
    """Blocks."""
    dim: int = 512
    """Size of the hidden vectors (d_model)."""
    heads: int = 8
    """Attention heads of every layer."""
    hidden_dim: int = 2048
    """Hidden size of the feed-forward networks."""
    pooling: Literal["mean", "max", "mean-max", "first"] = "mean"
    """How the vectors of the words become that of the text; first: a class token before them."""
    dropout: float = 0.1
    """Dropout after each sublayer, after the embedding and on the vector of the text."""
    attention_dropout: float = 0.0
    """Dropout on attention weights; the paper drops none."""
    norm: Literal["post", "pre", "none"] = "post"
    """Layer normalization after each sublayer, as in the paper, before it, or nowhere."""
    positions: Literal["sinusoidal", "learned", "none"] = "sinusoidal"
    """Sinusoidal position encodings, for any length; learned ones, up to `max_length`; or none."""
    max_length: int | None = None
    """The maximum number of tokens of a text; learned positions need it, sinusoidal ones have no limit."""
    activation: Literal["relu", "gelu"] = "relu"
    """The non-linearity of the feed-forward networks."""

    def __post_init__(self) -> None:
        sizes = "layers", "dim", "heads", "hidden_dim", "max_length"
        check_sizes(self, *sizes, dropouts=("dropout", "attention_dropout"))
        if self.dim % self.heads:
            raise ValueError(f"dim {self.dim} cannot be divided among {self.heads} heads; change one of them")
        if self.positions == "sinusoidal" and self.dim % 2:
            raise ValueError(f"sinusoidal positions come in pairs of sine and cosine, but dim {self.dim} is odd")
        if self.positions != "learned" and self.max_length is not None:
            raise ValueError(f"max_length {self.max_length} has no effect: {self.positions} positions have no limit")
        if self.positions == "learned" and self.max_length is None:
            raise ValueError("learned positions need max_length, the maximum number of tokens of a text")


class TransformerEncoder(nn.Module):
    """A stack of self-attention blocks and pooling."""

    reads_source = False

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.embedding = Embedding(len(vocabulary), config.dim, make_positions(config), config.dropout)
        self.class_token = nn.Parameter(torch.empty(config.dim)) if config.pooling == "first" else None
        self.encoder = Blocks(make_block(config) for _ in range(config.layers))
        self.encoder_norm = nn.LayerNorm(config.dim) if config.norm == "pre" else nn.Identity()
        self.dropout = Dropout(config.dropout)
        self.init_weights()

    def forward(self, batch: Batch) -> Float[Tensor, "batch pooled"]:
        """The vector of every text."""
        return self.encode(batch).pooled

    def encode(self, batch: Batch) -> Encoded:
        """The vectors of the words after every block, and one vector of the text."""
        x, seen, first = self.embedding(batch.tokens), batch.mask, 0
        if self.class_token is not None:
            x = torch.cat((self.class_token.to(x.dtype).expand(x.shape[0], 1, -1), x), dim=1)
            seen, first = pad(seen, (1, 0), value=True), 1
        mask, layers = padding_mask(seen), []
        for block in self.encoder:
            x = block(x, mask)
            layers.append(x[:, first:])
        x = self.encoder_norm(x)
        layers[-1] = x[:, first:]
        text = x[:, 0] if self.config.pooling == "first" else pooled(x, seen, self.config.pooling)
        return Encoded(layers=layers, mask=batch.mask, pooled=self.dropout(text))

    def encoder_dims(self) -> EncoderDims:
        """The sizes of what `encode` gives."""
        dim = self.config.dim
        text = 2 * dim if self.config.pooling == "mean-max" else dim
        return EncoderDims(pooled=text, token=dim, layers=self.config.layers)

    def layer_groups(self) -> Sequence[Sequence[nn.Module | nn.Parameter]]:
        """The embedding, and the blocks; the norm after them goes with the highest."""
        first: list[nn.Module | nn.Parameter] = [
            self.embedding,
            *([] if self.class_token is None else [self.class_token]),
        ]
        *lower, last = self.encoder
        return [first, *([block] for block in lower), [last, self.encoder_norm]]

    def input_embedding(self) -> nn.Embedding:
        """The word embeddings."""
        return self.embedding.table

    @property
    def longest(self) -> int | None:
        """The maximum number of tokens that it can read; None without a limit."""
        return self.config.max_length

    def init_weights(self) -> None:
        """Xavier for every matrix; N(0, 1/dim) for embeddings, which have variance one after the scaling by √dim."""
        xavier(self)
        for module in self.modules():
            if isinstance(module, SelfAttention):
                for matrix in module.input_weights():  # each by itself, though one matmul computes them all
                    nn.init.xavier_uniform_(matrix)
        if self.class_token is not None:
            nn.init.normal_(self.class_token)


def make_positions(config: Config) -> SinusoidalPositions | LearnedPositions | NoPositions:
    """The position encodings."""
    if config.max_length is not None:
        return LearnedPositions(config.dim, config.max_length)
    return SinusoidalPositions(config.dim) if config.positions == "sinusoidal" else NoPositions(config.dim)


def make_block(config: Config) -> Block:
    """One block: self-attention and the feed-forward network."""
    share = config.dim // config.heads
    return Block(
        SelfAttention(config.dim, config.heads, share, share, config.attention_dropout),
        FeedForward(config.dim, config.hidden_dim, config.activation),
        norm=config.norm,
        dropout=config.dropout,
    )


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 2, "dim": 32, "heads": 4, "hidden_dim": 64},
    "small": {"layers": 2, "dim": 128, "heads": 4, "hidden_dim": 512},
    "base": {},
}
"""Named shapes, as changes to the defaults; base has the sizes of the Transformer's."""

Model = TransformerEncoder
