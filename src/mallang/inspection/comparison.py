"""Comparison of runs of one task: quality, training cost, speed, and quality by source length.

    comparison = mallang.compare(["runs/sutskever", "runs/bahdanau", "runs/transformer"])
    print(comparison)
    comparison.draw("ladder.png")

All runs are scored on the same rows. Outputs in a run folder are reused if the run would generate them again; new
outputs are kept there. Runs that differ only in the seed are one system, reported as mean and standard deviation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from mallang.errors import UserError, nearest
from mallang.evaluation.lengths import Bucket, buckets_of
from mallang.evaluation.significance import Comparison as Difference
from mallang.evaluation.significance import paired_bootstrap
from mallang.inspection import comparison_figure, comparison_tables
from mallang.inspection.budgets import budget_notes, mean_of
from mallang.inspection.comparison_tables import Table
from mallang.inspection.cost import Speed
from mallang.inspection.entrants import Entrant, LanguageEntrant, Options, listed
from mallang.inspection.language_comparison import LanguageComparison, compare_language_models
from mallang.inspection.opened_runs import check_main_scores, check_rows, check_task, open_all
from mallang.inspection.scored_entrant import ScoredEntrant
from mallang.inspection.systems import Group, Value, flops_of, grouped

__all__ = ["Comparison", "Options", "System", "Value", "compare"]


@dataclass(frozen=True, kw_only=True)
class System:
    """One line of the comparison: a run, or several that differ only in the seed."""

    name: str
    runs: tuple[str, ...]
    scores: Mapping[str, Value]
    signatures: Mapping[str, str]
    by_length: tuple[Value, ...]
    """The main score for each range of source lengths."""
    parameters: float | None
    tokens: float | None
    """Target tokens read in training."""
    seconds: float | None
    """Training time in seconds, validation included."""
    flops: float | None
    """Training FLOPs. This and the three fields above are means over the runs; None where unknown."""
    speed: Speed | None
    error_reduction: float | None
    """Error reduction: the percentage by which the baseline's distance from 100 shrank; None for the baseline."""
    difference: Difference | None
    """The test against the baseline; None for the baseline itself, and for scores that no test is known of."""

    @property
    def sentences_per_second(self) -> float | None:
        """Decoding speed in sentences per second; None where it was not measured."""
        return None if self.speed is None else self.speed.sentences

    @property
    def tokens_per_second(self) -> float | None:
        """Decoding speed in tokens per second, by the system's own tokenizer; None where it was not measured."""
        return None if self.speed is None else self.speed.tokens


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All systems, on the same rows."""

    task: str
    text: str
    """A description of the scored rows."""
    rows: int
    metric: str
    """The name of the main score."""
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
        """One line per system, with every number."""
        return comparison_tables.as_csv([comparison_tables.flat(self, system) for system in self.systems])

    def to_markdown(self) -> str:
        """The tables in Markdown."""
        return comparison_tables.as_markdown(self.tables(), self.notes)

    def draw(self, path: Path | str) -> Path:
        """A figure: quality against parameters, FLOPs and seconds, and by source length; PNG or SVG."""
        title = f"{self.metric}, {self.rows:,} rows of {self.text}"
        if not self.buckets:
            return comparison_figure.draw_fields(Path(path), self, None, title)
        curves = {system.name: system.by_length for system in self.systems}
        axis = f"{self.buckets[0].unit} of the source; rows"
        lengths = comparison_figure.Lengths(self.buckets, curves, self.metric, axis)
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
    is_language, is_scored = isinstance(entrants[0], LanguageEntrant), isinstance(entrants[0], ScoredEntrant)
    buckets = [] if is_language or is_scored else buckets_of(sources, options.lengths)
    for entrant in entrants:
        entrant.write()
    check_main_scores(entrants)
    groups = grouped(entrants)
    if is_language:
        return compare_language_models(groups, options, notes)
    sign = -1 if entrants[0].is_lower_better else 1
    baseline = min(groups, key=lambda group: sign * group.value)
    if options.baseline is not None:
        chosen = Path(options.baseline).resolve()
        baseline = next(group for group in groups if chosen in [each.path.resolve() for each in group.entrants])
    systems = [system_of(group, baseline, buckets, notes) for group in groups]
    return Comparison(
        task=entrants[0].run.task,
        text=entrants[0].text,
        rows=len(sources),
        metric=groups[0].metric,
        baseline=baseline.name,
        buckets=buckets,
        systems=sorted(systems, key=lambda system: sign * system.scores[groups[0].metric].mean),
        notes=[*notes_on(groups, baseline, options), *notes],
    )


def system_of(group: Group, baseline: Group, buckets: Sequence[Bucket], notes: list[str]) -> System:
    """The system of these runs; problems are added to the notes."""
    infos = [entrant.run.info for entrant in group.entrants]
    middle, others = group.middle, group.entrants
    names = [name for name in middle.scores if all(name in entrant.scores for entrant in others)]
    difference, reduction = None, None
    if group is not baseline and middle.can_be_tested and baseline.middle.can_be_tested:
        both = middle.outputs, baseline.middle.outputs
        difference = paired_bootstrap(*both, middle.references, middle.measure)
    if group is not baseline and middle.is_share:
        away = 100 - baseline.value
        reduction = 100 * (group.value - baseline.value) / away if away else None
    return System(
        name=group.name,
        runs=tuple(str(entrant.path) for entrant in others),
        scores={name: Value.of([entrant.scores[name] for entrant in others]) for name in names},
        signatures={name: middle.scores[name].signature for name in names},
        by_length=tuple(Value.of([entrant.statistics(bucket) for entrant in others]) for bucket in buckets),
        parameters=mean_of(infos, "parameters"),
        tokens=mean_of(infos, "tokens"),
        seconds=mean_of(infos, "seconds"),
        flops=flops_of(group, notes) or None,  # a fit outside of torch has nothing that could be counted
        speed=middle.speed(),
        error_reduction=reduction,
        difference=difference,
    )


def notes_on(groups: Sequence[Group], baseline: Group, options: Options) -> list[str]:
    """Notes that a reader needs to interpret the numbers."""
    entrants = [entrant for group in groups for entrant in group.entrants]
    worst = "highest" if entrants[0].is_lower_better else "lowest"
    why = "" if options.baseline is not None else f", the {worst} {baseline.metric}"
    notes = [f"the baseline is {baseline.name}{why}"]
    if any(len(group.entrants) > 1 for group in groups):
        notes.append("of several seeds: mean ± standard deviation; p and speed are those of the run of median score")
    searches = [{} if entrant.search is None else asdict(entrant.search) for entrant in entrants]
    options_apart = [key for key in searches[0] if any(search[key] != searches[0][key] for search in searches)]
    if options_apart:
        described = "; ".join(
            f"{entrant.path.name}: {', '.join(f'{key} {search[key]}' for key in options_apart)}"
            for entrant, search in zip(entrants, searches, strict=True)
        )
        notes.append(f"the searches differ ({described}); --search sets one search for all")
    notes += budget_notes(groups)
    started = [entrant.path.name for entrant in entrants if entrant.run.info.get("from")]
    given = [entrant.path.name for entrant in entrants if entrant.recipe.given]
    for what, found in (("started from", started), ("were given", given)):
        if found:
            notes.append(f"the cost of the runs that they {what} is not counted: {', '.join(found)}")
    if isinstance(entrants[0], ScoredEntrant):
        notes += signature_notes(entrants, baseline.metric)
    return notes


def signature_notes(entrants: Sequence[Entrant], metric: str) -> list[str]:
    """How the main score was computed; runs that read text in different units may have different signatures."""
    found = listed((entrant.scores[metric].signature, entrant) for entrant in entrants)
    return [
        f"{metric} of {'all' if len(found) == 1 else ', '.join(each.path.name for each in some)}: {signature}"
        for signature, some in found.items()
    ]
