"""Comparison of language models: perplexity, cost, loss by position, and samples.

    comparison = mallang.compare(["runs/kneser-ney5", "runs/nplm", "runs/lstm", "runs/gpt"], prompts=["나는"])
    print(comparison)
    comparison.draw("generations.png")

All models read the same lines. Perplexity per word and bits per byte are comparable across tokenizers; perplexity per
token only where the tokenizers are equal, and a note says so. A note also reports whether the training budgets were
equal in tokens or in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mallang.evaluation.score import Statistics
from mallang.evaluation.significance import Comparison as Difference
from mallang.evaluation.significance import paired_bootstrap
from mallang.evaluation.translation import References
from mallang.inspection import comparison_figure, comparison_tables, language_tables
from mallang.inspection.budgets import budget_notes, mean_of
from mallang.inspection.comparison_tables import Table
from mallang.inspection.cost import Speed, state_bytes
from mallang.inspection.entrants import LanguageEntrant, Options, listed
from mallang.inspection.loss_by_position import (
    Curve,
    Layout,
    Range,
    layout_of,
    loss_by_position,
    ranges_of,
)
from mallang.inspection.systems import Group, Value, flops_of
from mallang.models.contract import longest_of

__all__ = ["LanguageComparison", "LanguageSystem", "compare_language_models"]


@dataclass(frozen=True, kw_only=True)
class LanguageSystem:
    """One line of the comparison: a run, or several that differ only in the seed."""

    name: str
    runs: tuple[str, ...]
    scores: Mapping[str, Value]
    signatures: Mapping[str, str]
    difference: Difference | None
    """The test against the baseline, by nats per word; None for the baseline itself."""
    parameters: float | None
    weights: int
    """Bytes of the weights when loaded."""
    state: int | None
    """Bytes of the generation state, such as the KV cache."""
    tokens: float | None
    """Tokens read in training."""
    flops: float | None
    """Training FLOPs."""
    seconds: float | None
    """Training time in seconds, validation included."""
    speed: Speed | None
    by_position: tuple[Value | None, ...]
    """Nats per word for each range of positions; None for positions beyond the model's context."""
    samples: Sequence[Sequence[str]]
    """The samples for each prompt."""

    @property
    def texts_per_second(self) -> float | None:
        """Generation speed in texts per second; None where it was not measured."""
        return None if self.speed is None else self.speed.sentences

    @property
    def tokens_per_second(self) -> float | None:
        """Generation speed in tokens per second, by the system's own tokenizer; None where it was not measured."""
        return None if self.speed is None else self.speed.tokens

    @property
    def flops_per_token(self) -> float | None:
        """Training FLOPs per token read."""
        return self.flops / self.tokens if self.flops is not None and self.tokens else None


@dataclass(frozen=True, kw_only=True)
class LanguageComparison:
    """All systems, on the same lines."""

    task: str
    text: str
    """A description of the lines."""
    rows: int
    metric: str
    """The name of the main score; lower is better."""
    baseline: str
    layout: Layout
    """The windows of the loss by position: lines, or pieces of the stream."""
    context: int
    """Words per window of the stream."""
    held: int
    """Tokens after which the state is measured: at most the shortest context of all systems."""
    ranges: Sequence[Range]
    prompts: Sequence[str]
    systems: Sequence[LanguageSystem]
    notes: Sequence[str]

    def tables(self) -> list[Table]:
        """Quality, cost, loss by position, samples."""
        return language_tables.tables(self)

    def __str__(self) -> str:
        return comparison_tables.as_text(self.tables(), self.notes)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return language_tables.as_json(self)

    def to_csv(self) -> str:
        """One line per system, with every number."""
        return comparison_tables.as_csv([language_tables.flat(self, system) for system in self.systems])

    def to_markdown(self) -> str:
        """The tables in Markdown."""
        return comparison_tables.as_markdown(self.tables(), self.notes)

    def draw(self, path: Path | str) -> Path:
        """A figure: perplexity against parameters, FLOPs and seconds, and loss by position; PNG or SVG."""
        curves = {system.name: [value or Value(math.nan) for value in system.by_position] for system in self.systems}
        axis = "words before it in its line; words" if self.layout == "lines" else "words before it; words"
        lengths = comparison_figure.Lengths(self.ranges, curves, "nats per word", axis)
        title = f"{self.metric}, {self.rows:,} lines of {self.text}"
        return comparison_figure.draw_fields(Path(path), self, lengths, title)


