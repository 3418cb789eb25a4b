"""The Transformer: translation with attention alone, no recurrence.

Attention Is All You Need. Vaswani, Shazeer, Parmar, Uszkoreit, Jones, Gomez, Kaiser, Polosukhin 2017, arXiv:1706.03762.

New against Bahdanau's attention model: no recurrent state at all. Encoder positions attend to each other, decoder
positions attend to earlier ones and to the encoder, with several heads, so that all words of a sentence are trained in
parallel; position vectors are added to the embeddings.

    source → embedding + position → encoder blocks → memory
                                                       ↓
    tokens → embedding + position → decoder blocks (causal, cross) → hidden → logits

Where this differs from the paper: its formulas of the projections have no biases; here they have them, initialized with
zeros, as in every later implementation. `norm = "pre"` moves the norm to the input of each sublayer and adds one at the
end of each stack, which trains without careful warm-up. `window` is the restricted self-attention of the paper's table
1. `norm = "none"` and `positions = "none"` are ablations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.attention import CrossAttention, KeyValue, SelfAttention, additive, causal_mask, padding_mask
from mallang.layers.block import Block, Blocks
from mallang.layers.cache import DynamicCache, State
from mallang.layers.checks import check_shared, check_sizes
from mallang.layers.embedding import Embedding
from mallang.layers.feedforward import FeedForward
from mallang.layers.head import Projection
from mallang.layers.initialization import xavier
from mallang.layers.position import LearnedPositions, NoPositions, SinusoidalPositions
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "Config", "Model", "Transformer"]

TASK = "translation"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of a Transformer; the defaults are the paper's base model."""

    layers: int = 6
    """Blocks of the encoder, and of the decoder unless `decoder_layers` says otherwise."""
    decoder_layers: int | None = None
    """Blocks of the decoder; default: as many as the encoder has."""
    dim: int = 512
    """Size of the hidden vectors (d_model)."""
    heads: int = 8
    """Attention heads of every layer."""
    hidden_dim: int = 2048
    """Hidden size of the feed-forward networks."""
    key_dim: int | None = None
    """Size of a query and of a key in one head; default: dim / heads."""
    value_dim: int | None = None
    """Size of a value in one head; default: dim / heads."""
    dropout: float = 0.1
    """Dropout after each sublayer and after the embedding."""
    attention_dropout: float = 0.0
    """Dropout on attention weights; the paper drops none."""
    norm: Literal["post", "pre", "none"] = "post"
    """Layer normalization after each sublayer, as in the paper, before it, or nowhere."""
    positions: Literal["sinusoidal", "learned", "none"] = "sinusoidal"
    """Sinusoidal position encodings, for any length; learned ones, up to `max_length`; or none."""
    max_length: int | None = None
    """The maximum number of tokens of a text; learned positions need it, sinusoidal ones have no limit."""
    window: int | None = None
    """Restricted self-attention: how many positions away a token attends to; default: all of them."""
    tie_weights: Literal["all", "target", "none"] = "all"
    """Tie both embeddings and the output projection (needs one vocabulary), those of the decoder, or none."""
    activation: Literal["relu", "gelu"] = "relu"
    """The non-linearity of the feed-forward networks."""

    def __post_init__(self) -> None:
        sizes = "layers", "decoder_layers", "dim", "heads", "hidden_dim", "key_dim", "value_dim", "max_length"
        check_sizes(self, *sizes, dropouts=("dropout", "attention_dropout"))
        if self.window is not None and self.window < 0:
            raise ValueError(f"window must be at least 0, but is {self.window}")
        if self.dim % self.heads and (self.key_dim is None or self.value_dim is None):
            raise ValueError(
                f"dim {self.dim} cannot be divided among {self.heads} heads; change one, or give key_dim and value_dim"
            )
        if self.positions == "sinusoidal" and self.dim % 2:
            raise ValueError(f"sinusoidal positions come in pairs of sine and cosine, but dim {self.dim} is odd")
        if self.positions != "learned" and self.max_length is not None:
            raise ValueError(f"max_length {self.max_length} has no effect: {self.positions} positions have no limit")
        if self.positions == "learned" and self.max_length is None:
            raise ValueError("learned positions need max_length, the maximum number of tokens of a text")


