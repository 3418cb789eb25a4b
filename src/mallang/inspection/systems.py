"""The systems of a comparison: runs that differ only in the seed are one system, with mean and standard deviation."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mallang.errors import UserError
from mallang.evaluation.score import Score, Statistics
from mallang.inspection.cost import training_flops
from mallang.inspection.entrants import Entrant, listed


@dataclass(frozen=True)
class Value:
    """A score of a system: with the interval for one run, or the mean and standard deviation over several."""

    mean: float
    low: float | None = None
    high: float | None = None
    deviation: float | None = None

    @classmethod
    def of(cls, scores: Sequence[Score] | Sequence[Statistics]) -> Value:
        """The value of a system, from one score per run, or from the statistics of one."""
        if len(scores) == 1:
            score = scores[0].score() if isinstance(scores[0], Statistics) else scores[0]
            return cls(score.value, score.low, score.high)
        values = [score.value for score in scores]
        return cls(statistics.mean(values), deviation=statistics.stdev(values))


@dataclass(frozen=True)
class Group:
    """The runs of one system."""

    name: str
    entrants: Sequence[Entrant]

    @property
    def metric(self) -> str:
        """The name of the main score."""
        return self.entrants[0].metric

    @property
    def value(self) -> float:
        """The main score."""
        return Value.of([entrant.scores[self.metric] for entrant in self.entrants]).mean

    @property
    def middle(self) -> Entrant:
        """The run of median score, the lower one of two: it represents the system."""
        ordered = sorted(self.entrants, key=lambda entrant: entrant.scores[self.metric].value)
        return ordered[(len(ordered) - 1) // 2]


def flops_of(group: Group, notes: list[str]) -> float | None:
    """The mean training FLOPs."""
    try:
        return statistics.mean(training_flops(entrant.run) for entrant in group.entrants)
    except UserError as error:
        notes.append(f"{group.name}: the FLOPs of training were not counted: {error.what}")
        return None


def grouped(entrants: Sequence[Entrant]) -> list[Group]:
    """Group runs whose recipes differ only in the seed, in the given order."""

    def recipe_of(entrant: Entrant) -> str:
        values = entrant.recipe.resolved.resolved()
        left_out = ("seed", "paper", "reach")
        return json.dumps([[values[key] for key in values if key not in left_out], entrant.run.info.get("from")])

    groups = []
    for found in listed((recipe_of(entrant), entrant) for entrant in entrants).values():
        seeds = [entrant.recipe.seed for entrant in found]
        together = [found] if len(set(seeds)) == len(seeds) else [[entrant] for entrant in found]
        groups += [Group(name_of(each), each) for each in together]
    names = [group.name for group in groups]
    return [
        group if names.count(group.name) == 1 else replace(group, name=str(group.entrants[0].path)) for group in groups
    ]


def name_of(entrants: Sequence[Entrant]) -> str:
    """The name of a system: its folder, without the seed where there are several."""
    names = [entrant.path.resolve().name for entrant in entrants]
    if len(names) == 1:
        return names[0]
    return f"{re.sub(r'-seed[0-9]+$', '', names[0])} ({len(names)} seeds)"
