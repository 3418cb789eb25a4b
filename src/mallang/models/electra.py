"""ELECTRA: an encoder that learns to tell which tokens of a text were replaced by a small generator.

ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators. Clark, Luong, Le, Manning 2020,
arXiv:2003.10555.

New against BERT: the loss. A small masked language model, the generator, fills masked tokens with samples; the encoder
that is kept, the discriminator, says of every token whether it is the original. So every token gives it something to
learn, and it never reads [MASK]. It is not adversarial: the generator learns by maximum likelihood.

    the [MASK] sat   → embedding → generator (narrow)  → linear → GELU → norm → embeddingᵀ  = what was masked
                                        ↓ sampled
    the dog sat      → embedding → discriminator       → linear → GELU → linear             = replaced?
         (cat)

Both share the embeddings of tokens, positions and token types and their norm. These have a size of their own; a linear
layer leads to the size of each network where that is another. The generator is narrower by `generator_width`, with as
many layers.

Where this differs from the paper: weights start from N(0, 0.02) that is not truncated. `pooling = "pooler"` is that of
its classifiers in transformers, gelu of a linear layer over [CLS]; the paper's own read [CLS] itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.attention import Mask
from mallang.layers.bidirectional import Embeddings, MaskedLMHead, make_block, missing, normal_weights, own_text
from mallang.layers.block import Blocks
from mallang.layers.checks import check_sizes
from mallang.layers.encoded import Encoded, EncoderDims
from mallang.layers.feedforward import ACTIVATIONS
from mallang.layers.linear import Linear
from mallang.layers.pooling import masked_mean
from mallang.text.vocabulary import Vocabulary

__all__ = ["ELECTRA", "SIZES", "Config", "Model"]

TASK = "classification"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of an ELECTRA; the defaults are ELECTRA-base."""

    layers: int = 12
    """Blocks, of the discriminator and of the generator."""
    dim: int = 768
    """Size of the hidden vectors of the discriminator."""
    heads: int = 12
    """Attention heads of every layer of the discriminator."""
    hidden_dim: int | None = None
    """Hidden size of the feed-forward networks of the discriminator; default: 4 · dim."""
    embedding_dim: int | None = None
    """Size of the embedding vectors, which both networks share; default: dim."""
    generator_width: float = 1 / 3
    """The size of the generator's hidden vectors as a share of dim; its heads and hidden_dim shrink alike."""
    max_length: int = 512
    """The maximum number of tokens of a text, with [CLS] and [SEP]."""
    token_types: int = 2
    """The number of segments that have a vector."""
    dropout: float = 0.1
    """Dropout after each sublayer and after the embedding."""
    attention_dropout: float = 0.1
    """Dropout on attention weights."""
    norm_epsilon: float = 1e-12
    """What is added to the variance in a layer normalization."""
    activation: Literal["gelu", "gelu-tanh", "relu"] = "gelu"
    """The non-linearity of the feed-forward networks and of the discriminator's head."""
    pooling: Literal["first", "mean", "pooler"] = "first"
    """The vector of a text: [CLS]; the mean of all tokens; or gelu of a linear layer over [CLS]."""
    pretraining_heads: Literal["none", "discriminator", "both"] = "none"
    """The head that finds replaced tokens; both: also the generator."""

    def __post_init__(self) -> None:
        sizes = "layers", "dim", "heads", "hidden_dim", "embedding_dim", "max_length", "token_types"
        check_sizes(self, *sizes, dropouts=("dropout", "attention_dropout"))
        if self.dim % self.heads:
            raise ValueError(f"dim {self.dim} cannot be divided among {self.heads} heads; change one of them")
        if self.norm_epsilon <= 0 or not 0 < self.generator_width <= 1:
            raise ValueError("norm_epsilon must be above 0, and generator_width above 0 and at most 1")
        dim, heads, _ = self.generator_shape
        if dim % heads:
            raise ValueError(
                f"generator_width = {self.generator_width} makes a generator of dim {dim} with {heads} heads, which "
                "cannot be divided among them; choose another share"
            )

    @property
    def generator_shape(self) -> tuple[int, int, int]:
        """The generator's dim, heads and hidden_dim."""
        whole = self.dim, self.heads, self.hidden_dim or 4 * self.dim
        dim, heads, hidden_dim = (max(1, round(size * self.generator_width)) for size in whole)
        return dim, heads, hidden_dim


