"""A GPT with the components of later language models, each of which can be switched off.

modded-nanogpt (Jordan et al. 2024, github.com/KellerJordan/modded-nanogpt) combined them and trained GPT-2's smallest
size to the same loss on a fraction of the tokens. New against GPT, each with the option that reverts it:

    RoPE                 rotary position embeddings rotate queries and keys, nothing is added to the tokens; Su et al.
                         2021, arXiv:2104.09864; positions = "learned"
    QK-norm              queries and keys are normalized, so that attention scores are bounded; Henry et al. 2020,
                         arXiv:2010.04245; qk_norm = false
    RMSNorm              vectors are divided by their root mean square, without centering and learned gain; Zhang and
                         Sennrich 2019, arXiv:1910.07467; also right after the embedding; norm = "layer"
    ReLU²                So et al. 2021, arXiv:2109.08668; activation = "gelu-tanh"
    untied output        embedding and output projection have separate weights; tie_weights = true
    zero initialization  the output projection and the last linear layer of every sublayer start at zero: at first all
                         words are equally probable and every block is the identity (Zhang et al. 2019,
                         arXiv:1901.09321); zero_init = false
    no biases            as in PaLM (Chowdhery et al. 2022, arXiv:2204.02311)
    logit soft-capping   logits = cap · tanh(logits / cap), as in Gemma 2 (arXiv:2408.00118), if soft_cap is given

Its optimizer is Muon: `optimizer.name = "muon"`.

    tokens → embedding → norm → blocks (norm → attention, norm → feed-forward) → norm → hidden → logits
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.attention import KeyValue, LayerCache, Mask, SelfAttention, causal_mask, segment_mask
from mallang.layers.cache import DynamicCache, State
from mallang.layers.checks import check_sizes
from mallang.layers.dropout import Dropout
from mallang.layers.feedforward import FeedForward
from mallang.layers.head import Capped, Projection
from mallang.layers.position import LearnedPositions, RotaryPositions, check_length, places_within, rotate
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "Config", "Model", "ModernGPT"]

TASK = "language_modeling"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of a modern GPT; the defaults are modded-nanogpt's, at the size of the smallest GPT-2."""

    layers: int = 12
    """Blocks."""
    dim: int = 768
    """Size of the hidden vectors (d_model)."""
    heads: int = 6
    """Attention heads of every layer."""
    hidden_dim: int | None = None
    """Hidden size of the feed-forward networks; default: 4 · dim."""
    max_length: int = 1024
    """The maximum number of tokens of a text: predictions degrade beyond the length of training."""
    dropout: float = 0.0
    """Dropout after the embedding, after each sublayer and before the logits."""
    attention_dropout: float = 0.0
    """Dropout on attention weights."""
    window: int | None = None
    """Sliding-window attention: how many tokens back a token attends to; default: all of them."""
    positions: Literal["rotary", "learned", "none"] = "rotary"
    """Rotary position embeddings (RoPE), learned position embeddings, or none."""
    qk_norm: bool = True
    """Normalize queries and keys before attention (QK-norm)."""
    norm: Literal["rms", "layer", "none"] = "rms"
    """RMSNorm without a gain, layer normalization with a learned gain, or no norm."""
    activation: Literal["relu-squared", "relu", "gelu", "gelu-tanh"] = "relu-squared"
    """The non-linearity of the feed-forward networks."""
    tie_weights: bool = False
    """Tie the embedding and the output projection."""
    zero_init: bool = True
    """Initialize the output projection, unless it is tied, and the last linear layer of every sublayer with zeros."""
    soft_cap: float | None = None
    """Logit soft-capping: logits are squashed into ±soft_cap, such as 15; default: no cap."""

    def __post_init__(self) -> None:
        sizes = "layers", "dim", "heads", "hidden_dim", "max_length"
        check_sizes(self, *sizes, dropouts=("dropout", "attention_dropout"))
        if self.dim % self.heads:
            raise ValueError(f"dim {self.dim} cannot be divided among {self.heads} heads; change one of them")
        if self.positions == "rotary" and self.dim // self.heads % 2:
            raise ValueError(f"rotary positions rotate pairs, but a head of {self.dim // self.heads} values is odd")
        if self.window is not None and self.window < 0:
            raise ValueError(f"window must be at least 0, but is {self.window}")
        if self.soft_cap is not None and self.soft_cap <= 0:
            raise ValueError(f"soft_cap must be above 0, but is {self.soft_cap}")


