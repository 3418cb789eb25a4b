"""The position vectors of an exported model as a table of fixed size."""

from __future__ import annotations

from torch import Tensor, nn

from mallang.layers.embedding import Embedding
from mallang.layers.position import NoPositions, sinusoids
from mallang.models.transformer import Transformer

POSITIONS = 2048
"""Rows of the table of sinusoidal positions: with a table texts are bounded."""


def positions_of(model: Transformer) -> int:
    """How many tokens a text may have."""
    return model.config.max_length or POSITIONS


def position_table(embedding: Embedding) -> Tensor:
    """The vectors of all positions, which are added to the scaled vectors of the tokens."""
    if isinstance(table := embedding.positions.table, nn.Embedding):
        return table.weight
    if isinstance(embedding.positions, NoPositions):
        return embedding.positions.table.expand(POSITIONS, -1).clone()
    return sinusoids(POSITIONS, embedding.table.embedding_dim).to(embedding.table.weight.device)
