"""Multiple choice with a knowledge graph: a question and its choices in; the right choice, and the paths to it, out.

    question, choice  →  concepts of both  →  paths between them  ┐
    <cls> question <sep> choice <sep>  →  text encoder            ┴→  model (kagnet)  →  one score

The graph is a corpus of triples or a file of them; the concepts are found in the text by their names, and the paths are
found once and kept with the prepared corpus. Two runs may be given:

    [given]
    encoder = "runs/minilm"                   the text encoder: frozen, its vectors are computed once; or trained along
    graph = "runs/transe-conceptnet-100k"     vectors that concepts start from; its scores choose among paths

Controls say what the graph is good for: knowledge = "none" leaves the paths out, "shuffled" gives every edge another
end, "renamed" every name another node; read = "choices" hides the question from the text encoder, so that only its
concepts are left of it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Literal

import torch
from torch import nn

from mallang.data.batch import Batch
from mallang.data.columns import Column, LabelSet
from mallang.data.kept_rows import KeptRows
from mallang.data.knowledge import Graph
from mallang.data.schema_graphs import Limits, SchemaGraphs, batch_fields, read_graphs
from mallang.errors import UserError
from mallang.layers.frozen import Frozen
from mallang.layers.graph import GraphSizes
from mallang.layers.head import ChoiceHead
from mallang.models.contract import Encoder, GraphReasoner, longest_of
from mallang.runs.given import Given
from mallang.tasks import multiple_choice
from mallang.tasks.contract import Group
from mallang.tasks.finetuning import put_head
from mallang.tasks.graph_chooser import Verbs
from mallang.tasks.graphs import GraphSource, TripleRanker
from mallang.tasks.multiple_choice import DEFAULTS, SECTIONS, Example
from mallang.tasks.statements import Statements, vectors_of
from mallang.text.tokenizer import Tokenizer

__all__ = ["DEFAULTS", "SECTIONS", "Config", "Task", "Verbs"]

RECEIVES = {
    "encoder": "Run folder of a text encoder, such as an imported BERT: its vector of question and choice is the "
    "statement. Frozen, unless task.tune_encoder.",
    "graph": "Run folder of a model of the same graph, such as transe: its vectors start those of concepts, its scores "
    "choose among paths.",
}
SHUFFLE = 1
"""The seed of a shuffled or renamed graph: the same for all runs."""


@dataclass(frozen=True, kw_only=True)
class Config(multiple_choice.Config):
    """The graph, the paths, and the options of multiple choice."""

    graph: str = "miniworld-triples"
    """The knowledge graph: a corpus of triples, or a file of them (.tsv .csv .jsonl .parquet)."""
    graph_columns: list[str] | None = None
    """Its columns of head, relation and tail; not set: those of these names."""
    nodes: str | None = None
    """A file with the name of a node per line: an edge to any other node dangles and is refused; not set: all ends."""
    knowledge: Literal["graph", "shuffled", "renamed", "none"] = "graph"
    """The graph as it is; or a control: every edge ends elsewhere, every name is that of another node, or no graph."""
    max_edges: int = 2
    """Edges of the longest path, at most 4."""
    paths_per_pair: int = 4
    """Paths between a concept of the question and one of the choice: the shortest, or those given.graph chooses."""
    pairs: int = 16
    """Pairs of concepts for each choice: those with the shortest paths."""
    tune_encoder: bool = False
    """Train a copy of given.encoder along, as a part of this model; else it is frozen."""
    encoder_scale: float = 0.1
    """The learning rate of that copy: that of the recipe times this."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.max_edges <= 4:
            raise ValueError(f"max_edges must lie between 1 and 4, but is {self.max_edges}")
        for name in ("paths_per_pair", "pairs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, but is {getattr(self, name)}")
        if self.graph_columns is not None and len(self.graph_columns) != 3:
            raise ValueError(f"graph_columns names head, relation and tail, but has {len(self.graph_columns)} names")
        if self.encoder_scale <= 0:
            raise ValueError(f"encoder_scale must be above 0, but is {self.encoder_scale}")


