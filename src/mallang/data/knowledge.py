"""Knowledge graphs: names of entities as single tokens, triples of a head, a relation and a tail, and their neighbors.

    Minsu    likes    apple            a row of a graph file: two entities and the relation between them

Entities are the nodes of the graph, and triples its edges. An edge without one of its ends is refused. The nodes are
those of the training triples, or those of a list: an edge to a node outside the list dangles and is refused; a node
that no edge reaches is reported.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int64, Integer

from mallang.data.columns import TextEncoder
from mallang.errors import UserError, nearest, some_of

SPACE = "␣"
"""Stands for a space within a name, so that a name is one token."""


def as_token(name: str) -> str:
    """A name as one token: `go to bed` is `go␣to␣bed`."""
    return SPACE.join(name.split())


def as_name(token: str) -> str:
    """The name that a token stands for."""
    return token.replace(SPACE, " ")


class Names:
    """Encodes the name of an entity as the id of its token; the tokenizer has unit space."""

    def __init__(self, tokenizer: TextEncoder, column: str) -> None:
        self.tokenizer, self.column = tokenizer, column

    @property
    def fingerprint(self) -> str:
        """A sum over the tokenizer."""
        return f"name {self.tokenizer.fingerprint}"

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The id of every name, that of `<unk>` for one that is not in the graph."""
        tokens = [as_token(text) for text in texts]
        if "" in tokens:
            raise UserError(
                f"the {self.column} is empty: an edge of the graph has two ends",
                todo="name the entity, or drop the row",
            )
        return self.tokenizer.encode_batch(tokens)


