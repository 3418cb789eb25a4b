"""TransE: a relation of a knowledge graph is a translation in a vector space, head + relation ≈ tail.

Translating Embeddings for Modeling Multi-relational Data. Bordes, Usunier, García-Durán, Weston, Yakhnenko 2013,
NeurIPS 26 (no arXiv paper). The three losses of tasks/link_prediction.py are those of Bordes et al., of RotatE (Sun,
Deng, Nie, Tang 2019, arXiv:1902.10197) and of Ruffinelli, Broscheit, Gemulla 2020 (ICLR, LibKGE).

New against word2vec.py: what is learned is a graph, and not text. Entities and relations have vectors, and one distance
scores every triple:

    score of a tail    −‖head + relation − tail‖     L1 or L2
    score of a head    the same triple, or with `reciprocal` −‖tail + relation⁻¹ − head‖, for a relation of its own
                       (Lacroix, Usunier, Obozinski 2018, arXiv:1806.07297)

    entity, relation → query → distance to every candidate

The distances by L2 are a matmul, ‖q‖² + ‖c‖² − 2 q·c, so that thousands of candidates cost little.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.kernels.distances import SMALLEST, distances
from mallang.layers.checks import check_sizes
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "Config", "Model", "TransE"]

TASK = "link_prediction"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The size of the vectors, and the distance."""

    dim: int = 128
    """The size of a vector."""
    norm: Literal[1, 2] = 2
    """The distance: L1 or L2."""
    reciprocal: bool = False
    """Whether every relation has a second vector for the way back, from tail to head."""
    unit_entities: bool = False
    """Whether vectors of entities are scaled to length 1, as in the paper."""
    initial: Literal["normal", "uniform", "xavier"] = "normal"
    """The distribution of the vectors at the start; xavier: normal, with variance 2 / (rows + dim) in each table."""
    scale: float = 0.1
    """The standard deviation of the vectors at the start, or with uniform the largest value."""
    dropout: float = 0.0
    """Dropout on the query."""
    entity_dropout: float = 0.0
    """Dropout on the vectors of entities, those of candidates too."""

    def __post_init__(self) -> None:
        check_sizes(self, "dim")
        if not self.scale > 0:
            raise ValueError(f"scale must be above 0, but is {self.scale}")
        if self.initial == "xavier" and self.scale != 0.1:
            raise ValueError(f"scale = {self.scale} has no effect on xavier")
        for name in ("dropout", "entity_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must lie between 0 and 1, but is {getattr(self, name)}")


class TransE(nn.Module):
    """One vector of every entity, and one or two of every relation."""

    reads_source = False
    candidates: Int[Tensor, " entities"]

    def __init__(self, config: Config, vocabulary: Vocabulary, relations: int) -> None:
        super().__init__()
        self.config, self.vocabulary, self.relations = config, vocabulary, relations
        self.embedding = nn.Embedding(len(vocabulary), config.dim)
        self.relation = nn.Embedding(relations * (2 if config.reciprocal else 1), config.dim)
        for table in (self.embedding, self.relation):
            initialize(table.weight, config)
        self.dropout, self.entity_dropout = nn.Dropout(config.dropout), nn.Dropout(config.entity_dropout)
        ids = [number for number in range(len(vocabulary)) if number not in vocabulary.specials]
        self.register_buffer("candidates", torch.tensor(ids, dtype=torch.long), persistent=False)

    def forward(self, batch: Batch) -> Float[Tensor, "batch time dim"]:
        """The vectors of entities."""
        return self.entities(batch.tokens)

    def entities(self, numbers: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape dim"]:
        """The vectors of entities by their ids."""
        found: Tensor = self.entity_dropout(self.embedding(numbers).float())
        return F.normalize(found, dim=-1) if self.config.unit_entities else found

    def vectors(self) -> Float[Tensor, "words dim"]:
        """The vector of every entity, by its id."""
        weight = self.embedding.weight
        return F.normalize(weight, dim=-1) if self.config.unit_entities else weight

    def candidate_ids(self) -> Int[Tensor, " entities"]:
        """The ids of all entities: of all tokens that are not special."""
        return self.candidates

    def input_embedding(self) -> nn.Embedding:
        """The table of the vectors."""
        return self.embedding

    def queries(
        self, vectors: Float[Tensor, "asked dim"], relations: Int[Tensor, " asked"], *, heads: bool
    ) -> Float[Tensor, "asked dim"]:
        """Where the tail of each entity and relation should lie; with `heads` where the head should."""
        if not heads:
            return self.dropout(vectors + self.relation(relations).float())  # type: ignore[no-any-return]
        if self.config.reciprocal:
            return self.dropout(vectors + self.relation(relations + self.relations).float())  # type: ignore[no-any-return]
        return self.dropout(vectors - self.relation(relations).float())  # type: ignore[no-any-return]

    def scores(
        self, queries: Float[Tensor, "asked dim"], candidates: Float[Tensor, "candidates dim"]
    ) -> Float[Tensor, "asked candidates"]:
        """The score of every candidate for every query: minus their distance."""
        return -distances(queries, candidates, self.config.norm)

    def pair_scores(
        self, queries: Float[Tensor, "asked dim"], answers: Float[Tensor, "asked dim"]
    ) -> Float[Tensor, " asked"]:
        """The score of one answer for each query."""
        if self.config.norm == 1:
            return -(queries - answers).abs().sum(dim=1)
        return -(queries - answers).square().sum(dim=1).clamp_min(SMALLEST).sqrt()

    def answer_scores(
        self, entities: Int[Tensor, " asked"], relations: Int[Tensor, " asked"], *, heads: bool
    ) -> Float[Tensor, "asked words"]:
        """The score of every entity, by its id, as the tail of an entity and a relation, or as the head."""
        return self.scores(self.queries(self.entities(entities), relations, heads=heads), self.vectors())


def initialize(weight: Tensor, config: Config) -> None:
    """Draw the values of a table."""
    if config.initial == "uniform":
        nn.init.uniform_(weight, -config.scale, config.scale)
    elif config.initial == "xavier":
        nn.init.xavier_normal_(weight)
    else:
        nn.init.normal_(weight, std=config.scale)


SIZES: dict[str, dict[str, Any]] = {"tiny": {"dim": 8}, "base": {}}
"""Named shapes, as changes to the defaults."""

Model = TransE
