"""A comparison of language models as tables and plain values."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mallang.inspection.comparison_tables import NOTHING, Table, finite, plain, scientific, short, shown, what_it_is

if TYPE_CHECKING:
    from mallang.inspection.language_comparison import LanguageComparison, LanguageSystem


def tables(comparison: LanguageComparison) -> list[Table]:
    """Quality, cost, loss by position, and samples."""
    return [quality(comparison), cost(comparison), by_position(comparison), *samples(comparison)]


def quality(comparison: LanguageComparison) -> Table:
    """The perplexities of each system."""
    systems, metric = comparison.systems, comparison.metric
    interval = "± deviation" if all(len(system.runs) > 1 for system in systems) else "[95 %]"
    others = [name for name in systems[0].scores if name != metric]
    lines = []
    for system in systems:
        against = ["baseline", NOTHING]
        if system.difference is not None:
            against = [f"{system.difference.difference:+.3f}", f"{system.difference.p_value:.3f}"]
        values = [f"{system.scores[name].mean:.3f}" for name in others]
        lines.append([system.name, shown(system.scores[metric]), *values, *against])
    head = ["system", f"{metric} {interval}", *others, "difference", "p"]
    return Table(f"{comparison.rows:,} lines of {comparison.text}", head, lines)


def cost(comparison: LanguageComparison) -> Table:
    """The cost of each system: memory, training, generation."""
    lines = [
        [system.name, short(system.parameters), size(system.weights), size(system.state), short(system.tokens),
         scientific(system.flops_per_token), scientific(system.flops), plain(system.seconds),
         plain(system.texts_per_second), plain(system.tokens_per_second)]
        for system in comparison.systems
    ]  # fmt: skip
    head = ["system", "parameters", "weights", f"state of {comparison.held} tokens", "tokens", "FLOPs/token",
            "FLOPs", "seconds", "texts/s", "tokens/s"]  # fmt: skip
    return Table("cost", head, lines)


def by_position(comparison: LanguageComparison) -> Table:
    """The surprisal of a word by the number of words before it."""
    within = "in its line" if comparison.layout == "lines" else f"in a window of {comparison.context}"
    spans = [f"{some.name} ({some.count:,})" for some in comparison.ranges]
    lines = [
        [system.name, *(NOTHING if value is None else f"{value.mean:.3f}" for value in system.by_position)]
        for system in comparison.systems
    ]
    return Table(f"nats per word by the words before it {within} (words)", ["system", *spans], lines)


def samples(comparison: LanguageComparison) -> list[Table]:
    """The samples of all systems, one table per prompt."""
    found = []
    for place, prompt in enumerate(comparison.prompts or [""]):
        for number in range(len(comparison.systems[0].samples[place]) if comparison.systems[0].samples else 0):
            title = f"sample {number + 1}" + (f" after “{prompt}”" if prompt else "")
            lines = [[system.name, " ".join(system.samples[place][number].split())] for system in comparison.systems]
            found.append(Table(title, ["system", "text"], lines, is_text=True))
    return found


def flat(comparison: LanguageComparison, system: LanguageSystem) -> dict[str, Any]:
    """All numbers of a system, by column name."""
    line: dict[str, Any] = {"system": system.name, "runs": " ".join(system.runs)}
    for name, value in system.scores.items():
        line |= {name: value.mean, f"{name} low": value.low, f"{name} high": value.high}
        line |= {f"{name} deviation": value.deviation, f"{name} signature": system.signatures[name]}
    line |= {
        "difference in nats per word": system.difference and system.difference.difference,
        "p": system.difference and system.difference.p_value,
        "parameters": system.parameters,
        "bytes of weights": system.weights,
        f"bytes of the state of {comparison.held} tokens": system.state,
        "tokens": system.tokens,
        "FLOPs per token": system.flops_per_token,
        "FLOPs": system.flops,
        "seconds": system.seconds,
        "texts/s": system.texts_per_second,
        "tokens/s": system.tokens_per_second,
    }
    for some, mean in zip(comparison.ranges, system.by_position, strict=True):
        line[f"nats per word after {some.name} words"] = mean and mean.mean
    return line


def as_json(comparison: LanguageComparison) -> dict[str, Any]:
    """Plain values: JSON has no infinite numbers, so they are null."""
    systems = [
        {
            **what_it_is(system, comparison.baseline),
            "parameters": system.parameters,
            "weights_bytes": system.weights,
            "state_bytes": system.state,
            "tokens": system.tokens,
            "flops_per_token": system.flops_per_token,
            "flops": system.flops,
            "seconds": system.seconds,
            "texts_per_second": system.texts_per_second,
            "tokens_per_second": system.tokens_per_second,
            "by_position": [value and asdict(value) for value in system.by_position],
            "samples": [list(texts) for texts in system.samples],
        }
        for system in comparison.systems
    ]
    found = {
        "task": comparison.task,
        "text": comparison.text,
        "rows": comparison.rows,
        "metric": comparison.metric,
        "baseline": comparison.baseline,
        "layout": comparison.layout,
        "context": comparison.context,
        "held_tokens": comparison.held,
        "positions": [
            {"name": some.name, "low": some.low, "high": some.high, "words": some.count} for some in comparison.ranges
        ],
        "prompts": list(comparison.prompts),
        "systems": systems,
        "notes": list(comparison.notes),
    }
    return finite(found)  # type: ignore[no-any-return]


def size(count: int | None) -> str:
    """A number of bytes in short form: 2.01 MB."""
    if count is None:
        return NOTHING
    text = short(float(count))
    return f"{text} B" if text[-1].isdigit() else f"{text}B"
