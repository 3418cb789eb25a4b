"""The verbs of a trained model that chooses with a knowledge graph: choices, and the paths that they rest on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import torch

from mallang.data.choices import Choices
from mallang.data.schema_graphs import SchemaGraph, read_graphs
from mallang.decoding.contract import device_of, inference
from mallang.errors import UserError
from mallang.layers.attention import record_attention
from mallang.tasks import chooser
from mallang.tasks.chooser import as_choices

if TYPE_CHECKING:
    from mallang.tasks.graph_choice import Task

PATHS, PAIRS = "model.paths.path", "model.paths.pair"
"""The names of both attentions: to the paths of a pair, and to the pairs."""


@dataclass(frozen=True)
class AttendedPath:
    """A path from the question to a choice, and its share of the attention."""

    weight: float
    """The weight of its pair of concepts times its own; those of a choice sum to 1."""
    concepts: tuple[str, ...]
    relations: tuple[str, ...]
    backward: tuple[bool, ...]
    """Whether each edge is walked against its direction."""

    def __str__(self) -> str:
        edges = [
            f" ←{name}- " if back else f" -{name}→ " for name, back in zip(self.relations, self.backward, strict=True)
        ]
        return self.concepts[0] + "".join(f"{edge}{to}" for edge, to in zip(edges, self.concepts[1:], strict=True))


@dataclass(frozen=True)
class ChoicePaths:
    """A choice, and the paths that lead to it, the heaviest first."""

    choice: str
    probability: float
    paths: tuple[AttendedPath, ...]

    def __str__(self) -> str:
        lines = [f"{self.probability:.4f}  {self.choice}"]
        return "\n".join(lines + [f"  {path.weight:.4f}  {path}" for path in self.paths])


@dataclass(frozen=True)
class Reasons:
    """The choices of a question with the paths to each, the most probable choice first."""

    question: str
    choices: tuple[ChoicePaths, ...]
    concepts: tuple[str, ...]
    """The concepts of the question."""

    def __str__(self) -> str:
        return "\n".join(map(str, self.choices))


@runtime_checkable
class ShowsPaths(Protocol):
    """Verbs that show the paths that a choice rests on."""

    def paths(self, question: str, choices: Sequence[str] | Choices) -> Reasons:
        """The choices of a question with the paths to each."""


class Verbs(chooser.Verbs):
    """A trained model that chooses with a graph."""

    task_name = "graph_choice"
    verbs = ("choose", "evaluate")
    task: Task

    def examples(self, questions: Sequence[str], choices: Sequence[Choices]) -> Sequence[Any]:
        """Questions without known answers, with the graphs of their choices, and the vectors of a frozen encoder."""
        found = super().examples(questions, choices)
        rows = [(text, json.dumps(each.texts)) for text, each in zip(questions, choices, strict=True)]
        more = [encoder.encode_rows(rows) for encoder in self.task.encoders]
        return [
            (*example, *(np.array(integers, dtype=np.int64) for integers in others))
            for example, *others in zip(found, *more, strict=True)
        ]

    def paths(self, question: str, choices: Sequence[str] | Choices) -> Reasons:
        """What the model attends to: the paths from the question to each of its choices, with their weights."""
        given = choices if isinstance(choices, Choices) else as_choices(choices)
        (example,) = self.examples([question], [given])
        with inference(self.model), record_attention(self.model) as maps:
            scores, _ = self.task.scores(self.model, self.task.collate([example]).to(device_of(self.model)))
        shares = scores[0].double().softmax(dim=0).tolist()
        found = [
            ChoicePaths(text, shares[row], self.attended(graph, row, maps))
            for row, (text, graph) in enumerate(zip(given.texts, read_graphs(example[4]), strict=True))
        ]
        asked = self.task.schema.grounder.concepts(question)
        names = tuple(self.task.graph.entities[number] for number in asked)
        return Reasons(question, tuple(sorted(found, key=lambda each: -each.probability)), names)

    def attribution(self, texts: Any, *, method: Any = "integrated", label: str | None = None) -> Any:
        """Refused: a choice rests on the paths of its graph, and not on the tokens of one row."""
        raise UserError(
            "a choice of this run rests on paths of its graph, not on tokens", todo="mallang choose --paths"
        )

    def attended(self, graph: SchemaGraph, row: int, maps: dict[str, torch.Tensor]) -> tuple[AttendedPath, ...]:
        """The paths of one graph with their weights, the heaviest first."""
        found = []
        for pair, paths in enumerate(graph.pairs):
            of_pair = float(maps[PAIRS][row, 0, 0, pair])
            for number in range(len(paths)):
                found.append(self.named(graph, pair, number, of_pair * float(maps[PATHS][row, 0, pair, number])))
        return tuple(sorted(found, key=lambda path: -path.weight))

    def named(self, graph: SchemaGraph, pair: int, number: int, weight: float) -> AttendedPath:
        """A path in names."""
        whole, path = self.task.graph, graph.path(pair, number)
        count = len(whole.relations)
        return AttendedPath(
            weight,
            tuple(whole.entities[each] for each in path.entities),
            tuple(whole.relations[each % count] for each in path.relations),
            tuple(each >= count for each in path.relations),
        )