def compare_language_models(groups: Sequence[Group], options: Options, notes: list[str]) -> LanguageComparison:
    """The comparison of systems whose runs have been opened, checked and read."""
    ordered = sorted(groups, key=lambda group: group.value, reverse=True)
    baseline = ordered[0]
    if options.baseline is not None:
        chosen = Path(options.baseline).resolve()
        baseline = next(group for group in groups if chosen in [each.path.resolve() for each in group.entrants])
    middles: list[LanguageEntrant] = [group.middle for group in ordered]  # type: ignore[misc]
    layout: Layout = "stream" if all(layout_of(each.model.task) == "stream" for each in middles) else "lines"
    for each in middles:
        options.say(f"{each.path}: loss by position")
    curves = [loss_by_position(each.model, each.references, layout=layout, width=options.context) for each in middles]
    ranges = ranges_of(curves, options.lengths)
    held = min([options.context, *(longest for each in middles if (longest := longest_of(each.model.model)))])
    systems = [
        system_of(group, baseline, of_ranges(curve, ranges), held, notes)
        for group, curve in zip(ordered, curves, strict=True)
    ]
    return LanguageComparison(
        task=middles[0].run.task,
        text=middles[0].text,
        rows=len(middles[0].rows),
        metric=baseline.metric,
        baseline=baseline.name,
        layout=layout,
        context=options.context,
        held=held,
        ranges=ranges,
        prompts=tuple(options.prompts),
        systems=systems,
        notes=[*notes_on(ordered, baseline, options), *notes],
    )


def of_ranges(curve: Curve, ranges: Sequence[Range]) -> tuple[Value | None, ...]:
    """The mean of every range; None for ranges that the curve does not reach."""
    scores = [curve.of(some) for some in ranges]
    return tuple(Value.of([score]) if score.count else None for score in scores)


def system_of(
    group: Group, baseline: Group, by_position: tuple[Value | None, ...], held: int, notes: list[str]
) -> LanguageSystem:
    """The system of these runs; problems are added to the notes."""
    infos = [entrant.run.info for entrant in group.entrants]
    middle: LanguageEntrant = group.middle  # type: ignore[assignment]
    model = middle.model.model
    difference = None
    if group is not baseline:
        difference = paired_bootstrap(middle.outputs, baseline.middle.outputs, middle.references, surprisal)
    return LanguageSystem(
        name=group.name,
        runs=tuple(str(entrant.path) for entrant in group.entrants),
        scores={name: Value.of([entrant.scores[name] for entrant in group.entrants]) for name in middle.scores},
        signatures={name: score.signature for name, score in middle.scores.items()},
        difference=difference,
        parameters=mean_of(infos, "parameters"),
        weights=sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values()),
        state=state_bytes(model, held),
        tokens=mean_of(infos, "tokens"),
        flops=flops_of(group, notes) or None,  # a count-based model has no matmuls to count
        seconds=mean_of(infos, "seconds"),
        speed=middle.speed(),
        by_position=by_position,
        samples=middle.write_samples(),
    )


def surprisal(outputs: Sequence[str], lines: References) -> Statistics:
    """Nats per word, from the log-probability of every line; `</s>` counts as a word."""
    table = np.array(
        [[-float(output), len(str(line).split()) + 1] for output, line in zip(outputs, lines, strict=True)]
    )
    return Statistics("nats per word", table, lambda sums: float(sums[0] / sums[1]), "unit:word|ends:counted|log:e")


def notes_on(groups: Sequence[Group], baseline: Group, options: Options) -> list[str]:
    """Notes that a reader needs to interpret the numbers."""
    entrants = [entrant for group in groups for entrant in group.entrants]
    why = "" if options.baseline is not None else f", the highest {baseline.metric}"
    notes = [f"the baseline is {baseline.name}{why}; difference and p are those of nats per word"]
    if any(len(group.entrants) > 1 for group in groups):
        notes.append("of several seeds: mean ± standard deviation; all other numbers are those of the median run")
    notes += budget_notes(groups)
    signatures = listed((entrant.scores[baseline.metric].signature, entrant) for entrant in entrants)
    for signature, found in signatures.items():
        named = "all" if len(signatures) == 1 else ", ".join(each.path.name for each in found)
        notes.append(f"{baseline.metric} of {named}: {signature}")
    if len({str(entrant.run.info.get("tokenizers")) for entrant in entrants}) > 1:
        notes.append("the tokenizers differ, so perplexities per token cannot be compared; those per word and byte can")
    return notes
