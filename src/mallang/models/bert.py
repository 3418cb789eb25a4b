"""BERT: an encoder in which every token attends to both sides, pre-trained by filling in masked tokens.

BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding. Devlin, Chang, Lee, Toutanova 2018,
arXiv:1810.04805. RoBERTa: Liu et al. 2019, arXiv:1907.11692. The sizes below base: Turc et al. 2019, arXiv:1908.08962.

New against the Transformer's encoder: learned positions, a vector for each of the two segments of a pair of texts, a
norm after the embedding, GELU, and a pooler over [CLS]. New against GPT: no causal mask, padding alone is hidden.

    [CLS] text [SEP] other text [SEP]
      0     0    0       1        1      token types (segments A and B)

    tokens → embedding + position + token type → norm → blocks → vectors of tokens
    vector of [CLS] → linear → tanh            = pooled, for classification and the next sentence
    vectors → linear → GELU → norm → embeddingᵀ = masked language model, decoder tied to the embedding, with a bias

RoBERTa is the same network with other values: `token_types = 1`, `position_offset = 2`, `norm_epsilon = 1e-5`, and no
next sentence. The heads of the pre-training are built where a configuration asks for them.

Where this differs from the paper: weights start from N(0, 0.02) that is not truncated; `pooling = "mean"` with
`normalized` is that of sentence encoders (Reimers and Gurevych 2019, arXiv:1908.10084).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch.nn.functional as F
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

__all__ = ["BERT", "SIZES", "Config", "Model"]

TASK = "classification"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of a BERT; the defaults are BERT-base."""

    layers: int = 12
    """Blocks."""
    dim: int = 768
    """Size of the hidden vectors (d_model)."""
    heads: int = 12
    """Attention heads of every layer."""
    hidden_dim: int | None = None
    """Hidden size of the feed-forward networks; default: 4 · dim."""
    max_length: int = 512
    """The maximum number of tokens of a text, with [CLS] and [SEP]."""
    token_types: int = 2
    """The number of segments that have a vector; 1 in RoBERTa."""
    position_offset: int = 0
    """The row of the first position in its table; 2 in RoBERTa, which counts positions from its pad id on."""
    dropout: float = 0.1
    """Dropout after each sublayer and after the embedding."""
    attention_dropout: float = 0.1
    """Dropout on attention weights."""
    norm_epsilon: float = 1e-12
    """What is added to the variance in a layer normalization."""
    activation: Literal["gelu", "gelu-tanh", "relu"] = "gelu"
    """The non-linearity of the feed-forward networks and of the masked language model."""
    pooling: Literal["pooler", "first", "mean"] = "pooler"
    """The vector of a text: tanh of a linear layer over [CLS]; [CLS] itself; or the mean of all tokens."""
    pooler: bool = True
    """Whether there is that linear layer."""
    normalized: bool = False
    """Whether the vector of a text has length 1, as sentence encoders have it."""
    pretraining_heads: Literal["none", "masked-lm", "both"] = "none"
    """The head that predicts masked tokens; both: also the one that tells whether the second text follows."""

    def __post_init__(self) -> None:
        sizes = "layers", "dim", "heads", "hidden_dim", "max_length", "token_types"
        check_sizes(self, *sizes, dropouts=("dropout", "attention_dropout"))
        if self.dim % self.heads:
            raise ValueError(f"dim {self.dim} cannot be divided among {self.heads} heads; change one of them")
        if self.position_offset < 0 or self.norm_epsilon <= 0:
            raise ValueError("position_offset must be at least 0, and norm_epsilon above 0")
        for name, value in (("pooling", "pooler"), ("pretraining_heads", "both")):
            if getattr(self, name) == value and not self.pooler:
                raise ValueError(f"{name} = {value!r} needs pooler = true")


class BERT(nn.Module):
    """Embedding, blocks, pooler, and the heads of the pre-training."""

    reads_source = False
    reads_segments = True
    marks = ("cls", "sep", "mask")

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.embedding = Embeddings(
            len(vocabulary), config.dim, config.max_length, token_types=config.token_types,
            offset=config.position_offset, epsilon=config.norm_epsilon, dropout=config.dropout,
        )  # fmt: skip
        self.encoder = Blocks(
            make_block(
                config.dim, config.heads, config.hidden_dim, activation=config.activation, dropout=config.dropout,
                attention_dropout=config.attention_dropout, epsilon=config.norm_epsilon,
            ) for _ in range(config.layers)
        )  # fmt: skip
        self.pooler = Linear(config.dim, config.dim) if config.pooler else None
        heads = config.pretraining_heads
        self.masked_lm = None
        if heads != "none":
            self.masked_lm = MaskedLMHead(config.dim, self.embedding.words, config.activation, config.norm_epsilon)
        self.next_sentence = Linear(config.dim, 2) if heads == "both" else None
        self.init_weights()

    def forward(self, batch: Batch) -> Float[Tensor, "batch time dim"]:
        """The vector of every token after the last block."""
        return self.layers_of(batch)[-1]

    def layers_of(self, batch: Batch) -> list[Float[Tensor, "batch time dim"]]:
        """The vectors of the tokens before the first block and after every block.

        Padding is hidden from them, and texts packed beside theirs.
        """
        return through_blocks(self.encoder, self.embedding(batch.tokens, batch.token_types, batch.segments), batch)

    def encode(self, batch: Batch) -> Encoded:
        """The vectors of the tokens after every block, and one vector of the text."""
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
        return F.normalize(text, dim=1) if self.config.normalized else text

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
        """Two logits per pair of texts: the second follows the first, it does not."""
        if self.next_sentence is None:
            missing(self, "next sentence head", "pretraining_heads=both")
        logits: Tensor = self.next_sentence(self.pooled(hidden))
        return logits

    def encoder_dims(self) -> EncoderDims:
        """The sizes of what `encode` gives."""
        return EncoderDims(pooled=self.config.dim, token=self.config.dim, layers=self.config.layers)

    def layer_groups(self) -> Sequence[Sequence[nn.Module]]:
        """The embedding, and the blocks; the heads go with the highest."""
        heads = [part for part in (self.pooler, self.masked_lm, self.next_sentence) if part is not None]
        *lower, last = self.encoder
        return [[self.embedding], *([block] for block in lower), [last, *heads]]

    def input_embedding(self) -> nn.Embedding:
        """The word embeddings."""
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


def shape(layers: int, dim: int, heads: int, **changes: Any) -> dict[str, Any]:
    """One published size."""
    return {"layers": layers, "dim": dim, "heads": heads, **changes}


ROBERTA = {"token_types": 1, "position_offset": 2, "norm_epsilon": 1e-5}
SIZES: dict[str, dict[str, Any]] = {
    "tiny": shape(2, 128, 2),
    "mini": shape(4, 256, 4),
    "small": shape(4, 512, 8),
    "medium": shape(8, 512, 8),
    "base": shape(12, 768, 12),
    "large": shape(24, 1024, 16),
    "minilm": shape(6, 384, 12),
    "roberta-base": shape(12, 768, 12, **ROBERTA),
    "roberta-large": shape(24, 1024, 16, **ROBERTA),
}
"""Named shapes, as changes to the defaults: Turc et al. 2019 up to medium, then the paper's two; the six layers of the
sentence encoder all-MiniLM-L6-v2 (Wang et al. 2020, arXiv:2002.10957); RoBERTa's two."""

Model = BERT
