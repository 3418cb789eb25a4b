"""Runs of one task side by side: how good each is, what it has cost, how fast it is, and on which sentences it fails.

    comparison = mallang.compare(["runs/sutskever", "runs/bahdanau", "runs/transformer"])
    print(comparison)
    comparison.draw("ladder.png")

All runs are scored on the same rows. Outputs that lie in a run folder are used if the run would write them again; new
ones are made and kept. Runs that differ in nothing but the seed are one system, told as mean and standard deviation.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mallang.errors import UserError, nearest
from mallang.evaluation.lengths import Bucket, buckets_of
from mallang.evaluation.score import Score, Statistics
from mallang.evaluation.significance import Comparison as Difference
from mallang.evaluation.significance import paired_bootstrap
from mallang.inspection import comparison_figure, comparison_tables
from mallang.inspection.budgets import budget_notes, mean_of
from mallang.inspection.comparison_tables import Table
from mallang.inspection.cost import Speed, training_flops
from mallang.inspection.entrants import Entrant, LanguageEntrant, Options, check_rows, check_task, listed, open_all

if TYPE_CHECKING:
    from mallang.inspection.language_comparison import LanguageComparison

__all__ = ["Comparison", "Options", "System", "Value", "compare"]


@dataclass(frozen=True)
class Value:
    """A score of a system: of its one run with the interval, or the mean over runs with the standard deviation."""

    mean: float
    low: float | None = None
    high: float | None = None
    deviation: float | None = None

    @classmethod
    def of(cls, scores: Sequence[Score] | Sequence[Statistics]) -> Value:
        """The same score of each run of a system, or what it is computed from."""
        if len(scores) == 1:
            score = scores[0].score() if isinstance(scores[0], Statistics) else scores[0]
            return cls(score.value, score.low, score.high)
        values = [score.value for score in scores]
        return cls(statistics.mean(values), deviation=statistics.stdev(values))


@dataclass(frozen=True, kw_only=True)
class System:
    """One line of the comparison: a run, or several that differ in the seed alone."""

    name: str
    runs: tuple[str, ...]
    scores: Mapping[str, Value]
    signatures: Mapping[str, str]
    by_length: tuple[Value, ...]
    """The score that decides, for each range of source lengths."""
    parameters: float | None
    tokens: float | None
    """Target tokens read in training."""
    seconds: float | None
    """Of training, validation included."""
    flops: float | None
    """Of training. All four are means over the runs; None where it is not known."""
    speed: Speed | None
    error_reduction: float | None
    """How much of the baseline's distance from 100 is gone, in percent; None for the baseline itself."""
    difference: Difference | None
    """The test against the baseline; None for the baseline itself."""

    @property
    def sentences_per_second(self) -> float | None:
        """How fast it translates, if that was measured."""
        return None if self.speed is None else self.speed.sentences

    @property
    def tokens_per_second(self) -> float | None:
        """The same in tokens of its own tokenizer."""
        return None if self.speed is None else self.speed.tokens


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All systems, on the same rows."""

    task: str
    text: str
    """The rows that were scored, in words."""
    rows: int
    metric: str
    """The name of the score that decides."""
    baseline: str
    buckets: Sequence[Bucket]
    systems: Sequence[System]
    notes: Sequence[str]

    def tables(self) -> list[Table]:
        """Quality, cost, and quality by source length."""
        return comparison_tables.tables(self)

    def __str__(self) -> str:
        return comparison_tables.as_text(self.tables(), self.notes)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return comparison_tables.as_json(self)

    def to_csv(self) -> str:
        """One line a system, with every number."""
        return comparison_tables.as_csv([comparison_tables.flat(self, system) for system in self.systems])

    def to_markdown(self) -> str:
        """Tables for a page."""
        return comparison_tables.as_markdown(self.tables(), self.notes)

    def draw(self, path: Path | str) -> Path:
        """A figure: quality against parameters, FLOPs and seconds, and by source length; PNG or SVG."""
        curves = {system.name: system.by_length for system in self.systems}
        axis = f"{self.buckets[0].unit} of the source; rows"
        lengths = comparison_figure.Lengths(self.buckets, curves, self.metric, axis)
        title = f"{self.metric}, {self.rows:,} rows of {self.text}"
        return comparison_figure.draw_fields(Path(path), self, lengths, title)


def compare(
    runs: Iterable[Path | str], options: Options | None = None, **changes: Any
) -> Comparison | LanguageComparison:
    """Compare runs; options may be given one by one: `mallang.compare([...], split="valid", metric="chrf")`."""
    known = [each.name for each in fields(Options)]
    for name in changes:
        if name not in known:
            raise UserError(f"compare has no option {name!r}", todo=nearest(name, known))
    options = replace(options or Options(), **changes)
    paths = [Path(run) for run in ([runs] if isinstance(runs, Path | str) else runs)]
    paths += [Path(options.baseline)] if options.baseline is not None else []
    entrants, notes = open_all(paths, options)
    check_task(entrants)
    check_rows(entrants)
    sources = [row[0] for row in entrants[0].rows]
    is_language = isinstance(entrants[0], LanguageEntrant)
    buckets = [] if is_language else buckets_of(sources, options.lengths)
    for entrant in entrants:
        entrant.write()
    groups = grouped(entrants)
    if is_language:
        from mallang.inspection.language_comparison import compare_language_models

        return compare_language_models(groups, options, notes)
    worst = min(groups, key=lambda group: group.value)
    baseline = worst
    if options.baseline is not None:
        chosen = Path(options.baseline).resolve()
        baseline = next(group for group in groups if chosen in [each.path.resolve() for each in group.entrants])
    systems = [group.system(baseline, buckets, notes) for group in groups]
    return Comparison(
        task=entrants[0].run.task,
        text=entrants[0].text,
        rows=len(sources),
        metric=groups[0].metric,
        baseline=baseline.name,
        buckets=buckets,
        systems=sorted(systems, key=lambda system: system.scores[groups[0].metric].mean),
        notes=[*told_of(groups, baseline, options), *notes],
    )


@dataclass(frozen=True)
class Group:
    """Entrants that are one system."""

    name: str
    entrants: Sequence[Entrant]

    @property
    def metric(self) -> str:
        """The name of the score that decides."""
        return self.entrants[0].metric

    @property
    def value(self) -> float:
        """The score that decides."""
        return Value.of([entrant.scores[self.metric] for entrant in self.entrants]).mean

    @property
    def middle(self) -> Entrant:
        """The entrant of median score, the lower one of two: it stands for all where one must."""
        ordered = sorted(self.entrants, key=lambda entrant: entrant.scores[self.metric].value)
        return ordered[(len(ordered) - 1) // 2]

    def system(self, baseline: Group, buckets: Sequence[Bucket], notes: list[str]) -> System:
        """The line of these runs; what is amiss is noted."""
        infos = [entrant.run.info for entrant in self.entrants]
        middle, others = self.middle, self.entrants
        names = [name for name in middle.scores if all(name in entrant.scores for entrant in others)]
        difference, reduction = None, None
        if self is not baseline:
            both = middle.outputs, baseline.middle.outputs
            difference = paired_bootstrap(*both, middle.references, middle.measure)
            away = 100 - baseline.value
            reduction = 100 * (self.value - baseline.value) / away if away else None
        return System(
            name=self.name,
            runs=tuple(str(entrant.path) for entrant in others),
            scores={name: Value.of([entrant.scores[name] for entrant in others]) for name in names},
            signatures={name: middle.scores[name].signature for name in names},
            by_length=tuple(Value.of([entrant.statistics(bucket) for entrant in others]) for bucket in buckets),
            parameters=mean_of(infos, "parameters"),
            tokens=mean_of(infos, "tokens"),
            seconds=mean_of(infos, "seconds"),
            flops=flops_of(self, notes),
            speed=middle.speed(),
            error_reduction=reduction,
            difference=difference,
        )


def flops_of(group: Group, notes: list[str]) -> float | None:
    """The mean FLOPs of training."""
    try:
        return statistics.mean(training_flops(entrant.run) for entrant in group.entrants)
    except UserError as error:
        notes.append(f"{group.name}: the FLOPs of training were not counted: {error.what}")
        return None


def grouped(entrants: Sequence[Entrant]) -> list[Group]:
    """Entrants whose recipes differ in nothing but the seed together, in the order they were given."""

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
    """What to call a system: its folder, without the seed where there are several."""
    names = [entrant.path.resolve().name for entrant in entrants]
    if len(names) == 1:
        return names[0]
    return f"{re.sub(r'-seed[0-9]+$', '', names[0])} ({len(names)} seeds)"


def told_of(groups: Sequence[Group], baseline: Group, options: Options) -> list[str]:
    """What a reader must know to read the numbers."""
    entrants = [entrant for group in groups for entrant in group.entrants]
    why = "" if options.baseline is not None else f", the lowest {baseline.metric}"
    notes = [f"the baseline is {baseline.name}{why}"]
    if any(len(group.entrants) > 1 for group in groups):
        notes.append("of several seeds: mean ± standard deviation; p and speed are those of the run of median score")
    searches = [asdict(entrant.search) for entrant in entrants]
    options_apart = [key for key in searches[0] if any(search[key] != searches[0][key] for search in searches)]
    if options_apart:
        told = "; ".join(
            f"{entrant.path.name}: {', '.join(f'{key} {search[key]}' for key in options_apart)}"
            for entrant, search in zip(entrants, searches, strict=True)
        )
        notes.append(f"the searches differ ({told}); --search gives all the same")
    notes += budget_notes(groups)
    started = [entrant.path.name for entrant in entrants if entrant.run.info.get("from")]
    if started:
        notes.append(f"the cost of the runs that they started from is not counted: {', '.join(started)}")
    return notes