class ELECTRA(nn.Module):
    """The embedding, the discriminator with its head, and the generator."""

    reads_source = False
    reads_segments = True
    marks = ("cls", "sep", "mask")

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary, heads = config, vocabulary, config.pretraining_heads
        size = config.embedding_dim or config.dim
        self.embedding = Embeddings(
            len(vocabulary), size, config.max_length, token_types=config.token_types, epsilon=config.norm_epsilon,
            dropout=config.dropout,
        )  # fmt: skip
        hidden_dim = config.hidden_dim or 4 * config.dim
        self.discriminator = Network(config, size, config.dim, config.heads, hidden_dim)
        self.pooler = Linear(config.dim, config.dim) if config.pooling == "pooler" else None
        self.replaced_head = None if heads == "none" else ReplacedHead(config)
        self.generator = self.masked_lm = None
        if heads == "both":
            self.generator = Network(config, size, *config.generator_shape)
            narrow = config.generator_shape[0]
            self.masked_lm = MaskedLMHead(narrow, self.embedding.words, "gelu", config.norm_epsilon)
        self.init_weights()

    def forward(self, batch: Batch) -> Float[Tensor, "batch time dim"]:
        """The vector of every token after the last block of the discriminator."""
        return self.layers_of(batch)[-1]

    def layers_of(self, batch: Batch) -> list[Float[Tensor, "batch time dim"]]:
        """The vectors of the discriminator before its first block and after every block."""
        layers: list[Tensor] = self.discriminator(self.embed(batch), own_text(batch))
        return layers

    def embed(self, batch: Batch) -> Float[Tensor, "batch time embedding_dim"]:
        """The embeddings that both networks read."""
        vectors: Tensor = self.embedding(batch.tokens, batch.token_types, batch.segments)
        return vectors

    def encode(self, batch: Batch) -> Encoded:
        """The vectors of the tokens after every block of the discriminator, and one vector of the text."""
        layers = self.layers_of(batch)[1:]
        return Encoded(layers, batch.mask, self.text_vector(layers[-1], batch.mask))

    def text_vector(
        self, hidden: Float[Tensor, "batch time dim"], mask: Bool[Tensor, "batch time"]
    ) -> Float[Tensor, "batch dim"]:
        """One vector of each text, from those of its tokens after the last layer."""
        text = masked_mean(hidden, mask) if self.config.pooling == "mean" else hidden[:, 0]
        return text if self.pooler is None else F.gelu(self.pooler(text))

    def replaced_logits(self, hidden: Float[Tensor, "batch time dim"]) -> Float[Tensor, "batch time"]:
        """One logit per token: that it was replaced."""
        if self.replaced_head is None:
            missing(self, "head for replaced tokens", "pretraining_heads=discriminator")
        logits: Tensor = self.replaced_head(hidden)
        return logits

    def generator_hidden(self, batch: Batch) -> Float[Tensor, "batch time generator_dim"]:
        """The vector of every token after the last block of the generator."""
        if self.generator is None:
            missing(self, "generator", "pretraining_heads=both")
        layers: list[Tensor] = self.generator(self.embed(batch), own_text(batch))
        return layers[-1]

    def generator_logits(self, hidden: Float[Tensor, "*batch generator_dim"]) -> Float[Tensor, "*batch words"]:
        """One logit per word, for what a masked token was."""
        if self.masked_lm is None:
            missing(self, "generator", "pretraining_heads=both")
        logits: Tensor = self.masked_lm(hidden)
        return logits

    def encoder_dims(self) -> EncoderDims:
        """The sizes of what `encode` gives."""
        return EncoderDims(pooled=self.config.dim, token=self.config.dim, layers=self.config.layers)

    def layer_groups(self) -> Sequence[Sequence[nn.Module]]:
        """The embedding, and the blocks of the discriminator; the heads and the generator go with the highest."""
        above = [part for part in (self.pooler, self.replaced_head, self.generator, self.masked_lm) if part is not None]
        projection, (*lower, last) = self.discriminator.projection, self.discriminator.encoder
        below = [self.embedding, *([] if projection is None else [projection])]
        return [below, *([block] for block in lower), [last, *above]]

    def input_embedding(self) -> nn.Embedding:
        """The word embeddings."""
        return self.embedding.words

    @property
    def longest(self) -> int | None:
        """The maximum number of tokens of a text."""
        return self.config.max_length

    def init_weights(self) -> None:
        """N(0, 0.02) for every matrix, zero for every bias."""
        normal_weights(self)


class Network(nn.Module):
    """A stack of blocks over embeddings of another size: the discriminator, or the generator."""

    def __init__(self, config: Config, embedding_dim: int, dim: int, heads: int, hidden_dim: int) -> None:
        super().__init__()
        self.projection = Linear(embedding_dim, dim) if embedding_dim != dim else None
        self.encoder = Blocks(
            make_block(
                dim, heads, hidden_dim, activation=config.activation, dropout=config.dropout,
                attention_dropout=config.attention_dropout, epsilon=config.norm_epsilon,
            ) for _ in range(config.layers)
        )  # fmt: skip

    def forward(
        self, embedded: Float[Tensor, "batch time embedding_dim"], mask: Mask
    ) -> list[Float[Tensor, "batch time dim"]]:
        """The vectors before the first block and after every block."""
        layers = [embedded if self.projection is None else self.projection(embedded)]
        for block in self.encoder:
            layers.append(block(layers[-1], mask))
        return layers


class ReplacedHead(nn.Module):
    """A linear layer with activation, then one logit per token."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.transform = Linear(config.dim, config.dim)
        self.activation = ACTIVATIONS[config.activation]
        self.output = Linear(config.dim, 1)

    def forward(self, hidden: Float[Tensor, "batch time dim"]) -> Float[Tensor, "batch time"]:
        """One logit per token."""
        logits: Tensor = self.output(self.activation(self.transform(hidden)))
        return logits[..., 0]


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 2, "dim": 128, "heads": 4, "embedding_dim": 64, "generator_width": 0.25},
    "small": {"dim": 256, "heads": 4, "hidden_dim": 1024, "embedding_dim": 128, "generator_width": 0.25},
    "base": {},
    "large": {"layers": 24, "dim": 1024, "heads": 16, "generator_width": 0.25},
}
"""Named shapes, as changes to the defaults: the paper's three (appendix A, table 6), and a tiny one."""

Model = ELECTRA