class Transformer(nn.Module):
    """An encoder and a decoder of attention blocks."""

    reads_source = True

    def __init__(self, config: Config, vocabulary: Vocabulary, source_vocabulary: Vocabulary) -> None:
        super().__init__()
        check_shared(config.tie_weights, vocabulary, source_vocabulary)
        self.config, self.vocabulary, self.source_vocabulary = config, vocabulary, source_vocabulary
        self.source_embedding = Embedding(len(source_vocabulary), config.dim, make_positions(config), config.dropout)
        self.encoder = Blocks(make_block(config) for _ in range(config.layers))
        self.encoder_norm = make_final_norm(config)
        tied = self.source_embedding if config.tie_weights == "all" else None
        self.embedding = Embedding(len(vocabulary), config.dim, make_positions(config), config.dropout, tied)
        self.decoder = Blocks(make_block(config, cross=True) for _ in range(config.decoder_layers or config.layers))
        self.decoder_norm = make_final_norm(config)
        self.head = Projection(
            config.dim, len(vocabulary), None if config.tie_weights == "none" else self.embedding.table
        )
        self.init_weights()

    def forward(self, batch: Batch) -> Float[Tensor, "batch time dim"]:
        """The hidden vector of every position, from which its next token is predicted."""
        memory, memory_mask = self.read(batch)
        x = self.embedding(batch.tokens)
        mask = causal_mask(x.shape[1], window=self.config.window, device=x.device)
        for block in self.decoder:
            x = block(x, mask, block.remember(memory), memory_mask)
        hidden: Tensor = self.decoder_norm(x)
        return hidden

    def read(self, batch: Batch) -> tuple[Float[Tensor, "batch source dim"], Bool[Tensor, "batch 1 1 source"]]:
        """The encoder: the memory of the source, and its padding mask."""
        x = self.source_embedding(batch.source)
        mask = padding_mask(batch.source_mask, self.config.window)
        for block in self.encoder:
            x = block(x, mask)
        return self.encoder_norm(x), padding_mask(batch.source_mask)

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
        """Encode the source and project its keys and values; the KV cache of the decoder is empty."""
        memory, mask = self.read(batch)
        remembered = [block.remember(memory).for_decoding() for block in self.decoder]
        nothing = [KeyValue(keys[:, :, :0], values[:, :, :0]) for keys, values in remembered]
        return State({"memory": remembered, "mask": additive(mask, remembered[0].keys)}, moving=DynamicCache(nothing))

    def step(self, tokens: Int[Tensor, "rows time"], state: State) -> tuple[Float[Tensor, "rows time words"], State]:
        """The logits after each of these tokens, which follow those of earlier steps."""
        x = self.embedding(tokens, state.moving.length, state.moving.most)
        layers, mask = state.moving.enter(tokens.shape[1], self.config.window)
        after = []
        for block, memory, past in zip(self.decoder, state.fixed["memory"], layers, strict=True):
            x, past = block.step(x, past, mask, memory, state.fixed["mask"])
            after.append(past)
        return self.output(self.decoder_norm(x)), State(state.fixed, state.moving.leave(after))

    @property
    def longest(self) -> int | None:
        """The maximum number of tokens that it can generate; None without a limit."""
        return self.config.max_length

    def init_weights(self) -> None:
        """Xavier for every matrix; N(0, 1/dim) for embeddings, which have variance one after the scaling by √dim."""
        xavier(self)
        for module in self.modules():
            if isinstance(module, SelfAttention | CrossAttention):
                for matrix in module.input_weights():  # each by itself, though one matmul computes them all
                    nn.init.xavier_uniform_(matrix)


def make_positions(config: Config) -> SinusoidalPositions | LearnedPositions | NoPositions:
    """The position encodings of one side."""
    if config.max_length is not None:
        return LearnedPositions(config.dim, config.max_length)
    return SinusoidalPositions(config.dim) if config.positions == "sinusoidal" else NoPositions(config.dim)


def make_block(config: Config, cross: bool = False) -> Block:
    """One block of the encoder, or with `cross` of the decoder."""
    share = config.dim // config.heads
    shape = config.dim, config.heads, config.key_dim or share, config.value_dim or share, config.attention_dropout
    return Block(
        SelfAttention(*shape),
        FeedForward(config.dim, config.hidden_dim, config.activation),
        CrossAttention(*shape) if cross else None,
        norm=config.norm,
        dropout=config.dropout,
    )


def make_final_norm(config: Config) -> nn.Module:
    """The norm at the end of a stack of pre-norm blocks, whose residual sum is not normalized; others need none."""
    return nn.LayerNorm(config.dim) if config.norm == "pre" else nn.Identity()


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 2, "dim": 32, "heads": 4, "hidden_dim": 64},
    "small": {"layers": 3, "dim": 256, "heads": 8, "hidden_dim": 1024},
    "base": {},
    "big": {"dim": 1024, "heads": 16, "hidden_dim": 4096, "dropout": 0.3},
}
"""Named shapes, as changes to the defaults; base and big are the paper's (table 3)."""

Model = Transformer
