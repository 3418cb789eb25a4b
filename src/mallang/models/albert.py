"""ALBERT: a BERT with few parameters, since its layers share weights and its embedding is factorized.

ALBERT: A Lite BERT for Self-supervised Learning of Language Representations. Lan, Chen, Goodman, Gimpel, Sharma,
Soricut 2019, arXiv:1909.11942.

New against BERT: the embedding of V × H is factorized into V × E and E × H (section 3.1), all layers
use the same weights (section 3.1, cross-layer parameter sharing), and the second loss of the pre-training asks whether
two texts are in their order or swapped (SOP), not whether the second follows at all.

    tokens → embedding (E) → norm → linear E → H → the same layer, N times → vectors of tokens
    vector of [CLS] → linear → tanh               = pooled, for classification and the order of sentences
    vectors → linear H → E → GELU → norm → embeddingᵀ = masked language model

What is shared is an option, as in the paper's table 4: attention, the feed-forward network, all, or nothing.

Where this differs from the paper: weights start from N(0, 0.02) that is not truncated. Without `embedding_dim` the
embedding is not factorized, as in BERT.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from jaxtyping import Bool, Float
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.attention import Mask, SelfAttention
from mallang.layers.bidirectional import Embeddings, MaskedLMHead, missing, normal_weights, own_text
from mallang.layers.checks import check_sizes
from mallang.layers.dropout import Dropout
from mallang.layers.encoded import Encoded, EncoderDims
from mallang.layers.feedforward import FeedForward
from mallang.layers.linear import Linear
from mallang.layers.pooling import masked_mean
from mallang.text.vocabulary import Vocabulary

__all__ = ["ALBERT", "SIZES", "Config", "Model"]

TASK = "classification"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of an ALBERT; the defaults are ALBERT-base."""

    layers: int = 12
    """How often the hidden vectors pass through a layer."""
    dim: int = 768
    """Size of the hidden vectors (H)."""
    heads: int = 12
    """Attention heads of every layer."""
    hidden_dim: int | None = None
    """Hidden size of the feed-forward networks; default: 4 · dim."""
    embedding_dim: int | None = 128
    """Size of the embedding vectors (E); none: that of the hidden vectors, without a factorization."""
    sharing: Literal["none", "attention", "feed-forward", "all"] = "all"
    """The weights that all layers share, with the norm after them."""
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
    activation: Literal["gelu", "gelu-tanh", "relu"] = "gelu-tanh"
    """The non-linearity of the feed-forward networks and of the masked language model."""
    pooling: Literal["pooler", "first", "mean"] = "pooler"
    """The vector of a text: tanh of a linear layer over [CLS]; [CLS] itself; or the mean of all tokens."""
    pooler: bool = True
    """Whether there is that linear layer."""
    pretraining_heads: Literal["none", "masked-lm", "both"] = "none"
    """The head that predicts masked tokens; both: also the one that tells whether two texts are in their order."""

    def __post_init__(self) -> None:
        sizes = "layers", "dim", "heads", "hidden_dim", "embedding_dim", "max_length", "token_types"
        check_sizes(self, *sizes, dropouts=("dropout", "attention_dropout"))
        if self.dim % self.heads:
            raise ValueError(f"dim {self.dim} cannot be divided among {self.heads} heads; change one of them")
        if self.norm_epsilon <= 0:
            raise ValueError(f"norm_epsilon must be above 0, but is {self.norm_epsilon}")
        for name, value in (("pooling", "pooler"), ("pretraining_heads", "both")):
            if getattr(self, name) == value and not self.pooler:
                raise ValueError(f"{name} = {value!r} needs pooler = true")


