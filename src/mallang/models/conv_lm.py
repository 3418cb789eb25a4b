"""Convolutional language models: causal convolutions over a text, a single one or a deep stack with gates.

Language Modeling with Gated Convolutional Networks. Dauphin, Fan, Auli, Grangier 2017, arXiv:1612.08083; the windowed
form: Bengio, Ducharme, Vincent, Jauvin 2003.

New against nplm: several layers are stacked, so that the receptive field grows with every layer. Gated linear units
(GLU) select features, and residual connections make deep stacks trainable. New against rnn_lm: there is no recurrent
state, so that all positions of a text are trained in parallel; and a prediction depends on the last `context` tokens.

    tokens → embedding → convolution → [convolution × block_layers, residual] × blocks → hidden → logits

    windowed   h_t = tanh(W [e_{t−k+1}; …; e_t] + b)     k = kernel_size; gated = false, blocks = 0: nplm of order k + 1
    gated      h = a ⊙ σ(b)    [a; b] = W [x_{t−k+1}; …; x_t] + c, weight-normalized

With `dilation` the distance between the inputs of a convolution grows by that factor with each layer, so that `context`
grows exponentially with the layers and not linearly: dilation = 2 as in WaveNet (van den Oord et al. 2016,
arXiv:1609.03499), dilation = kernel_size so that each of the last kernel_size^layers tokens is read once.

The sum of a residual connection is scaled by √½, as in the authors' code, which preserves the variance.

Where this differs from the paper: a full softmax, which can be tied to the embedding, not an adaptive one; dropout, for
corpora as small as Penn Treebank. In generation every layer caches the inputs that its next window needs;
`forward_stateful` carries them from one window of text to the next, so that results do not depend on where it is cut.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from mallang.data.batch import Batch
from mallang.layers.cache import State
from mallang.layers.checks import check_sizes, check_tied
from mallang.layers.convolution import Convolution, GatedConvolution
from mallang.layers.dropout import Dropout, dropout_mask
from mallang.layers.head import Projection
from mallang.layers.stateful import StatefulOutput
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "Config", "ConvLM", "Model"]

TASK = "language_modeling"
FARTHEST = 65_536
"""The maximum receptive field of dilated layers in tokens: in generation nearly as many vectors are cached."""
HALF = math.sqrt(0.5)
"""The sum of two values of variance 1, times this, has variance 1."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of a convolutional language model; the defaults are of the size of the paper's smaller ones."""

    gated: bool = True
    """Use gated linear units; otherwise tanh."""
    blocks: int = 4
    """Residual blocks after the first convolution; 0: that convolution alone."""
    block_layers: int = 2
    """Convolutions in a block, not counting those of width 1 around a bottleneck."""
    bottleneck: int | None = None
    """Channels inside a block, which then begins and ends with a convolution of width 1; default: dim."""
    kernel_size: int = 4
    """Kernel size of the convolutions in tokens, the current one included."""
    dilation: int = 1
    """Factor by which the dilation of a convolution grows with each layer; 1: no dilation."""
    dim: int = 800
    """Channels of every block, and size of the hidden vectors."""
    embedding_dim: int = 280
    """Size of token embeddings."""
    tie_weights: bool = False
    """Tie the embedding and the output projection, which must have the same size."""
    weight_norm: bool = True
    """Weight normalization: learn the norm of each row of a convolution's matrix apart from its direction."""
    dropout: float = 0.0
    """Dropout before each convolution of a block."""
    input_dropout: float = 0.0
    """Dropout on token embeddings."""
    output_dropout: float = 0.0
    """Dropout on the hidden vectors."""
    word_dropout: float = 0.0
    """Word dropout: probability that the embedding of a word is zero throughout a batch."""

    def __post_init__(self) -> None:
        shares = ("dropout", "input_dropout", "output_dropout", "word_dropout")
        check_sizes(
            self, "block_layers", "bottleneck", "kernel_size", "dilation", "dim", "embedding_dim", dropouts=shares
        )
        if self.blocks < 0:
            raise ValueError(f"blocks must be at least 0, but is {self.blocks}")
        for name, default in (("block_layers", 2), ("bottleneck", None), ("dropout", 0.0), ("dilation", 1)):
            if not self.blocks and (value := getattr(self, name)) != default:
                raise ValueError(f"{name} = {value} has no effect where blocks = 0: it is an option of blocks")
        if self.dilation > 1 and (context := context_of(self)) > FARTHEST:
            raise ValueError(
                f"dilation = {self.dilation} over {layers_of(self)} layers sees {context:,} tokens, but the most is "
                f"{FARTHEST:,}: take a smaller dilation, or fewer blocks"
            )
        check_tied(self)


