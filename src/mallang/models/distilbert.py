"""DistilBERT: half of a BERT's layers, trained to agree with the whole BERT.

DistilBERT, a distilled version of BERT: smaller, faster, cheaper and lighter. Sanh, Debut, Chaumond, Wolf 2019,
arXiv:1910.01108.

New against BERT: half as many blocks, no token types and no pooler. What makes it good is its training, the task
distillation: it starts from every other layer of its teacher and learns from the teacher's predictions.

    tokens → embedding + position → norm → blocks → vectors of tokens
    vectors → linear → GELU → norm → embeddingᵀ = masked language model, decoder tied to the embedding, with a bias

The vector of a text is that of [CLS]; `pooling = "pooler"` is that of its published classifiers, relu of a linear layer
over [CLS].

Where this differs from the paper: weights start from N(0, 0.02) that is not truncated, unless a teacher gives them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from jaxtyping import Bool, Float
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.bidirectional import Embeddings, MaskedLMHead, make_block, missing, normal_weights, through_blocks
from mallang.layers.block import Blocks
from mallang.layers.checks import check_sizes
from mallang.layers.encoded import Encoded, EncoderDims
from mallang.layers.linear import Linear
from mallang.layers.pooling import masked_mean
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "Config", "DistilBERT", "Model"]

TASK = "classification"
EPSILON = 1e-12
"""What is added to the variance in a layer normalization."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of a DistilBERT; the defaults are those of the paper."""

    layers: int = 6
    """Blocks."""
    dim: int = 768
    """Size of the hidden vectors (d_model)."""
    heads: int = 12
    """Attention heads of every layer."""
    hidden_dim: int | None = None
    """Hidden size of the feed-forward networks; default: 4 · dim."""
    max_length: int = 512
    """The maximum number of tokens of a text, with [CLS] and [SEP]."""
    dropout: float = 0.1
    """Dropout after each sublayer and after the embedding."""
    attention_dropout: float = 0.1
    """Dropout on attention weights."""
    activation: Literal["gelu", "gelu-tanh", "relu"] = "gelu"
    """The non-linearity of the feed-forward networks and of the masked language model."""
    pooling: Literal["first", "mean", "pooler"] = "first"
    """The vector of a text: [CLS]; the mean of all tokens; or relu of a linear layer over [CLS]."""
    pretraining_heads: Literal["none", "masked-lm"] = "none"
    """The head that predicts masked tokens."""

    def __post_init__(self) -> None:
        sizes = "layers", "dim", "heads", "hidden_dim", "max_length"
        check_sizes(self, *sizes, dropouts=("dropout", "attention_dropout"))
        if self.dim % self.heads:
            raise ValueError(f"dim {self.dim} cannot be divided among {self.heads} heads; change one of them")


class DistilBERT(nn.Module):
    """Embedding, blocks, and the head of the pre-training."""

    reads_source = False
    reads_segments = True
    marks = ("cls", "sep", "mask")

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.embedding = Embeddings(
            len(vocabulary), config.dim, config.max_length, token_types=0, epsilon=EPSILON, dropout=config.dropout
        )
        self.encoder = Blocks(
            make_block(
                config.dim, config.heads, config.hidden_dim, activation=config.activation, dropout=config.dropout,
                attention_dropout=config.attention_dropout, epsilon=EPSILON,
            ) for _ in range(config.layers)
        )  # fmt: skip
        self.pooler = Linear(config.dim, config.dim) if config.pooling == "pooler" else None
        self.masked_lm = None
        if config.pretraining_heads != "none":
            self.masked_lm = MaskedLMHead(config.dim, self.embedding.words, config.activation, EPSILON)
        self.init_weights()

    def forward(self, batch: Batch) -> Float[Tensor, "batch time dim"]:
        """The vector of every token after the last block."""
        return self.layers_of(batch)[-1]

    def layers_of(self, batch: Batch) -> list[Float[Tensor, "batch time dim"]]:
        """The vectors of the tokens before the first block and after every block, each text by itself."""
        return through_blocks(self.encoder, self.embedding(batch.tokens, None, batch.segments), batch)

    def encode(self, batch: Batch) -> Encoded:
        """The vectors of the tokens after every block, and one vector of the text."""
        layers = self.layers_of(batch)[1:]
        return Encoded(layers, batch.mask, self.text_vector(layers[-1], batch.mask))

    def text_vector(
        self, hidden: Float[Tensor, "batch time dim"], mask: Bool[Tensor, "batch time"]
    ) -> Float[Tensor, "batch dim"]:
        """One vector of each text, from those of its tokens after the last layer."""
        text = masked_mean(hidden, mask) if self.config.pooling == "mean" else hidden[:, 0]
        return text if self.pooler is None else self.pooler(text).relu()

    def output(self, hidden: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch words"]:
        """One logit per word, for what a masked token was."""
        if self.masked_lm is None:
            missing(self, "masked LM head", "pretraining_heads=masked-lm")
        logits: Tensor = self.masked_lm(hidden)
        return logits

    def encoder_dims(self) -> EncoderDims:
        """The sizes of what `encode` gives."""
        return EncoderDims(pooled=self.config.dim, token=self.config.dim, layers=self.config.layers)

    def layer_groups(self) -> Sequence[Sequence[nn.Module]]:
        """The embedding, and the blocks; the pooler and the head go with the highest."""
        heads = [part for part in (self.pooler, self.masked_lm) if part is not None]
        *lower, last = self.encoder
        return [[self.embedding], *([block] for block in lower), [last, *heads]]

    def input_embedding(self) -> nn.Embedding:
        """The word embeddings."""
        return self.embedding.words

    @property
    def objectives(self) -> tuple[str, ...]:
        """What its heads were built for: "masked-lm"."""
        return () if self.masked_lm is None else ("masked-lm",)

    @property
    def longest(self) -> int | None:
        """The maximum number of tokens of a text."""
        return self.config.max_length

    def init_weights(self) -> None:
        """N(0, 0.02) for every matrix, zero for every bias."""
        normal_weights(self)


SIZES: dict[str, dict[str, Any]] = {"tiny": {"layers": 2, "dim": 128, "heads": 2}, "base": {}}
"""Named shapes, as changes to the defaults."""

Model = DistilBERT
