"""GPT: the Transformer's decoder alone, as a language model, in the shapes of GPT-1, GPT-2 and GPT-3.

GPT-1: Improving Language Understanding by Generative Pre-Training. Radford, Narasimhan, Salimans, Sutskever 2018.
GPT-2: Language Models are Unsupervised Multitask Learners. Radford, Wu, Child, Luan, Amodei, Sutskever 2019.
GPT-3: Language Models are Few-Shot Learners. Brown et al. 2020, arXiv:2005.14165.

New against the Transformer: no source and no cross-attention; learned position embeddings; GELU instead of ReLU; every
weight is initialized from N(0, 0.02). The differences between the generations are options:

    GPT-1   norm = "post", scaled_residuals = false: the norm after each sublayer, as in the Transformer
    GPT-2   norm = "pre", and one more norm at the end; residual projections start smaller by √(number of sublayers)
    GPT-3   window and windowed = "alternate": every second layer attends to the last tokens only

    tokens → embedding + position → blocks (causal) → norm → hidden → logits, with the weight of the embedding

Under the head of a task it reads texts as GPT-1 does, and the vector of <extract> is that of the text:

    <start> text <extract>        <start> premise <delimiter> hypothesis <extract>

Where this differs from the papers: GPT-3 has the banded patterns of the Sparse Transformer (arXiv:1904.10509); here a
window is the last `window` tokens. `output_dropout` is an addition for small corpora (Merity et al. 2017). Texts that
are packed into one row do not attend to each other, and the positions of each start at 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.attention import Mask, SelfAttention, causal_mask, segment_mask
from mallang.layers.block import Block, Blocks
from mallang.layers.cache import DynamicCache, State
from mallang.layers.checks import check_sizes
from mallang.layers.dropout import Dropout
from mallang.layers.embedding import Embedding
from mallang.layers.encoded import Encoded, EncoderDims
from mallang.layers.feedforward import FeedForward
from mallang.layers.head import Projection
from mallang.layers.pooling import last_seen
from mallang.layers.position import LearnedPositions, NoPositions, places_within
from mallang.text.vocabulary import Vocabulary

__all__ = ["GPT", "HF_NAMES", "SIZES", "Config", "Model"]

TASK = "language_modeling"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of a GPT; the defaults are the smallest GPT-2."""

    layers: int = 12
    """Blocks."""
    dim: int = 768
    """Size of the hidden vectors (d_model)."""
    heads: int = 12
    """Attention heads of every layer."""
    hidden_dim: int | None = None
    """Hidden size of the feed-forward networks; default: 4 · dim."""
    max_length: int | None = 1024
    """The maximum number of tokens of a text: the number of learned positions; none: no positions, an ablation."""
    dropout: float = 0.1
    """Dropout after each sublayer."""
    embedding_dropout: float | None = None
    """Dropout after the embedding; default: `dropout`."""
    attention_dropout: float = 0.1
    """Dropout on attention weights."""
    output_dropout: float = 0.0
    """Dropout before the logits; the papers drop none."""
    norm: Literal["pre", "post", "none"] = "pre"
    """Layer normalization before each sublayer and at the end, after each as in GPT-1, or nowhere."""
    scaled_residuals: bool = True
    """Initialize the last linear layer of each sublayer smaller, by 1/√(2 · layers), as in GPT-2."""
    activation: Literal["gelu-tanh", "gelu", "relu", "relu-squared"] = "gelu-tanh"
    """The activation of the feed-forward networks; the papers use the tanh approximation of GELU."""
    biases: Literal["inner", "none", "all"] = "inner"
    """Biases in all linear layers and norms but the output projection, as in the papers; in none; or in all."""
    window: int | None = None
    """Sliding-window attention: how many tokens back a token attends to; default: all of them."""
    windowed: Literal["all", "alternate"] = "all"
    """The layers with a window: all, or every second one, as in GPT-3."""

    def __post_init__(self) -> None:
        dropouts = ["dropout", "attention_dropout", "output_dropout"]
        if self.embedding_dropout is not None:
            dropouts.append("embedding_dropout")
        check_sizes(self, "layers", "dim", "heads", "hidden_dim", "max_length", dropouts=dropouts)
        if self.dim % self.heads:
            raise ValueError(f"dim {self.dim} cannot be divided among {self.heads} heads; change one of them")
        if self.window is not None and self.window < 0:
            raise ValueError(f"window must be at least 0, but is {self.window}")
        if self.window is None and self.windowed != "all":
            raise ValueError(f'windowed = "{self.windowed}" has no effect without a window')


