"""KagNet: a choice is judged by the paths of a knowledge graph that lead to it from the concepts of the question.

KagNet: Knowledge-Aware Graph Networks for Commonsense Reasoning. Lin, Chen, Chen and Ren 2019, arXiv:1909.02151.

New against an encoder of question and choice alone (bert with a head): the concepts that both mention are found in a
graph such as ConceptNet, and the paths between them are read beside the text. Which paths and which pairs of concepts
count is attention, so that one sees on what a choice rests.

    question and choice → text encoder → statement s ───────────────────────────────────────┐
    concepts → embedding → graph convolution → h                                            │
    path k of concepts i, j:  LSTM over its edges [h_from; relation; h_to] → p_ijk          │
    T_ij = relu(W [s; h_i; h_j])       α_ijk = softmax_k T_ij W1 p_ijk     R_ij = Σ α p      ↓
                                       β_ij  = softmax_ij s W2 T_ij        g = Σ β [R_ij; T_ij] → relu(W [g; s]) → score

The text encoder is given: a pre-trained one, frozen or trained along, or else a bidirectional LSTM of its own, as the
paper has it without pre-training. The task grounds the concepts and finds the paths (data/schema_graphs.py), and puts
the last layer of the MLP on top, which gives the score.

Where this differs from the paper: pairs of concepts without a path do not count; the LSTM reads in one direction; the
statement also stands beside g, as in the authors' code; a softmax over the choices takes the place of a sigmoid for
each. Without a graph only the statement is left: a control.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.errors import UserError
from mallang.layers.checks import check_sizes
from mallang.layers.dropout import Dropout
from mallang.layers.encoded import Encoded, EncoderDims
from mallang.layers.frozen import Frozen
from mallang.layers.graph import BilinearAttention, GraphConvolution, GraphSizes, adjacency_of
from mallang.layers.initialization import xavier
from mallang.layers.recurrent import BidirectionalReader, Reader
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "Config", "KagNet", "Model"]

TASK = "graph_choice"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of a KagNet."""

    concept_dim: int = 100
    """Size of the vector of a concept."""
    relation_dim: int = 100
    """Size of the vector of a relation; forward and backward it has one each."""
    gcn_layers: int = 2
    """Graph convolutions; 0: paths read the vectors of concepts as they are."""
    gcn_dim: int = 100
    """Size of the vector of a concept after graph convolution."""
    path_dim: int = 128
    """Size of the LSTM over the edges of a path."""
    pair_dim: int = 128
    """Size of the vector of a pair of concepts."""
    dim: int = 128
    """Size of the hidden layer over the graph and the statement."""
    embedding_dim: int = 100
    """Own text encoder: size of word embeddings."""
    statement_dim: int = 128
    """Own text encoder: size of the statement, half of it from each direction of the LSTM."""
    freeze_concepts: bool = False
    """Keep the vectors of concepts as they start: sensible where given.graph starts them."""
    dropout: float = 0.2
    """Dropout on statements, on concepts and before the score."""

    def __post_init__(self) -> None:
        sizes = ("concept_dim", "relation_dim", "gcn_dim", "path_dim", "pair_dim", "dim", "embedding_dim")
        check_sizes(self, *sizes, "statement_dim")
        if self.gcn_layers < 0:
            raise ValueError(f"gcn_layers must not be negative, but is {self.gcn_layers}")
        if self.statement_dim % 2:
            raise ValueError(f"statement_dim is that of two directions together, but {self.statement_dim} is odd")


