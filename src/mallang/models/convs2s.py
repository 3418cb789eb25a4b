"""ConvS2S: translation with convolutions, so that all words of a sentence are trained in parallel.

Convolutional Sequence to Sequence Learning. Gehring, Auli, Grangier, Yarats, Dauphin 2017, arXiv:1705.03122.

New against Bahdanau's attention model: no recurrent state. The receptive field of stacked convolutions grows with every
layer, gated linear units (GLU) select features, and every decoder layer has its own attention. Learned position vectors
are added to the word embeddings. Every sum of two terms is scaled by √½, which preserves the variance.

    source → word + position → W → gated convolutions, residual → W → z             keys   z
                   └────────────────── e ──────────────────────────→ (z + e)·√½     values, times √m for m words
                                                                         ↓
    tokens → word + position → W → [causal gated convolution, attention, residual] × layers → W → hidden → logits
                   └────────────────── g ───→ query (W h + g)·√½ of every layer

Details follow the authors' code (fairseq): attention reads the output of the gates before the residual is added, the
gradient of z is divided by twice the number of decoder layers, and all matrices are weight-normalized (Salimans and
Kingma 2016). `tie_weights` is an addition: the paper has separate weights for each embedding and the output projection.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from mallang.data.batch import Batch
from mallang.layers.attention import Attention, KeyValue, Mask, additive, padding_mask
from mallang.layers.cache import State
from mallang.layers.checks import check_shared, check_sizes
from mallang.layers.convolution import GatedConvolution, scale_gradient
from mallang.layers.dropout import Dropout
from mallang.layers.embedding import Embedding
from mallang.layers.head import Projection
from mallang.layers.position import LearnedPositions
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "Config", "ConvS2S", "Model"]

TASK = "translation"
HALF = math.sqrt(0.5)
"""The sum of two values of variance 1, times this, has variance 1."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of a ConvS2S; the defaults are the paper's model for English to Romanian."""

    layers: int = 20
    """Convolutions of the encoder, and of the decoder unless `decoder_layers` says otherwise."""
    decoder_layers: int | None = None
    """Convolutions of the decoder; default: as many as the encoder has."""
    dim: int = 512
    """Channels of every convolution."""
    embedding_dim: int | None = None
    """Size of word vectors, of the encoder's output and of the queries; default: dim."""
    kernel_size: int = 3
    """Kernel size of the convolutions in tokens."""
    dropout: float = 0.1
    """Dropout before each convolution, after the embedding and before the output."""
    max_length: int = 1024
    """The maximum number of tokens of a text: a position vector is learned for each."""
    tie_weights: Literal["all", "target", "none"] = "none"
    """Tie both embeddings and the output projection (needs one vocabulary), those of the decoder, or none."""
    weight_norm: bool = True
    """Weight normalization: learn the norm of each row of a matrix apart from its direction."""

    def __post_init__(self) -> None:
        check_sizes(self, "layers", "decoder_layers", "dim", "embedding_dim", "kernel_size", "max_length")


class ConvS2S(nn.Module):
    """An encoder and a decoder of gated convolutions."""

    reads_source = True

    def __init__(self, config: Config, vocabulary: Vocabulary, source_vocabulary: Vocabulary) -> None:
        super().__init__()
        check_shared(config.tie_weights, vocabulary, source_vocabulary)
        self.config, self.vocabulary, self.source_vocabulary = config, vocabulary, source_vocabulary
        dim, size = config.dim, config.embedding_dim or config.dim
        decoder_layers = config.decoder_layers or config.layers
        self.source_embedding = make_embedding(config, len(source_vocabulary))
        self.source_input = nn.Linear(size, dim)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))
        self.source_output = nn.Linear(dim, size)
        self.embedding = make_embedding(
            config, len(vocabulary), self.source_embedding if config.tie_weights == "all" else None
        )
        self.input = nn.Linear(size, dim)
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(decoder_layers))
        self.last = nn.Linear(dim, size)
        self.dropout = Dropout(config.dropout)
        tied = None if config.tie_weights == "none" else self.embedding.table
        self.head = Projection(size, len(vocabulary), tied, bias=True)
        self.init_weights()

    def forward(self, batch: Batch) -> Float[Tensor, "batch time dim"]:
        """The hidden vector of every position, from which its next token is predicted."""
        memory, memory_mask = self.read(batch)
        hidden, _ = self.write(self.embedding(batch.tokens), memory, memory_mask, self.nothing(memory))
        return hidden

    def read(self, batch: Batch) -> tuple[KeyValue, Bool[Tensor, "batch 1 1 source"]]:
        """The encoder: the keys and values that all decoder layers attend to, and their padding mask."""
        embedded = self.source_embedding(batch.source)
        padding = ~batch.source_mask[:, :, None]
        x = self.source_input(embedded)
        for layer in self.encoder:
            x = layer(x, padding)
        z = scale_gradient(self.source_output(x), 0.5 / len(self.decoder))
        words = batch.source_mask.sum(dim=1)[:, None, None]
        values = (z + embedded) * HALF * words.sqrt()  # m·√(1/m): the mean of m values, as if it were their sum
        return KeyValue(z[:, None], values.to(z.dtype)[:, None]), padding_mask(batch.source_mask)

    def write(
        self,
        embedded: Float[Tensor, "rows time size"],
        memory: KeyValue,
        memory_mask: Mask,
        windows: Sequence[Float[Tensor, "rows kept dim"]],
    ) -> tuple[Float[Tensor, "rows time size"], list[Tensor]]:
        """The decoder: the hidden vectors of tokens that follow the windows, and the windows after them."""
        x, after = self.input(embedded), []
        embedded = embedded.to(x.dtype)
        for layer, window in zip(self.decoder, windows, strict=True):
            x, window = layer(x, window, embedded, memory, memory_mask)
            after.append(window)
        return self.dropout(self.last(x)), after

    def nothing(self, memory: KeyValue) -> list[Float[Tensor, "rows kept dim"]]:
        """The windows before the first token: zeros."""
        zeros = memory.keys.new_zeros(len(memory.keys), self.config.kernel_size - 1, self.config.dim)
        return [zeros] * len(self.decoder)

    def output(self, hidden: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch words"]:
        """One logit per word of the target vocabulary."""
        logits: Tensor = self.head(hidden)
        return logits

    def input_embedding(self) -> nn.Embedding:
        """The embedding of source tokens."""
        return self.source_embedding.table

    def output_projection(self) -> Projection:
        """The linear layer that `output` applies."""
        return self.head

    def start(self, batch: Batch) -> State:
        """Encode the source; the decoder starts with windows of zeros."""
        memory, mask = self.read(batch)
        first = torch.zeros(len(batch), dtype=torch.long, device=mask.device)
        fixed = {"memory": memory.for_decoding(), "mask": additive(mask, memory.keys)}
        return State(fixed, moving={"windows": self.nothing(memory), "place": first})

    def step(self, tokens: Int[Tensor, "rows time"], state: State) -> tuple[Float[Tensor, "rows time words"], State]:
        """The logits after each of these tokens, which follow those of earlier steps."""
        place = state.moving["place"]  # equal in all rows, but every part of a state needs a row axis
        embedded = self.embedding(tokens, place[0])
        hidden, windows = self.write(embedded, state.fixed["memory"], state.fixed["mask"], state.moving["windows"])
        return self.output(hidden), State(state.fixed, {"windows": windows, "place": place + tokens.shape[1]})

    @property
    def longest(self) -> int:
        """The maximum number of tokens that it can generate."""
        return self.config.max_length

    def init_weights(self) -> None:
        """Preserves the variance of activations (section 3.5): gates remove three quarters of it, dropout adds some."""
        kept = 1 - self.config.dropout
        gains = dict.fromkeys((self.source_input, self.input, self.head.own), kept)
        gains |= {part.linear: 4 * kept for part in self.modules() if isinstance(part, GatedConvolution)}
        for module in list(self.modules()):
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=math.sqrt(gains.get(module, 1.0) / module.in_features))
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
                if self.config.weight_norm:
                    weight_norm(module)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.1)