@dataclass(frozen=True)
class Graph:
    """Triples over numbered entities and relations."""

    entities: tuple[str, ...]
    relations: tuple[str, ...]
    triples: Int64[np.ndarray, "triples 3"]
    """Numbers of head, relation and tail."""

    @classmethod
    def of(cls, rows: Iterable[Sequence[str]], nodes: Sequence[str] | None = None) -> Graph:
        """The graph of rows of head, relation and tail; `nodes` are its entities where a list says which there are."""
        entities: dict[str, int] = {name: number for number, name in enumerate(nodes or ())}
        relations: dict[str, int] = {}
        found: dict[tuple[int, int, int], None] = {}
        for number, (head, relation, tail) in enumerate(rows, start=1):
            for what, name in (("head", head), ("relation", relation), ("tail", tail)):
                if not name.strip():
                    raise UserError(
                        f"the {what} is empty: an edge of the graph has two ends and a relation",
                        where=f"row {number}",
                        todo="name it, or drop the row",
                    )
                if nodes is not None and what != "relation" and name not in entities:
                    raise UserError(
                        f"the edge {head!r} {relation} {tail!r} dangles: {name!r} is no node of the graph",
                        where=f"row {number}",
                        todo=nearest(name, entities) if len(entities) < 1000 else "add the node, or drop the row",
                    )
            ends = [entities.setdefault(name, len(entities)) for name in (head, tail)]
            found[ends[0], relations.setdefault(relation, len(relations)), ends[1]] = None
        if not found:
            raise UserError("the graph has no edges", todo="give rows of head, relation and tail")
        return cls(tuple(entities), tuple(relations), np.array([*found], dtype=np.int64))

    @cached_property
    def fingerprint(self) -> str:
        """A sum over entities, relations and triples."""
        names = json.dumps([self.entities, self.relations]).encode()
        return hashlib.sha256(names + self.triples.astype("<i8").tobytes()).hexdigest()

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """The names of head, relation and tail of every triple."""
        for head, relation, tail in self.triples.tolist():
            yield self.entities[head], self.relations[relation], self.entities[tail]

    @cached_property
    def ids(self) -> dict[str, int]:
        """The number of every entity."""
        return {name: number for number, name in enumerate(self.entities)}

    @property
    def isolated(self) -> tuple[str, ...]:
        """The entities that no edge reaches."""
        reached = {*self.triples[:, 0].tolist(), *self.triples[:, 2].tolist()}
        return tuple(name for number, name in enumerate(self.entities) if number not in reached)

    @cached_property
    def edges(self) -> list[list[tuple[int, int]]]:
        """What each entity is joined to: relation and entity; an edge that is read backward has relation + count."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.entities]
        for head, relation, tail in self.triples.tolist():
            found[head].append((relation, tail))
            if head != tail:
                found[tail].append((relation + len(self.relations), head))
        return found

    def without(self, pairs: Iterable[tuple[str, str]]) -> Graph:
        """The graph without edges between the entities of these pairs, in either direction."""
        ids = self.ids
        gone = {(ids[a], ids[b]) for a, b in pairs if a in ids and b in ids}
        kept = [(h, t) not in gone and (t, h) not in gone for h, _, t in self.triples.tolist()]
        return Graph(self.entities, self.relations, self.triples[np.array(kept, dtype=bool)])

    def shuffled(self, seed: int) -> Graph:
        """A control: every edge keeps its relation and the number of its edges, and gets another entity at its tail."""
        order = np.random.default_rng(seed).permutation(len(self.triples))
        triples = self.triples.copy()
        triples[:, 2] = triples[order, 2]
        return Graph(self.entities, self.relations, triples)

    def renamed(self, seed: int) -> Graph:
        """A control: every entity takes the place of another, so that paths are as before, but between other names."""
        places = np.random.default_rng(seed).permutation(len(self.entities))
        triples = self.triples.copy()
        triples[:, [0, 2]] = places[triples[:, [0, 2]]]
        return Graph(self.entities, self.relations, triples)

    def note(self) -> str:
        """The size of the graph, and how many of its nodes no edge reaches."""
        alone = self.isolated
        left = f"; no edge reaches {len(alone):,} nodes: {some_of(alone)}" if alone else ""
        return (
            f"{len(self.entities):,} entities, {len(self.relations):,} relations, {len(self.triples):,} triples{left}"
        )


class Known:
    """Which triples are known to be true, for filtered ranks: all answers to a question, by its entity and relation."""

    def __init__(self, triples: Integer[np.ndarray, "triples 3"]) -> None:
        self.triples = np.unique(np.asarray(triples, dtype=np.int64).reshape(-1, 3), axis=0)
        self.tails = self.index(0, 2)
        self.heads = self.index(2, 0)

    def __len__(self) -> int:
        return len(self.triples)

    def index(self, asked: int, answer: int) -> Mapping[tuple[int, int], Int64[np.ndarray, " answers"]]:
        """The answers by entity and relation."""
        order = np.lexsort((self.triples[:, answer], self.triples[:, 1], self.triples[:, asked]))
        ordered = self.triples[order]
        keys = ordered[:, [asked, 1]]
        starts = np.flatnonzero(np.any(np.diff(keys, axis=0, prepend=-1), axis=1)) if len(keys) else np.zeros(0, int)
        groups = np.split(ordered[:, answer], starts[1:]) if len(keys) else []
        return {(int(a), int(r)): group for (a, r), group in zip(keys[starts], groups, strict=True)}

    def answers(self, entity: int, relation: int, *, heads: bool) -> Int64[np.ndarray, " answers"]:
        """All known tails of an entity and a relation; with `heads` all known heads."""
        return (self.heads if heads else self.tails).get((entity, relation), np.zeros(0, np.int64))


def unseen(triples: Integer[np.ndarray, "triples 3"], unknown: int) -> Bool[np.ndarray, " triples"]:
    """Whether an end of each triple is an entity that is not in the graph."""
    found: Bool[np.ndarray, " triples"] = (triples[:, [0, 2]] == unknown).any(axis=1)
    return found


def relation_counts(graph: Graph) -> Counter[str]:
    """How many edges each relation has."""
    return Counter(graph.relations[number] for number in graph.triples[:, 1].tolist())