class GPT(nn.Module):
    """A stack of decoder blocks with causal self-attention."""

    reads_source = False
    reads_segments = True
    """Documents that are packed into one row do not attend to each other."""
    frame_marks = ("start", "delimiter", "extract")

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        positions = (
            NoPositions(config.dim) if (most := config.max_length) is None else LearnedPositions(config.dim, most)
        )
        dropped = config.dropout if config.embedding_dropout is None else config.embedding_dropout
        self.embedding = Embedding(len(vocabulary), config.dim, positions, dropped, scale=1.0)
        self.decoder = Blocks(make_block(config) for _ in range(config.layers))
        self.windows = [window_of(config, layer) for layer in range(config.layers)]
        self.decoder_norm = (
            nn.LayerNorm(config.dim, bias=config.biases != "none") if config.norm == "pre" else nn.Identity()
        )
        self.output_dropout = Dropout(config.output_dropout)
        self.head = Projection(config.dim, len(vocabulary), self.embedding.table, bias=config.biases == "all")
        self.init_weights()

    def forward(self, batch: Batch, layers: list[Tensor] | None = None) -> Float[Tensor, "batch time dim"]:
        """The hidden vector of every position, from which its next token is predicted; `layers` collects all layers."""
        places = None if batch.segments is None else places_within(batch.segments)
        x = self.embedding(batch.tokens, places=places)
        for block, mask in zip(self.decoder, self.masks(batch), strict=True):
            x = block(x, mask)
            if layers is not None:
                layers.append(x)
        hidden: Tensor = self.output_dropout(self.decoder_norm(x))
        return hidden

    def encode(self, batch: Batch) -> Encoded:
        """The vectors of the tokens after every block; that of the last token, `<extract>`, is that of the text."""
        layers: list[Tensor] = []
        hidden = self(batch, layers)
        return Encoded([*layers[:-1], hidden], batch.mask, last_seen(hidden, batch.mask))

    def encoder_dims(self) -> EncoderDims:
        """The sizes of what `encode` gives."""
        return EncoderDims(pooled=self.config.dim, token=self.config.dim, layers=self.config.layers)

    def layer_groups(self) -> Sequence[Sequence[nn.Module]]:
        """The embedding, and the blocks; the norm after them and the output go with the highest."""
        *lower, last = self.decoder
        return [[self.embedding], *([block] for block in lower), [last, self.decoder_norm, self.head]]

    def masks(self, batch: Batch) -> list[Mask]:
        """The attention mask of each layer: causal, within the window, within the same text."""
        time, device, made = batch.tokens.shape[1], batch.tokens.device, {}
        for window in dict.fromkeys(self.windows):
            if batch.segments is None:
                made[window] = causal_mask(time, window=window, device=device)
            else:
                made[window] = segment_mask(batch.segments, window)
        return [made[window] for window in self.windows]

    def output(self, hidden: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch words"]:
        """One logit per word."""
        logits: Tensor = self.head(hidden)
        return logits

    def input_embedding(self) -> nn.Embedding:
        """The embedding of tokens."""
        return self.embedding.table

    def output_projection(self) -> Projection:
        """The linear layer that `output` applies."""
        return self.head

    def start(self, batch: Batch) -> State:
        """The initial state, before any token."""
        x = self.embedding(batch.tokens[:, :0])
        return State({}, moving=DynamicCache([block.self_attention.remember_nothing(x) for block in self.decoder]))

    def step(self, tokens: Int[Tensor, "rows time"], state: State) -> tuple[Float[Tensor, "rows time words"], State]:
        """The logits after each of these tokens, which follow those of earlier steps."""
        x = self.embedding(tokens, state.moving.length, state.moving.most)
        entered = {window: state.moving.enter(tokens.shape[1], window) for window in dict.fromkeys(self.windows)}
        after = []
        for layer, (block, window) in enumerate(zip(self.decoder, self.windows, strict=True)):
            pasts, mask = entered[window]
            x, past = block.step(x, pasts[layer], mask)
            after.append(past)
        return self.output(self.decoder_norm(x)), State(state.fixed, state.moving.leave(after))

    @property
    def longest(self) -> int | None:
        """The maximum number of tokens that it can read and generate; none: it has no positions, so any number."""
        return self.config.max_length

    def init_weights(self) -> None:
        """N(0, 0.02) for every matrix, zero for every bias; smaller for the last linear layer of each sublayer."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        if self.config.scaled_residuals:
            for block in self.decoder:
                for last in (block.self_attention.output, block.feedforward.down_proj):
                    nn.init.normal_(last.weight, std=0.02 / math.sqrt(2 * self.config.layers))


def make_block(config: Config) -> Block:
    """One block: self-attention and the feed-forward network."""
    share, bias = config.dim // config.heads, config.biases != "none"
    return Block(
        SelfAttention(config.dim, config.heads, share, share, config.attention_dropout, bias),
        FeedForward(config.dim, config.hidden_dim or 4 * config.dim, config.activation, bias),
        norm=config.norm,
        dropout=config.dropout,
        bias=bias,
    )


def window_of(config: Config, layer: int) -> int | None:
    """The attention window of a layer; with GPT-3's alternation the first layer has none."""
    return config.window if config.windowed == "all" or layer % 2 else None


def shape(layers: int, dim: int, heads: int, max_length: int, **changes: Any) -> dict[str, Any]:
    """One row of a paper's table."""
    return {"layers": layers, "dim": dim, "heads": heads, "max_length": max_length, **changes}


SIZES: dict[str, dict[str, Any]] = {
    "tiny": shape(2, 32, 4, 64),
    "mini": shape(4, 128, 4, 256),
    "small": shape(6, 384, 6, 256),
    "gpt1": shape(12, 768, 12, 512, norm="post", scaled_residuals=False),
    "gpt2": shape(12, 768, 12, 1024),
    "gpt2-medium": shape(24, 1024, 16, 1024),
    "gpt2-large": shape(36, 1280, 20, 1024),
    "gpt2-xl": shape(48, 1600, 25, 1024),
    "gpt3-125m": shape(12, 768, 12, 2048),
    "gpt3-350m": shape(24, 1024, 16, 2048),
    "gpt3-760m": shape(24, 1536, 16, 2048),
    "gpt3-1.3b": shape(24, 2048, 16, 2048),
    "gpt3-2.7b": shape(32, 2560, 32, 2048),
    "gpt3-6.7b": shape(32, 4096, 32, 2048),
    "gpt3-13b": shape(40, 5120, 40, 2048),
    "gpt3-175b": shape(96, 12288, 96, 2048),
}
"""Named shapes, as changes to the defaults. GPT-3's are its table 2.1, but for two misprints: 24 heads of 128 do not
make 2048 (1.3b has 16), and 40 heads of 128 make 5120, not 5140 (13b). The paper does not say how wide its bands are,
so these sizes have none: `windowed = "alternate"` with a `window` adds them."""

HF_NAMES = {
    "embedding.own": ("wte", "tokens_embed"),
    "embedding.positions.table": ("wpe", "positions_embed"),
    "decoder.{}.self_norm": ("h.{}.ln_1", "h.{}.ln_1"),
    "decoder.{}.self_attention.query_key_value": ("h.{}.attn.c_attn", "h.{}.attn.c_attn"),
    "decoder.{}.self_attention.output": ("h.{}.attn.c_proj", "h.{}.attn.c_proj"),
    "decoder.{}.feedforward_norm": ("h.{}.ln_2", "h.{}.ln_2"),
    "decoder.{}.feedforward.up_proj": ("h.{}.mlp.c_fc", "h.{}.mlp.c_fc"),
    "decoder.{}.feedforward.down_proj": ("h.{}.mlp.c_proj", "h.{}.mlp.c_proj"),
    "decoder_norm": ("ln_f", None),
}
"""The names of the modules in `transformers`, for GPT-2 and for GPT-1; matrices named c_… are stored transposed."""

Model = GPT