class EncoderLayer(nn.Module):
    """(x + gated convolution of x) · √½; the window is centered."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.dropout = Dropout(config.dropout)
        self.convolution = GatedConvolution(config.dim, config.kernel_size)

    def forward(
        self, x: Float[Tensor, "batch source dim"], padding: Bool[Tensor, "batch source 1"]
    ) -> Float[Tensor, "batch source dim"]:
        """The new x; padding is set to zero, as are positions beyond the ends of a sentence."""
        seen = self.dropout(x.masked_fill(padding, 0.0))
        new: Tensor = self.convolution(seen)
        return (new + x) * HALF


class DecoderLayer(nn.Module):
    """(x + attention from the gated convolution of x) · √½; the convolution is causal."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.dropout = Dropout(config.dropout)
        self.convolution = GatedConvolution(config.dim, config.kernel_size, causal=True)
        self.cross_attention = StepAttention(config.dim, config.embedding_dim or config.dim)

    def forward(
        self,
        x: Float[Tensor, "rows time dim"],
        window: Float[Tensor, "rows kept dim"],
        embedded: Float[Tensor, "rows time size"],
        memory: KeyValue,
        memory_mask: Mask,
    ) -> tuple[Float[Tensor, "rows time dim"], Float[Tensor, "rows kept dim"]]:
        """The new x of tokens that follow the window, and the window of those after them."""
        convolved, window = self.convolution.step(self.dropout(x), window)
        attended = self.cross_attention(convolved, embedded, memory, memory_mask)
        return ((convolved + attended) * HALF + x) * HALF, window


class StepAttention(Attention):
    """Attention of one decoder layer to the source, scored by the dot product of the query and the key.

    scores = (W h + g)·√½ · z      context = Σ weights · values      output = W context

    All layers attend to the same memory.
    """

    def __init__(self, dim: int, size: int) -> None:
        super().__init__(dim, heads=1, key_dim=size, value_dim=size)
        self.query = nn.Linear(dim, size)

    def forward(
        self,
        x: Float[Tensor, "rows time dim"],
        embedded: Float[Tensor, "rows time size"],
        memory: KeyValue,
        mask: Mask,
    ) -> Float[Tensor, "rows time dim"]:
        """The projected context. Rows may be sentences × width: the width is then folded into the query axis."""
        queries = (self.query(x) + embedded) * (HALF * math.sqrt(self.key_dim))  # `attend` divides by the root
        return self.attend(queries.reshape(len(memory.keys), 1, -1, self.key_dim), *memory, mask).view_as(x)


def make_embedding(config: Config, words: int, tied: Embedding | None = None) -> Embedding:
    """Word and position embeddings of one side, not scaled."""
    size = config.embedding_dim or config.dim
    positions = LearnedPositions(size, config.max_length)
    return Embedding(words, size, positions, config.dropout, tied, scale=1.0)


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 2, "dim": 32, "max_length": 64},
    "small": {"layers": 4, "decoder_layers": 3, "dim": 256},
    "base": {},
}
"""Named shapes, as changes to the defaults; base is the paper's for English to Romanian, small fairseq's for IWSLT."""

Model = ConvS2S
