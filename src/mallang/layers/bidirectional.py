"""Parts of BERT and the encoders that follow it: embeddings, blocks without a causal mask, the masked LM head."""

from __future__ import annotations

from typing import NoReturn, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.errors import UserError
from mallang.kernels.varlen_attention import saves_padding
from mallang.layers.attention import Mask, SelfAttention, Texts, document_mask, padding_mask
from mallang.layers.block import Block, Blocks
from mallang.layers.dropout import Dropout
from mallang.layers.feedforward import ACTIVATIONS, Activation, FeedForward
from mallang.layers.head import Projection
from mallang.layers.linear import Linear
from mallang.layers.position import LearnedPositions, check_length, places_within


@runtime_checkable
class GivesLayers(Protocol):
    """An encoder that gives the vectors of tokens between all of its layers, for distillation.

    `encode` is both together: the layers after the first, and the text of the last one.
    """

    def layers_of(self, batch: Batch) -> list[Float[Tensor, "batch time dim"]]:
        """The vectors of the tokens before the first block, then after every block."""

    def text_vector(
        self, hidden: Float[Tensor, "batch time dim"], mask: Bool[Tensor, "batch time"]
    ) -> Float[Tensor, "batch pooled"]:
        """One vector of each text, from those of its tokens after the last block."""


class Embeddings(nn.Module):
    """dropout(norm(token + position + token type)); without token types where there are none (DistilBERT)."""

    def __init__(
        self,
        words: int,
        dim: int,
        max_length: int,
        *,
        token_types: int = 2,
        offset: int = 0,
        epsilon: float = 1e-12,
        dropout: float = 0.0,
    ) -> None:
        """`offset` is the row of the first position in its table."""
        super().__init__()
        self.max_length, self.offset = max_length, offset
        self.words = nn.Embedding(words, dim)
        self.positions = LearnedPositions(dim, max_length + offset)
        self.token_types = nn.Embedding(token_types, dim) if token_types else None
        self.norm = nn.LayerNorm(dim, epsilon)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        tokens: Int[Tensor, "batch time"],
        types: Int[Tensor, "batch time"] | None = None,
        packed: Int[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "batch time dim"]:
        """The vectors of the tokens; without types, or with a single one, all are of the first segment.

        In packed rows the positions of every text begin at 0.
        """
        check_length(tokens.shape[1], self.max_length)
        if packed is None:
            positions = self.positions(tokens.shape[1], self.offset)
        else:
            positions = self.positions.at(places_within(packed) + self.offset)
        summed = self.words(tokens) + positions
        if self.token_types is not None:
            is_single = types is None or self.token_types.num_embeddings == 1
            summed = summed + (self.token_types.weight[0] if is_single else self.token_types(types))
        x: Tensor = self.dropout(self.norm(summed))
        return x


class MaskedLMHead(nn.Module):
    """A linear layer with activation and norm, then the word embeddings as a decoder, with a bias of its own.

    The linear layer leads from the hidden vectors to the size of the embeddings.
    """

    def __init__(self, dim: int, words: nn.Embedding, activation: Activation, epsilon: float) -> None:
        super().__init__()
        self.transform = Linear(dim, words.embedding_dim)
        self.activation = ACTIVATIONS[activation]
        self.norm = nn.LayerNorm(words.embedding_dim, epsilon)
        self.decoder = Projection(words.embedding_dim, words.num_embeddings, words, bias=True)

    def forward(self, hidden: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch words"]:
        """One logit per word."""
        logits: Tensor = self.decoder(self.norm(self.activation(self.transform(hidden))))
        return logits


def make_block(
    dim: int,
    heads: int,
    hidden_dim: int | None,
    *,
    activation: Activation,
    dropout: float,
    attention_dropout: float,
    epsilon: float,
) -> Block:
    """One block: self-attention and the feed-forward network (default: 4 · dim), each followed by a norm."""
    share = dim // heads
    return Block(
        SelfAttention(dim, heads, share, share, attention_dropout),
        FeedForward(dim, hidden_dim or 4 * dim, activation),
        norm="post",
        dropout=dropout,
        epsilon=epsilon,
    )


def own_text(batch: Batch) -> Mask:
    """The mask in which tokens see all tokens of their own text: neither padding nor texts packed beside theirs."""
    return padding_mask(batch.mask) if batch.segments is None else document_mask(batch.segments)


def through_blocks(
    blocks: Blocks, x: Float[Tensor, "batch time dim"], batch: Batch
) -> list[Float[Tensor, "batch time dim"]]:
    """The vectors of tokens before the first block and after every block, without padding where that pays.

    Padding then has zeros after every block; nothing reads it.
    """
    if not pays_to_unpad(blocks, batch):
        layers, mask = [x], own_text(batch)
        for block in blocks:
            layers.append(block(layers[-1], mask))
        return layers
    places = batch.mask.flatten().nonzero()[:, 0]
    texts = Texts(F.pad(batch.lengths.cumsum(0), (1, 0)).to(torch.int32), batch.tokens.shape[1])
    layers, hidden = [x], x.flatten(0, 1)[places][None]
    for block in blocks:
        hidden = block(hidden, texts)
        whole = hidden.new_zeros(batch.tokens.numel(), hidden.shape[2])
        layers.append(whole.index_copy(0, places, hidden[0]).view(*batch.tokens.shape, -1))
    return layers


def pays_to_unpad(blocks: Blocks, batch: Batch) -> bool:
    """Whether to compute a batch without padding; attention that is observed is that of padded rows."""
    if batch.segments is not None or any(block.self_attention.recorders for block in blocks):
        return False
    return saves_padding(batch.tokens, batch.lengths)


def normal_weights(model: nn.Module, deviation: float = 0.02) -> None:
    """N(0, 0.02) for every matrix, zero for every bias."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=deviation)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


def missing(model: nn.Module, part: str, todo: str) -> NoReturn:
    """Refuse what needs a part that a model was built without."""
    raise UserError(f"this {type(model).__name__} was built without its {part}", todo=f"model.{todo}")
