"""Tasks that read a knowledge graph: where it comes from, and how a run keeps it.

A run holds its graph as `graph.tsv`, so that it answers the same wherever it is moved and
whatever becomes of the file that it was trained with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from mallang.data.corpus import Config as Data
from mallang.data.corpus import open_corpus, open_files
from mallang.data.knowledge import Graph, as_token
from mallang.data.paths import Path as GraphPath
from mallang.errors import UserError
from mallang.models.contract import TripleScorer
from mallang.runs.files import unwritable
from mallang.runs.folder import Run
from mallang.runs.given import Given
from mallang.runs.own_files import GRAPH

ENDS = ("head", "relation", "tail")


@dataclass(frozen=True)
class GraphSource:
    """Which triples a task reads."""

    name: str
    """A corpus, or a file of triples."""
    columns: tuple[str, ...] | None = None
    """Its columns of head, relation and tail, where they have other names."""
    nodes: str | None = None
    """A file with the name of a node in each line."""


@runtime_checkable
class ReadsGraph(Protocol):
    """A task that reads a knowledge graph: its class takes it as the argument `graph`."""

    @classmethod
    def graph_of(cls, config: Any) -> GraphSource:
        """Where the graph of a recipe comes from."""


@runtime_checkable
class BorrowsTokenizer(Protocol):
    """A task that may be given an encoder of text, whose tokenizer it has then."""

    @classmethod
    def reads_as(cls) -> str:
        """The name of that run in [given]."""


def lender(kind: type[Any], given: Mapping[str, str]) -> str | None:
    """The name in [given] of the run that a task has its tokenizer from, if it is given one."""
    name = kind.reads_as() if issubclass(kind, BorrowsTokenizer) else None
    return name if name in given else None


def kept_graph(kind: type[Any], run: Run) -> Graph | None:
    """The graph that a run keeps, as it was trained with it; None for most tasks."""
    if not issubclass(kind, ReadsGraph):
        return None
    graph = load_graph(run.folder)
    if graph.fingerprint != run.info.get("graph", graph.fingerprint):
        what = "the graph is not the one that the run was trained with"
        raise UserError(what, where=str(run.folder / GRAPH), todo="restore the file, or train again")
    return graph


def graph_for(kind: type[Any], config: Any, folder: Path | None) -> Graph | None:
    """The graph of a task in training: that of its run, or else of the recipe, which the run then keeps."""
    if not issubclass(kind, ReadsGraph):
        return None
    if folder is not None and (folder / GRAPH).exists():
        return load_graph(folder)
    graph = read_graph(kind.graph_of(config))
    if folder is not None:
        save_graph(graph, folder)
    return graph


def read_graph(source: GraphSource) -> Graph:
    """The graph of a corpus, or of a file; of a corpus that has splits the training triples."""
    columns: list[str | int] | None = None if source.columns is None else [*source.columns]
    is_file = Path(source.name).expanduser().suffix != "" or Path(source.name).expanduser().is_file()
    if is_file:
        corpus = open_files({"train": source.name}, Data(columns=columns), ENDS)
    else:
        corpus = open_corpus(Data(corpus=source.name, columns=columns), ENDS)
    try:
        return Graph.of(
            map(plain_names, corpus.split("train")), None if source.nodes is None else nodes_of(source.nodes)
        )
    except UserError as error:
        where = source.name if error.where is None else f"{source.name}, {error.where}"
        raise UserError(error.what, where=where, todo=error.todo) from error


def plain_names(row: Iterable[str]) -> tuple[str, ...]:
    """The names of a triple with single spaces, as a line of graph.tsv can hold them."""
    return tuple(" ".join(name.split()) for name in row)


def nodes_of(path: str) -> list[str]:
    """The names of a list of nodes, a line each."""
    try:
        found = Path(path).expanduser().read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise UserError(
            f"task.nodes = {path} cannot be read: {error}", todo="give a file with a node per line"
        ) from error
    names = [" ".join(line.split()) for line in found]
    return list(dict.fromkeys(name for name in names if name))


def save_graph(graph: Graph, folder: Path) -> None:
    """Write `graph.tsv`: the names of all nodes in the order of their numbers, an empty line, and the triples."""
    text = "\n".join([*graph.entities, "", *("\t".join(row) for row in graph.rows())]) + "\n"
    partial = folder / f"{GRAPH}.partial"
    try:
        partial.write_text(text, "utf-8")
        partial.replace(folder / GRAPH)
    except OSError as error:
        raise unwritable(folder, error) from error


def load_graph(folder: Path) -> Graph:
    """Read what `save_graph` wrote."""
    path = folder / GRAPH
    try:
        names, _, triples = path.read_text("utf-8").partition("\n\n")
        return Graph.of([line.split("\t") for line in triples.splitlines()], names.split("\n"))
    except (OSError, ValueError, UserError) as error:
        raise UserError(f"{path} is damaged: {error}", todo="restore the file, or train again") from error


class TripleRanker:
    """Ranks paths by the mean score of their triples in a given model of the graph, such as TransE."""

    def __init__(self, given: Given, graph: Graph, relations: Sequence[str]) -> None:
        if not isinstance(given.model, TripleScorer):
            raise given.unfit("it scores no triples of a graph", "give a run of transe on the same graph")
        self.given, self.model, self.count = given, given.model, len(graph.relations)
        unknown = given.tokenizer.vocabulary.unk
        ids = given.tokenizer.encode_batch([as_token(name) for name in graph.entities])
        self.ids = torch.tensor([each[0] if len(each) == 1 else unknown for each in ids])
        self.known = self.ids != unknown
        missing = [name for name in graph.relations if name not in relations]
        if missing or not bool(self.known.any()):
            what = f"it does not know the relation {missing[0]!r}" if missing else "it knows no entity of the graph"
            raise given.unfit(what, "train it on the same graph: data.corpus, as task.graph")
        self.relations = torch.tensor([relations.index(name) for name in graph.relations])

    @property
    def fingerprint(self) -> str:
        """A sum over the run."""
        return self.given.fingerprint

    @torch.no_grad()
    def vectors(self) -> torch.Tensor:
        """The vector of every concept of the graph that the model knows; small random ones for the others."""
        found = self.model.entities(self.ids).clone()
        random = torch.randn(found.shape, generator=torch.Generator().manual_seed(0)) * found.std()
        return torch.where(self.known[:, None], found, random)

    @torch.no_grad()
    def score(self, paths: Sequence[GraphPath]) -> list[float]:
        """The mean score of the triples of each path; an edge that is walked backward is the triple from its end."""
        triples = [
            (b, relation - self.count, a) if relation >= self.count else (a, relation, b)
            for path in paths
            for a, relation, b in zip(path.entities, path.relations, path.entities[1:], strict=False)
        ]
        heads, relations, tails = torch.tensor(triples).unbind(dim=1)
        asked = self.model.queries(self.model.entities(self.ids[heads]), self.relations[relations], heads=False)
        scores = self.model.pair_scores(asked, self.model.entities(self.ids[tails]))
        return [float(each.mean()) for each in scores.split_with_sizes([len(path) for path in paths])]