class KagNet(nn.Module):
    """Question, choice and the paths between their concepts → one vector, from which the score follows."""

    reads_source = False

    def __init__(
        self,
        config: Config,
        vocabulary: Vocabulary,
        graph: GraphSizes | None = None,
        encoder: nn.Module | None = None,
    ) -> None:
        """`encoder` obeys the contract of encoders and gives the statement; it may be `Frozen`."""
        super().__init__()
        self.config, self.vocabulary, self.graph = config, vocabulary, graph
        self.encoder = StatementLSTM(config, len(vocabulary)) if encoder is None else encoder
        of_text = text_encoder(self.encoder).encoder_dims().pooled
        self.dropout = Dropout(config.dropout)
        self.paths = None if graph is None else PathReader(config, graph, of_text)
        self.joint = nn.Linear(of_text + (0 if self.paths is None else self.paths.dim), config.dim)
        nn.init.xavier_uniform_(self.joint.weight)

    def forward(self, batch: Batch) -> Float[Tensor, "batch dim"]:
        """The vector of every choice beside its question."""
        return self.encode(batch).pooled

    def encode(self, batch: Batch) -> Encoded:
        """The hidden layer of the MLP over graph and statement; there are no vectors of tokens."""
        statement = self.dropout(self.statement(batch))
        parts = [statement] if self.paths is None else [self.paths(statement, batch), statement]
        hidden = F.relu(self.joint(torch.cat(parts, dim=-1)))
        return Encoded(layers=[], mask=batch.mask, pooled=self.dropout(hidden))

    def statement(self, batch: Batch) -> Float[Tensor, "batch statement"]:
        """The vector of question and choice as a text: as it was computed before, or from the text encoder."""
        if batch.statements is not None:
            return batch.statements
        with torch.set_grad_enabled(torch.is_grad_enabled() and not isinstance(self.encoder, Frozen)):
            found: Encoded = text_encoder(self.encoder).encode(batch)
        return found.pooled

    def encoder_dims(self) -> EncoderDims:
        """The sizes of what `encode` gives."""
        return EncoderDims(pooled=self.config.dim, token=None)

    @torch.no_grad()
    def start_concepts(self, vectors: Float[Tensor, "concepts dim"]) -> None:
        """Start the vectors of concepts from given ones, such as those of TransE."""
        if self.paths is None:
            raise ValueError("a model without a graph has no concepts")
        if vectors.shape[1] != self.config.concept_dim:
            raise UserError(
                f"the vectors of given.graph have {vectors.shape[1]} values, but model.concept_dim is "
                f"{self.config.concept_dim}",
                todo=f"model.concept_dim={vectors.shape[1]}",
            )
        self.paths.concepts.weight.copy_(vectors)


def text_encoder(given: nn.Module) -> Any:
    """The encoder itself, where it is held frozen."""
    return given.module if isinstance(given, Frozen) else given


