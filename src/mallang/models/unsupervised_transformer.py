"""Unsupervised translation with one Transformer over subwords that both languages share.

Phrase-Based & Neural Unsupervised Machine Translation. Lample, Ott, Conneau, Denoyer, Ranzato 2018, arXiv:1804.07755.

New against Lample's first model (lample.py): a Transformer, and one vocabulary of subwords learned from both languages
together. What they spell alike has one embedding, which is anchor enough between related languages: no word vectors,
no lexicon and no discriminator. All weights are shared but one vector per language, which is added to the embeddings.

    source → embedding + position + language → encoder blocks → memory
                                                                 ↓
    tokens → embedding + position + language → decoder blocks → hidden → logits

The two languages are numbered: 0 is that of the source, 1 that of the target. `forward`, `start` and `step` translate
from 0 to 1; `between` gives the other directions.

Where this differs from the paper: all layers are shared, as in its later versions, and the norm comes first, which
trains without careful warm-up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.errors import UserError
from mallang.layers.attention import CrossAttention, KeyValue, SelfAttention, additive, causal_mask, padding_mask
from mallang.layers.block import Block, Blocks
from mallang.layers.cache import DynamicCache, State
from mallang.layers.checks import check_sizes
from mallang.layers.direction import Direction, directions
from mallang.layers.embedding import Embedding
from mallang.layers.feedforward import FeedForward
from mallang.layers.head import Projection
from mallang.layers.initialization import xavier
from mallang.layers.position import SinusoidalPositions
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "Config", "Model", "UnsupervisedTransformer"]

TASK = "unsupervised_translation"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of the model; the defaults are the paper's."""

    layers: int = 4
    """Blocks of the encoder and of the decoder."""
    dim: int = 512
    """Size of the hidden vectors."""
    heads: int = 8
    """Attention heads of every layer."""
    hidden_dim: int = 2048
    """Hidden size of the feed-forward networks."""
    dropout: float = 0.1
    """Dropout after each sublayer and after the embedding."""
    tie_weights: Literal["all", "none"] = "all"
    """Tie the embeddings of both sides and the output projection; both languages have one vocabulary either way."""

    def __post_init__(self) -> None:
        check_sizes(self, "layers", "dim", "heads", "hidden_dim")
        if self.dim % self.heads or self.dim % 2:
            raise ValueError(f"dim {self.dim} must be even and a multiple of heads {self.heads}")