class ModernGPT(nn.Module):
    """A stack of modern decoder blocks with causal self-attention."""

    reads_source = False
    reads_segments = True
    """Documents that are packed into one row do not attend to each other."""

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.embedding = nn.Embedding(len(vocabulary), config.dim)
        learned, rotary = config.positions == "learned", config.positions == "rotary"
        self.positions = LearnedPositions(config.dim, config.max_length) if learned else None
        # A table that is long enough from the start never grows in a captured step; a cache may exceed max_length.
        self.angles = RotaryPositions(config.dim // config.heads, max(1024, config.max_length)) if rotary else None
        self.dropout = Dropout(config.dropout)
        self.embedding_norm = make_norm(config)
        self.decoder = ModernBlocks(ModernBlock(config) for _ in range(config.layers))
        self.decoder_norm = make_norm(config)
        head = Projection(config.dim, len(vocabulary), self.embedding if config.tie_weights else None)
        self.head = head if config.soft_cap is None else Capped(head, config.soft_cap)
        self.init_weights()

    def forward(self, batch: Batch) -> Float[Tensor, "batch time dim"]:
        """The hidden vector of every position, from which its next token is predicted."""
        time, window, segments = batch.tokens.shape[1], self.config.window, batch.segments
        check_length(time, self.config.max_length)
        mask = causal_mask(time, 0, window, batch.tokens.device) if segments is None else segment_mask(segments, window)
        x, angles = self.enter(batch.tokens, segments=segments)
        for block in self.decoder:
            x, _ = block(x, mask, angles)
        hidden: Tensor = self.dropout(self.decoder_norm(x))
        return hidden

    def enter(
        self,
        tokens: Int[Tensor, "rows time"],
        start: int | Int[Tensor, "*_"] = 0,
        most: int | None = None,
        segments: Int[Tensor, "rows time"] | None = None,
    ) -> tuple[Float[Tensor, "rows time dim"], Float[Tensor, "*_ time half 2"] | None]:
        """The embeddings of tokens, and the rotation angles of their positions.

        Angles need not restart in each segment of a packed row: attention depends on their differences only.
        """
        x: Tensor = self.embedding(tokens)
        if self.positions is not None:
            if segments is None:
                x = x + self.positions(tokens.shape[1], start, most)
            else:
                x = x + self.positions.at(places_within(segments))
        angles = None if self.angles is None else self.angles(tokens.shape[1], start, most).to(x.dtype)
        return self.dropout(self.embedding_norm(x)), angles

    def output(self, hidden: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch words"]:
        """One logit per word."""
        logits: Tensor = self.head(hidden)
        return logits

    def input_embedding(self) -> nn.Embedding:
        """The embedding of tokens."""
        return self.embedding

    def output_projection(self) -> Projection | None:
        """The linear layer that `output` applies, unless its logits are capped."""
        return self.head if isinstance(self.head, Projection) else None

    def start(self, batch: Batch) -> State:
        """The initial state, before any token."""
        x = self.embedding(batch.tokens[:, :0])
        return State({}, moving=DynamicCache([block.self_attention.remember_nothing(x) for block in self.decoder]))

    def step(self, tokens: Int[Tensor, "rows time"], state: State) -> tuple[Float[Tensor, "rows time words"], State]:
        """The logits after each of these tokens, which follow those of earlier steps."""
        past = state.moving
        x, angles = self.enter(tokens, past.length, past.most)
        layers, mask = past.enter(tokens.shape[1], self.config.window)
        after = []
        for block, layer in zip(self.decoder, layers, strict=True):
            x, seen = block(x, mask, angles, layer)
            after.append(seen)
        return self.output(self.decoder_norm(x)), State(state.fixed, past.leave(after))

    @property
    def longest(self) -> int | None:
        """The maximum number of tokens that it can read and generate."""
        return self.config.max_length

    def init_weights(self) -> None:
        """Uniform for every matrix, N(0, 1) for embeddings (0.02 if tied), zeros where `zero_init` says so."""
        for module in self.modules():
            if isinstance(module, nn.Linear):  # of standard deviation 0.5 / √inputs, as in modded-nanogpt
                bound = 0.5 * math.sqrt(3 / module.in_features)
                nn.init.uniform_(module.weight, -bound, bound)
        table = 0.02 if self.config.tie_weights else 1.0
        for part in (self.embedding, *([] if self.positions is None else [self.positions.table])):
            nn.init.normal_(part.weight, std=table)
        if self.config.zero_init:
            for block in self.decoder:
                nn.init.zeros_(block.self_attention.output.weight)
                nn.init.zeros_(block.feedforward.down_proj.weight)
            if not self.config.tie_weights:
                nn.init.zeros_(self.head.weight)


class ModernBlock(nn.Module):
    """Pre-norm self-attention and feed-forward network, each with a residual connection."""

    is_recomputable = True

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.self_norm = make_norm(config)
        self.self_attention = RotaryAttention(config)
        self.feedforward_norm = make_norm(config)
        hidden_dim = config.hidden_dim or 4 * config.dim
        self.feedforward = FeedForward(config.dim, hidden_dim, config.activation, bias=False)
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        x: Float[Tensor, "rows time dim"],
        mask: Mask,
        angles: Float[Tensor, "*_ time half 2"] | None,
        past: LayerCache | None = None,
    ) -> tuple[Float[Tensor, "rows time dim"], KeyValue]:
        """The new x, and the keys and values of all positions, cached ones included."""
        attended, seen = self.self_attention(self.self_norm(x), mask, past, angles)
        x = x + self.dropout(attended)
        return x + self.dropout(self.feedforward(self.feedforward_norm(x))), seen


class ModernBlocks(nn.ModuleList):
    """A stack of blocks."""

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[ModernBlock]: ...


class RotaryAttention(SelfAttention):
    """Self-attention with QK-norm and rotary position embeddings."""

    def __init__(self, config: Config) -> None:
        share = config.dim // config.heads
        super().__init__(config.dim, config.heads, share, share, config.attention_dropout, bias=False)
        self.normed = config.qk_norm

    def forward(
        self,
        x: Float[Tensor, "rows time dim"],
        mask: Mask = None,
        past: LayerCache | None = None,
        angles: Float[Tensor, "*_ time half 2"] | None = None,
    ) -> tuple[Float[Tensor, "rows time dim"], KeyValue]:
        """The new x, and the keys and values of all positions, cached ones included; the keys are already rotated."""
        folded = x if past is None else x.reshape(len(past.keys), -1, x.shape[-1])
        queries, keys, values = self.project(folded)
        if self.normed:
            queries, keys = rms_norm(queries), rms_norm(keys)
        if angles is not None:  # hypotheses that share a cache are at the same position, with the same angle
            queries, keys = rotate(queries, angles), rotate(keys, angles)
        seen = KeyValue(keys, values) if past is None else past.extend(keys, values)
        return self.attend(queries, *seen, mask).view_as(x), seen


class RMSNorm(nn.Module):
    """RMSNorm without a learned gain."""

    def forward(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """The new x."""
        return rms_norm(x)


def rms_norm(x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
    """RMSNorm without a gain: every vector scaled to length √dim."""
    return nn.functional.rms_norm(x, x.shape[-1:], eps=torch.finfo(torch.float32).eps).to(x.dtype)


def make_norm(config: Config) -> nn.Module:
    """The norm of vectors between the layers."""
    if config.norm == "none":
        return nn.Identity()
    return RMSNorm() if config.norm == "rms" else nn.LayerNorm(config.dim, bias=False)


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 2, "dim": 32, "heads": 4, "max_length": 64, "zero_init": False},
    "mini": {"layers": 4, "dim": 128, "heads": 4, "max_length": 256},
    "small": {"layers": 6, "dim": 384, "heads": 6, "max_length": 256},
    "base": {},
    "medium": {"layers": 16, "dim": 1024, "heads": 8},
}
"""Named shapes, as changes to the defaults; base and medium are modded-nanogpt's. The tiny one, made for tests, is
not initialized with zeros."""

Model = ModernGPT