class StatementLSTM(nn.Module):
    """The text encoder of a KagNet that is given none: the last states of a bidirectional LSTM."""

    def __init__(self, config: Config, words: int) -> None:
        super().__init__()
        self.dim = config.statement_dim
        self.embedding = nn.Embedding(words, config.embedding_dim)
        self.lstm = BidirectionalReader("lstm", config.embedding_dim, config.statement_dim // 2)
        self.dropout = Dropout(config.dropout)
        nn.init.normal_(self.embedding.weight, std=0.1)

    def encode(self, batch: Batch) -> Encoded:
        """The states at every word, and the last state of both directions."""
        states, last, first = self.lstm(self.dropout(self.embedding(batch.tokens)), batch.lengths)
        pooled = torch.cat((last.hidden[:, -1], first.hidden[:, -1]), dim=-1)
        return Encoded(layers=[states], mask=batch.mask, pooled=pooled)

    def encoder_dims(self) -> EncoderDims:
        """The sizes of what `encode` gives."""
        return EncoderDims(pooled=self.dim, token=self.dim)


class PathReader(nn.Module):
    """Schema graphs → graph convolution, path LSTM, and attention to paths and to pairs of concepts."""

    def __init__(self, config: Config, graph: GraphSizes, statement_dim: int) -> None:
        super().__init__()
        self.max_edges = graph.max_edges
        self.concepts = nn.Embedding(graph.concepts, config.concept_dim)
        self.relations = nn.Embedding(2 * graph.relations, config.relation_dim)
        sizes = [config.concept_dim, *[config.gcn_dim] * config.gcn_layers]
        self.gcn = nn.ModuleList(GraphConvolution(*pair) for pair in pairwise(sizes))
        node = sizes[-1]
        self.lstm = Reader("lstm", 2 * node + config.relation_dim, config.path_dim)
        self.pair = nn.Linear(statement_dim + 2 * node, config.pair_dim)
        self.path_attention = BilinearAttention(config.pair_dim, config.path_dim)
        self.pair_attention = BilinearAttention(statement_dim, config.pair_dim)
        self.dropout = Dropout(config.dropout)
        self.dim = config.path_dim + config.pair_dim
        xavier(self)
        self.concepts.weight.requires_grad_(not config.freeze_concepts)

    def forward(self, statement: Float[Tensor, "batch statement"], batch: Batch) -> Float[Tensor, "batch dim"]:
        """The graph vector g; zero where no path connects the question and the choice."""
        if batch.concepts is None or batch.paths is None or batch.pairs is None:
            raise ValueError("this batch has no schema graphs")
        rows, places, relations = batch.paths.split_with_sizes([1, self.max_edges + 1, self.max_edges], dim=1)
        nodes = self.nodes(batch.concepts, rows[:, 0], places)[rows.clamp(min=0), places.clamp(min=0)]
        lengths = (relations >= 0).sum(dim=1)
        _, memory = self.lstm(self.edges(nodes, relations), lengths)
        lines = batch.pairs.clamp(min=0)
        paths = memory.hidden[:, -1][lines]  # batch, pairs, alternatives, path_dim
        ends = self.ends(nodes, lengths)[lines[:, :, 0]]
        told = statement[:, None].expand(-1, lines.shape[1], -1)
        pairs = F.relu(self.pair(torch.cat((told, ends), dim=-1)))
        context = self.path_attention(pairs, paths, paths, batch.pairs >= 0)
        both = torch.cat((context, pairs), dim=-1)
        found: Tensor = self.pair_attention(statement, pairs, both, batch.pairs[:, :, 0] >= 0)
        return found

    def nodes(
        self,
        concepts: Int[Tensor, "batch concepts"],
        rows: Int[Tensor, " paths"],
        places: Int[Tensor, "paths places"],
    ) -> Float[Tensor, "batch concepts node"]:
        """The vectors of all concepts after graph convolution."""
        nodes: Tensor = self.dropout(self.concepts(concepts.clamp(min=0)))
        adjacency = adjacency_of(rows, places, *concepts.shape)
        for layer in self.gcn:
            nodes = layer(nodes, adjacency)
        return nodes

    def edges(
        self, nodes: Float[Tensor, "paths places node"], relations: Int[Tensor, "paths edges"]
    ) -> Float[Tensor, "paths edges inputs"]:
        """What the LSTM reads: for each edge of a path the concept it leaves, its relation, the concept it reaches."""
        return torch.cat((nodes[:, :-1], self.relations(relations.clamp(min=0)), nodes[:, 1:]), dim=-1)

    def ends(
        self, nodes: Float[Tensor, "paths places node"], lengths: Int[Tensor, " paths"]
    ) -> Float[Tensor, "paths both"]:
        """The concept of the question and the concept of the choice that each path connects."""
        last = lengths[:, None, None].expand(-1, 1, nodes.shape[-1])
        return torch.cat((nodes[:, 0], nodes.gather(1, last)[:, 0]), dim=-1)


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {
        "concept_dim": 12, "relation_dim": 12, "gcn_dim": 12, "path_dim": 16, "pair_dim": 16, "dim": 24,
        "embedding_dim": 24, "statement_dim": 24, "dropout": 0.0,
    },
    "base": {},
}  # fmt: skip
"""Named shapes, as changes to the defaults."""

Model = KagNet