class ConvLM(nn.Module):
    """An embedding, causal convolutions and an output projection."""

    reads_source = False

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.embedding = nn.Embedding(len(vocabulary), config.embedding_dim)
        self.input_dropout = Dropout(config.input_dropout)
        self.first = make_convolution(config, config.embedding_dim, config.kernel_size, config.dim)
        self.blocks = nn.ModuleList(Block(config, 1 + number * config.block_layers) for number in range(config.blocks))
        self.output_dropout = Dropout(config.output_dropout)
        self.head = Projection(config.dim, len(vocabulary), self.embedding if config.tie_weights else None, bias=True)
        self.init_weights()

    def forward(self, batch: Batch) -> Float[Tensor, "batch time dim"]:
        """The hidden vector of every position, from which its next token is predicted."""
        return self.read(batch.tokens, self.nothing(batch))[0]

    def forward_stateful(self, batch: Batch, carry: list[Tensor] | None) -> StatefulOutput:
        """Hidden vectors of a window that continues from `carry`, or starts from zeros; and the state after it."""
        hidden, windows = self.read(batch.tokens, self.nothing(batch) if carry is None else carry)
        return StatefulOutput(hidden, [window.detach() for window in windows])

    def read(
        self, tokens: Int[Tensor, "rows time"], windows: Sequence[Float[Tensor, "rows kept _"]]
    ) -> tuple[Float[Tensor, "rows time dim"], list[Tensor]]:
        """The hidden vectors of tokens that follow the windows, and the windows after them."""
        x, window = self.first.step(self.embed(tokens), windows[0])
        after = [window]
        for block in self.blocks:
            x, its = block(x, windows[len(after) : len(after) + self.config.block_layers])
            after += its
        return self.output_dropout(x), after

    def embed(self, tokens: Int[Tensor, "rows time"]) -> Float[Tensor, "rows time embedding_dim"]:
        """Token embeddings, with word dropout in training (Gal and Ghahramani 2016, arXiv:1512.05287)."""
        x: Tensor = self.embedding(tokens)
        if self.training and self.config.word_dropout:
            x = x * dropout_mask(self.embedding.weight[:, :1].detach(), self.config.word_dropout)[tokens]
        dropped: Tensor = self.input_dropout(x)
        return dropped

    def nothing(self, batch: Batch) -> list[Float[Tensor, "batch kept _"]]:
        """The windows before the first token: zeros."""
        layers: Any = [self.first, *(layer for block in self.blocks for layer in block.wide)]  # type: ignore[union-attr]
        return [self.embedding.weight.new_zeros(len(batch), layer.kept, layer.dim) for layer in layers]

    def output(self, hidden: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch words"]:
        """One logit per word of the vocabulary."""
        logits: Tensor = self.head(hidden)
        return logits

    def input_embedding(self) -> nn.Embedding:
        """The embedding of tokens."""
        return self.embedding

    def output_projection(self) -> Projection:
        """The linear layer that `output` applies."""
        return self.head

    def start(self, batch: Batch) -> State:
        """The initial state, before any token."""
        return State(fixed=None, moving=self.nothing(batch))

    def step(self, tokens: Int[Tensor, "rows time"], state: State) -> tuple[Float[Tensor, "rows time words"], State]:
        """The logits after each of these tokens, which follow those of earlier steps."""
        hidden, windows = self.read(tokens, state.moving)
        return self.output(hidden), State(None, windows)

    @property
    def context(self) -> int:
        """The receptive field: the number of tokens that a prediction depends on."""
        return context_of(self.config)

    def init_weights(self) -> None:
        """Preserves the variance of activations, of which gates remove three quarters (arXiv:1705.03122, 3.5)."""
        gain = 4.0 if self.config.gated else 1.0
        nn.init.normal_(self.embedding.weight, std=0.1)
        if self.head.own is not None:
            nn.init.normal_(self.head.own.weight, std=self.config.dim**-0.5)
        for module in list(self.modules()):
            if isinstance(module, Convolution):
                nn.init.normal_(module.linear.weight, std=math.sqrt(gain / module.linear.in_features))
                nn.init.zeros_(module.linear.bias)
                if self.config.weight_norm:
                    weight_norm(module.linear)


class Block(nn.Module):
    """(x + convolutions of x) · √½; with a bottleneck, convolutions of width 1 project into it and out of it."""

    def __init__(self, config: Config, below: int) -> None:
        super().__init__()
        inside = config.bottleneck or config.dim
        self.dropout = Dropout(config.dropout)
        self.down_proj = make_convolution(config, config.dim, 1, inside) if config.bottleneck else None
        self.wide = nn.ModuleList(
            make_convolution(config, inside, config.kernel_size, inside, config.dilation ** (below + number))
            for number in range(config.block_layers)
        )
        self.up_proj = make_convolution(config, inside, 1, config.dim) if config.bottleneck else None

    def forward(
        self, x: Float[Tensor, "rows time dim"], windows: Sequence[Float[Tensor, "rows kept inside"]]
    ) -> tuple[Float[Tensor, "rows time dim"], list[Tensor]]:
        """The new x of tokens that follow the windows, and the windows after them."""
        new, after = x if self.down_proj is None else self.down_proj(self.dropout(x)), []
        layer: Any
        for layer, window in zip(self.wide, windows, strict=True):
            new, window = layer.step(self.dropout(new), window)
            after.append(window)
        new = new if self.up_proj is None else self.up_proj(self.dropout(new))
        return (new + x) * HALF, after


class TanhConvolution(Convolution):
    """A convolution without gates."""

    def slide(self, x: Float[Tensor, "rows padded dim"]) -> Float[Tensor, "rows time output_dim"]:
        """One output for every whole window."""
        return torch.tanh(super().slide(x))


def make_convolution(config: Config, dim: int, kernel_size: int, output_dim: int, dilation: int = 1) -> Convolution:
    """One causal convolution, with gates or without."""
    kind = GatedConvolution if config.gated else TanhConvolution
    return kind(dim, kernel_size, causal=True, output_dim=output_dim, dilation=dilation)


def layers_of(config: Config) -> int:
    """The depth in convolutions of the full kernel size."""
    return 1 + config.blocks * config.block_layers


def context_of(config: Config) -> int:
    """The receptive field: the number of tokens that a prediction depends on."""
    dilations: list[int] = [config.dilation**layer for layer in range(layers_of(config))]
    return 1 + (config.kernel_size - 1) * sum(dilations)


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"blocks": 2, "block_layers": 1, "kernel_size": 3, "dim": 32, "embedding_dim": 32},
    "small": {"blocks": 2, "dim": 256, "embedding_dim": 256, "tie_weights": True},
    "windowed": {"gated": False, "blocks": 0, "kernel_size": 5, "dim": 100, "embedding_dim": 60, "weight_norm": False},
    "base": {},
}
"""Named shapes, as changes to the defaults; windowed is nplm's default as a convolution."""

Model = ConvLM