class UnsupervisedTransformer(nn.Module):
    """An encoder and a decoder of attention blocks, for two languages in both directions."""

    reads_source = True

    def __init__(self, config: Config, vocabulary: Vocabulary, source_vocabulary: Vocabulary) -> None:
        super().__init__()
        if vocabulary != source_vocabulary:
            raise UserError("both languages need one vocabulary of subwords", todo="text.shared=true")
        self.config, self.vocabulary, self.source_vocabulary = config, vocabulary, source_vocabulary
        positions, words, dim = SinusoidalPositions, len(vocabulary), config.dim
        self.source_embedding = Embedding(words, dim, positions(dim), config.dropout)
        self.languages = nn.Embedding(2, dim)
        self.encoder = Blocks(make_block(config) for _ in range(config.layers))
        self.encoder_norm = nn.LayerNorm(dim)
        tied = self.source_embedding if config.tie_weights == "all" else None
        self.embedding = Embedding(words, dim, positions(dim), config.dropout, tied)
        self.decoder = Blocks(make_block(config, cross=True) for _ in range(config.layers))
        self.decoder_norm = nn.LayerNorm(dim)
        self.head = Projection(dim, words, self.embedding.table if config.tie_weights == "all" else None)
        self.ways = directions(self, (source_vocabulary, vocabulary))
        self.init_weights()

    def forward(self, batch: Batch, source: int = 0, target: int = 1) -> Float[Tensor, "batch time dim"]:
        """The hidden vector of every position, from which its next token is predicted."""
        memory, memory_mask = self.read(batch, source)
        x = self.embedding(batch.tokens) + self.languages.weight[target]
        mask = causal_mask(x.shape[1], device=x.device)
        for block in self.decoder:
            x = block(x, mask, block.remember(memory), memory_mask)
        hidden: Tensor = self.decoder_norm(x)
        return hidden

    def read(
        self, batch: Batch, source: int
    ) -> tuple[Float[Tensor, "batch source dim"], Bool[Tensor, "batch 1 1 source"]]:
        """The encoder: the memory of the source, and its padding mask."""
        x = self.source_embedding(batch.source) + self.languages.weight[source]
        mask = padding_mask(batch.source_mask)
        for block in self.encoder:
            x = block(x, mask)
        return self.encoder_norm(x), mask

    def output(self, hidden: Float[Tensor, "*batch dim"], target: int = 1) -> Float[Tensor, "*batch words"]:
        """One logit per subword of both languages."""
        logits: Tensor = self.head(hidden)
        return logits

    def start(self, batch: Batch, source: int = 0, target: int = 1) -> State:
        """Encode the source and project its keys and values; the KV cache of the decoder is empty."""
        memory, mask = self.read(batch, source)
        remembered = [block.remember(memory).for_decoding() for block in self.decoder]
        nothing = [KeyValue(keys[:, :, :0], values[:, :, :0]) for keys, values in remembered]
        return State({"memory": remembered, "mask": additive(mask, remembered[0].keys)}, moving=DynamicCache(nothing))

    def step(
        self, tokens: Int[Tensor, "rows time"], state: State, target: int = 1
    ) -> tuple[Float[Tensor, "rows time words"], State]:
        """The logits after each of these tokens, which follow those of earlier steps."""
        x = self.embedding(tokens, state.moving.length, state.moving.most) + self.languages.weight[target]
        layers, mask = state.moving.enter(tokens.shape[1], None)
        after = []
        for block, memory, past in zip(self.decoder, state.fixed["memory"], layers, strict=True):
            x, past = block.step(x, past, mask, memory, state.fixed["mask"])
            after.append(past)
        return self.output(self.decoder_norm(x)), State(state.fixed, state.moving.leave(after))

    def between(self, source: int, target: int) -> Direction:
        """This model as a translator from one language to another, or to itself."""
        return self.ways[source, target]

    def input_embedding(self, source: int = 0) -> nn.Embedding:
        """The embedding of both languages."""
        return self.source_embedding.table

    def word_tables(self, language: int) -> list[nn.Embedding]:
        """None: both languages share one embedding."""
        return []

    def output_projection(self, target: int = 1) -> Projection:
        """The linear layer that `output` applies."""
        return self.head

    def init_weights(self) -> None:
        """Xavier for every matrix; N(0, 1/dim) for embeddings, which have variance one after the scaling by √dim."""
        xavier(self)
        nn.init.normal_(self.languages.weight)
        for module in self.modules():
            if isinstance(module, SelfAttention | CrossAttention):
                for matrix in module.input_weights():  # each by itself, though one matmul computes them all
                    nn.init.xavier_uniform_(matrix)


def make_block(config: Config, cross: bool = False) -> Block:
    """One block of the encoder, or with `cross` of the decoder."""
    shape = config.dim, config.heads, config.dim // config.heads, config.dim // config.heads
    return Block(
        SelfAttention(*shape),
        FeedForward(config.dim, config.hidden_dim, "relu"),
        CrossAttention(*shape) if cross else None,
        norm="pre",
        dropout=config.dropout,
    )


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 2, "dim": 32, "heads": 4, "hidden_dim": 64},
    "small": {"layers": 3, "dim": 256, "heads": 4, "hidden_dim": 1024},
    "base": {},
}
"""Named shapes, as changes to the defaults; base is the paper's."""

Model = UnsupervisedTransformer