class Task(multiple_choice.Task):
    """Learn p(choice | question, choices, graph)."""

    config: Config

    def __init__(
        self,
        config: Config,
        tokenizers: Mapping[str, Tokenizer],
        labels: Mapping[str, LabelSet] | None = None,
        given: Mapping[str, Given] | None = None,
        graph: Graph | None = None,
    ) -> None:
        super().__init__(config, tokenizers, labels)
        if graph is None:
            raise UserError("there is no knowledge graph", todo="task.graph=conceptnet-100k, or a file of triples")
        self.given = dict(given or {})
        self.encoder = self.check_encoder()
        controls = {"shuffled": graph.shuffled, "renamed": graph.renamed}
        self.graph = controls[config.knowledge](SHUFFLE) if config.knowledge in controls else graph
        self.ranker = self.check_ranker()
        limits = Limits(max_edges=config.max_edges, paths_per_pair=config.paths_per_pair, pairs=config.pairs)
        self.schema = SchemaGraphs(self.graph, limits, self.ranker, has_edges=config.knowledge != "none")
        self.encoders = [KeptRows(self.schema)]
        if self.encoder is not None and not config.tune_encoder:
            self.encoders.append(KeptRows(Statements(self, self.encoder)))

    @classmethod
    def receives(cls) -> Mapping[str, str]:
        """The names of [given] that it accepts."""
        return RECEIVES

    @classmethod
    def reads_as(cls) -> str:
        """The given run whose tokenizer it has."""
        return "encoder"

    @classmethod
    def graph_of(cls, config: Config) -> GraphSource:
        """Where the graph of a recipe comes from."""
        columns = None if config.graph_columns is None else tuple(config.graph_columns)
        return GraphSource(config.graph, columns, config.nodes)

    def check_encoder(self) -> Given | None:
        """The given text encoder, which must read plain texts."""
        found = self.given.get("encoder")
        if found is None:
            if self.config.tune_encoder:
                raise UserError("task.tune_encoder has no effect without an encoder", todo="given.encoder=runs/NAME")
            return None
        if not isinstance(found.model, Encoder) or found.model.reads_source:
            raise found.unfit("it encodes no text by itself", "give an encoder, such as an imported BERT")
        return found

    def check_ranker(self) -> TripleRanker | None:
        """What chooses among paths, if a model of the graph is given."""
        found = self.given.get("graph")
        if found is None:
            return None
        if self.config.knowledge == "none":
            raise UserError("given.graph has no effect without a graph", todo="task.knowledge=graph, or leave it out")
        if not (found.folder / "labels.relation.json").exists():
            raise found.unfit("it has no relations of a graph", "give a run of transe on the same graph")
        return TripleRanker(found, self.graph, LabelSet.load(found.folder, "relation").names)

    def arrays(self) -> Sequence[Column]:
        """Those of multiple choice, the graphs of all choices, and the vectors that a frozen encoder gives them."""
        return [*super().arrays(), *(Column(0, each, is_text=False, beside=(1,)) for each in self.encoders)]

    def build(self, model: ModuleType, config: Any) -> nn.Module:
        """The model for this graph and this text encoder, with a head that gives one score per choice."""
        name, kind = model.__name__.rsplit(".", 1)[-1], model.Model
        if not issubclass(kind, GraphReasoner):
            raise UserError(f"{name} reads no graph", todo="model.name=kagnet, or task.name=multiple_choice")
        graph = GraphSizes(len(self.graph.entities), len(self.graph.relations), self.config.max_edges)
        has_graph = self.config.knowledge != "none"
        encoder: Any = kind(config, self.text.vocabulary, graph if has_graph else None, self.text_encoder())
        if self.ranker is not None:
            encoder.start_concepts(self.ranker.vectors())
        head = ChoiceHead(encoder.encoder_dims().pooled, self.config.head_dropout)
        return put_head(encoder, head, self.config)

    def text_encoder(self) -> nn.Module | None:
        """The given text encoder, frozen or as a copy to be trained; None: the model has its own."""
        if self.encoder is None:
            return None
        if not self.config.tune_encoder:
            return Frozen(self.encoder.model)
        return copy.deepcopy(self.encoder.model).requires_grad_(True)

    def updates(self, model: nn.Module) -> list[Group]:
        """All parameters that are trained; those of a given encoder have a learning rate of their own."""
        groups = super().updates(model)
        if not self.config.tune_encoder:
            return groups
        found: list[Group] = []
        for group in groups:
            given = [pair for pair in group.parameters if pair[0].startswith("model.encoder.")]
            others = [pair for pair in group.parameters if not pair[0].startswith("model.encoder.")]
            found += [Group(others, group.scale), Group(given, group.scale * self.config.encoder_scale)]
        return [group for group in found if group.parameters]

    def size(self, example: Example) -> tuple[int, int]:
        """The number of choices; the number of tokens of the longest pair, or of paths of the largest graph."""
        count, width = self.text_size(example)
        return count, max(width, *(graph.size for graph in read_graphs(example[4])))

    def text_size(self, example: Example) -> tuple[int, int]:
        """The number of choices, and the number of tokens of the longest pair."""
        return super().size(example)

    def collate(self, examples: Sequence[Example]) -> Batch:
        """A padded batch with a row, and a graph, for each choice."""
        batch = self.collate_text(examples)
        if self.config.knowledge != "none":
            graphs = [graph for example in examples for graph in read_graphs(example[4])]
            batch = replace(batch, **batch_fields(graphs, self.schema.limits))
        if len(examples[0]) > 5:
            batch = replace(batch, statements=torch.from_numpy(vectors_of(examples)))
        return batch

    def collate_text(self, examples: Sequence[Example]) -> Batch:
        """The batch without graphs."""
        return super().collate(examples)

    def longest(self, model: nn.Module) -> int | None:
        """The maximum number of tokens that the text encoder reads."""
        return None if self.encoder is None else longest_of(self.encoder.model)