class ALBERT(nn.Module):
    """Factorized embedding, shared layers, pooler, and the heads of the pre-training."""

    reads_source = False
    reads_segments = True
    marks = ("cls", "sep", "mask")

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        size, shared, heads = config.embedding_dim, config.sharing, config.pretraining_heads
        self.embedding = Embeddings(
            len(vocabulary), size or config.dim, config.max_length, token_types=config.token_types,
            epsilon=config.norm_epsilon, dropout=config.dropout,
        )  # fmt: skip
        self.projection = None if size is None else Linear(size, config.dim)
        of_attention = 1 if shared in ("attention", "all") else config.layers
        of_feedforward = 1 if shared in ("feed-forward", "all") else config.layers
        self.attention = nn.ModuleList(AttentionLayer(config) for _ in range(of_attention))
        self.feedforward = nn.ModuleList(FeedForwardLayer(config) for _ in range(of_feedforward))
        self.pooler = Linear(config.dim, config.dim) if config.pooler else None
        self.masked_lm = None
        if heads != "none":
            self.masked_lm = MaskedLMHead(config.dim, self.embedding.words, config.activation, config.norm_epsilon)
        self.sentence_order = Linear(config.dim, 2) if heads == "both" else None
        self.init_weights()

    def forward(self, batch: Batch) -> Float[Tensor, "batch time dim"]:
        """The vector of every token after the last layer."""
        return self.layers_of(batch)[-1]

    def layers_of(self, batch: Batch) -> list[Float[Tensor, "batch time dim"]]:
        """The vectors of the tokens before the first layer and after every layer, each text by itself."""
        x, mask = self.embedding(batch.tokens, batch.token_types, batch.segments), own_text(batch)
        layers = [x if self.projection is None else self.projection(x)]
        for number in range(self.config.layers):
            attention = self.attention[number % len(self.attention)]
            feedforward = self.feedforward[number % len(self.feedforward)]
            layers.append(feedforward(attention(layers[-1], mask)))
        return layers

    def encode(self, batch: Batch) -> Encoded:
        """The vectors of the tokens after every layer, and one vector of the text."""
        layers = self.layers_of(batch)[1:]
        return Encoded(layers, batch.mask, self.text_vector(layers[-1], batch.mask))

    def text_vector(
        self, hidden: Float[Tensor, "batch time dim"], mask: Bool[Tensor, "batch time"]
    ) -> Float[Tensor, "batch dim"]:
        """One vector of each text, from those of its tokens after the last layer."""
        if self.config.pooling == "mean":
            text = masked_mean(hidden, mask)
        else:
            text = hidden[:, 0] if self.config.pooling == "first" else self.pooled(hidden)
        return text

    def pooled(self, hidden: Float[Tensor, "batch time dim"]) -> Float[Tensor, "batch dim"]:
        """tanh of a linear layer over the vector of the first token, [CLS]."""
        if self.pooler is None:
            missing(self, "pooler", "pooler=true")
        vectors: Tensor = self.pooler(hidden[:, 0]).tanh()
        return vectors

    def output(self, hidden: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch words"]:
        """One logit per word, for what a masked token was."""
        if self.masked_lm is None:
            missing(self, "masked LM head", "pretraining_heads=masked-lm")
        logits: Tensor = self.masked_lm(hidden)
        return logits

    def next_sentence_logits(self, hidden: Float[Tensor, "batch time dim"]) -> Float[Tensor, "batch 2"]:
        """Two logits per pair of texts: they are in their order, they are swapped."""
        if self.sentence_order is None:
            missing(self, "sentence order head", "pretraining_heads=both")
        logits: Tensor = self.sentence_order(self.pooled(hidden))
        return logits

    def encoder_dims(self) -> EncoderDims:
        """The sizes of what `encode` gives."""
        return EncoderDims(pooled=self.config.dim, token=self.config.dim, layers=self.config.layers)

    def layer_groups(self) -> Sequence[Sequence[nn.Module]]:
        """The embedding with its projection, and the layers; weights that all layers share are of the highest."""
        heads = [part for part in (self.pooler, self.masked_lm, self.sentence_order) if part is not None]
        below = [self.embedding, *([] if self.projection is None else [self.projection])]
        parts = [each for each in (self.attention, self.feedforward) if len(each) == self.config.layers]
        shared = [each[0] for each in (self.attention, self.feedforward) if len(each) < self.config.layers]
        *lower, last = zip(*parts, strict=True) if parts else [()]
        return [below, *lower, [*last, *shared, *heads]]

    def input_embedding(self) -> nn.Embedding:
        """The word embeddings, before their projection."""
        return self.embedding.words

    @property
    def objectives(self) -> tuple[str, ...]:
        """What its heads were built for: "masked-lm", "sentence-pairs"."""
        return {"none": (), "masked-lm": ("masked-lm",), "both": ("masked-lm", "sentence-pairs")}[
            self.config.pretraining_heads
        ]

    @property
    def longest(self) -> int | None:
        """The maximum number of tokens of a text."""
        return self.config.max_length

    def init_weights(self) -> None:
        """N(0, 0.02) for every matrix, zero for every bias."""
        normal_weights(self)


class AttentionLayer(nn.Module):
    """norm(x + dropout(self-attention(x)))."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        share = config.dim // config.heads
        self.self_attention = SelfAttention(config.dim, config.heads, share, share, config.attention_dropout)
        self.norm = nn.LayerNorm(config.dim, config.norm_epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "batch time dim"], mask: Mask) -> Float[Tensor, "batch time dim"]:
        """The new x."""
        new: Tensor = self.norm(x + self.dropout(self.self_attention(x, mask)[0]))
        return new


class FeedForwardLayer(nn.Module):
    """norm(x + dropout(feed-forward(x)))."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.feedforward = FeedForward(config.dim, config.hidden_dim or 4 * config.dim, config.activation)
        self.norm = nn.LayerNorm(config.dim, config.norm_epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "batch time dim"]) -> Float[Tensor, "batch time dim"]:
        """The new x."""
        new: Tensor = self.norm(x + self.dropout(self.feedforward(x)))
        return new


def shape(layers: int, dim: int, heads: int, **changes: Any) -> dict[str, Any]:
    """One published size."""
    return {"layers": layers, "dim": dim, "heads": heads, **changes}


WITHOUT_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}
SIZES: dict[str, dict[str, Any]] = {
    "tiny": shape(2, 64, 2, embedding_dim=16),
    "base": shape(12, 768, 12),
    "large": shape(24, 1024, 16),
    "xlarge": shape(24, 2048, 16),
    "xxlarge": shape(12, 4096, 64, **WITHOUT_DROPOUT),
}
"""Named shapes, as changes to the defaults: the paper's four, and a tiny one. The largest is trained without dropout
(section 4.8)."""

Model = ALBERT
