"""The report of a comparison of objectives: tables, answers to the hypotheses, and score against compute as curves.

Differences are taken seed by seed, over the mean of the tasks that a hypothesis names, with Student's t interval: what
a few seeds do not settle is called so.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from pathlib import Path
from typing import Any

from mallang.errors import require
from mallang.inspection import comparison_tables
from mallang.inspection.comparison_figure import COLORS, MARKERS
from mallang.inspection.comparison_tables import Table
from mallang.inspection.figures import check_format, families, save
from mallang.inspection.objective_plan import RANDOM, Axis, Hypothesis, Plan
from mallang.inspection.objective_runs import Count, Line, Point, points_of

T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
     2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)  # fmt: skip
"""The 97.5 % quantile of Student's t with 1 to 30 degrees of freedom."""
MEAN = "mean of tasks"


@dataclass(frozen=True)
class Answer:
    """What the runs say of a hypothesis."""

    says: str
    answer: str
    """yes, no, not settled, or not measured."""
    difference: float | None
    low: float | None
    high: float | None
    seeds: int


@dataclass(frozen=True)
class Spot:
    """One objective with one budget on one task: a point of a curve."""

    objective: str
    task: str
    axis: Axis
    budget: int
    steps: int
    tokens: float
    """Tokens that were read."""
    flops: float
    scores: Mapping[int, float]
    """By seed."""

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return statistics.mean(self.scores.values())

    @property
    def deviation(self) -> float:
        """The standard deviation over seeds; 0 of one seed."""
        return statistics.stdev(self.scores.values()) if len(self.scores) > 1 else 0.0

    def __str__(self) -> str:
        return f"{self.mean:.2f}" + (f" ± {self.deviation:.2f}" if len(self.scores) > 1 else "")


@dataclass(frozen=True)
class Report:
    """All that is known so far."""

    plan: Plan
    counts: Mapping[str, Count]
    lines: Sequence[Line]

    @property
    def good(self) -> list[Line]:
        """The lines of models that were trained to the end."""
        return [line for line in self.lines if "failed" not in line]

    def spots(self) -> list[Spot]:
        """Every point of every curve that has a score."""
        found = []
        for point in points_of(self.plan, self.counts):
            mine = [line for line in self.good if (line["objective"], line["steps"]) == (point.objective, point.steps)]
            for axis, budget in point.budgets.items():
                for task in self.plan.tasks:
                    found += self.spot(point, axis, budget, task.name, mine)
                if len(self.plan.tasks) > 1:
                    found += self.spot(point, axis, budget, MEAN, mine)
        return found

    def spot(self, point: Point, axis: Axis, budget: int, task: str, lines: Sequence[Line]) -> list[Spot]:
        """One point, if there is a score; the mean is over the seeds that have all tasks."""
        names = [each.name for each in self.plan.tasks] if task == MEAN else [task]
        scores: dict[int, float] = {}
        for seed in self.plan.seeds:
            mine = [line["score"] for line in lines if line["seed"] == seed and line["task"] in names]
            if len(mine) == len(names):
                scores[seed] = statistics.mean(mine)
        if not scores:
            return []
        tokens = float(statistics.mean(line["tokens"] for line in lines)) if point.steps else 0.0
        flops = tokens * self.counts[point.objective].flops_per_token
        return [Spot(point.objective, task, axis, budget, point.steps, tokens, flops, scores)]

    @property
    def missing(self) -> int:
        """The number of scores that are not there yet."""
        points = points_of(self.plan, self.counts)
        wanted = {
            (point.objective, point.steps, seed, task.name)
            for point in points
            for seed in self.plan.seeds
            for task in self.plan.tasks
        }
        return len(wanted - {(each["objective"], each["steps"], each["seed"], each["task"]) for each in self.good})

    def answers(self) -> list[Answer]:
        """What the largest budget says of each hypothesis."""
        spots = self.spots()
        return [self.answer(hypothesis, spots) for hypothesis in self.plan.hypotheses]

    def answer(self, hypothesis: Hypothesis, spots: Sequence[Spot]) -> Answer:
        """The paired difference of two objectives over seeds, and what follows from it."""
        names = hypothesis.tasks or tuple(each.name for each in self.plan.tasks)
        most, mine = max(self.plan.budgets), [spot for spot in spots if spot.axis == hypothesis.axis]
        better = scores_by_seed(spot for spot in mine if (spot.objective, spot.budget) == (hypothesis.better, most))
        if hypothesis.than == RANDOM:
            recipe = self.plan.objective(hypothesis.better).recipe
            alike = {each.name for each in self.plan.objectives if each.scratch and each.recipe == recipe}
            than = scores_by_seed(spot for spot in mine if spot.objective in alike and not spot.budget)
        else:
            than = scores_by_seed(spot for spot in mine if (spot.objective, spot.budget) == (hypothesis.than, most))
        whole = [
            seed for seed in self.plan.seeds if all((name, seed) in each for each in (better, than) for name in names)
        ]
        apart = [statistics.mean(better[name, seed] - than[name, seed] for name in names) for seed in whole]
        return judged(hypothesis, apart)

    def tables(self) -> list[Table]:
        """Scores at the largest budget of both kinds, costs, held-out scores, and the answers."""
        spots, most = self.spots(), max(self.plan.budgets)
        tasks = [each.name for each in self.plan.tasks] + [MEAN] * (len(self.plan.tasks) > 1)
        found = []
        for axis in self.plan.axes:
            lines = []
            for name, budget in self.rows(most):
                mine = {
                    each.task: each for each in spots
                    if (each.objective, each.axis, each.budget) == (name, axis, budget)
                }  # fmt: skip
                if not mine:
                    continue
                one = next(iter(mine.values()))
                shown = name if budget else f"{name}, not pre-trained"
                cost = [comparison_tables.short(one.tokens), comparison_tables.scientific(one.flops)]
                lines.append([shown, *(str(mine[task]) if task in mine else "–" for task in tasks), *cost])
            found.append(Table(self.title(axis, most), ["objective", *tasks, "tokens", "FLOPs"], lines))
        held_out = self.held_out(most)
        if held_out:
            found.append(Table("On held-out text, at equal tokens", ["objective", "score", "value"], held_out))
        if self.plan.hypotheses:
            lines = [[each.says, difference_of(each), each.answer] for each in self.answers()]
            found.append(Table("Hypotheses", ["written down before the runs", "difference [95 %]", "answer"], lines,
                               is_text=True))  # fmt: skip
        return found

    def rows(self, most: int) -> list[tuple[str, int]]:
        """The lines of a table: random weights first, then every objective."""
        scratch = [(each.name, 0) for each in self.plan.objectives if each.scratch and 0 in self.plan.budgets]
        return [*scratch, *((each.name, most) for each in self.plan.objectives)]

    def title(self, axis: Axis, most: int) -> str:
        """The title of a table."""
        if axis == "tokens":
            return f"Equal tokens: {most:,}"
        flops = most * self.counts[self.plan.reference].flops_per_token
        return f"Equal FLOPs: {comparison_tables.scientific(flops)}, all networks counted"

    def held_out(self, most: int) -> list[list[str]]:
        """The scores of pre-trained models on held-out text, mean and deviation over seeds."""
        rows = []
        for point in points_of(self.plan, self.counts):
            if point.budgets.get(self.plan.axes[0]) != most:
                continue
            mine = {
                line["seed"]: line["held_out"] for line in self.good
                if (line["objective"], line["steps"]) == (point.objective, point.steps)
            }  # fmt: skip
            for score in next(iter(mine.values()), {}):
                values = [each[score] for each in mine.values() if score in each]
                spread = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
                rows.append([point.objective, score, f"{statistics.mean(values):.3f}{spread}"])
        return rows

    def notes(self) -> list[str]:
        """How to read the numbers, and what is missing."""
        metrics = {line["task"]: f"{line['metric']} on {line['rows']:,} rows" for line in self.good}
        count = len(self.plan.seeds)
        scores = "; ".join(f"{name}: {what}" for name, what in sorted(metrics.items()))
        found = [
            f"mean ± standard deviation over {count} seed{'s' * (count != 1)}{'; ' * bool(scores)}{scores}",
            "FLOPs are those of pre-training, forward and backward; every budget is a run of its own",
        ]
        failed = Counter(f"{line['objective']} on {line['task']}: {line['failed']}" for line in self.lines
                         if "failed" in line)  # fmt: skip
        found += [f"{times} runs of {said}" for said, times in failed.items()]
        if self.missing:
            found.append(f"{self.missing} scores are missing: the same command resumes")
        return found

    def __str__(self) -> str:
        return comparison_tables.as_text(self.tables(), self.notes())

    def to_markdown(self, figure: str = "") -> str:
        """The whole report."""
        picture = f"![score against compute]({figure})\n\n" if figure else ""
        return f"# {self.plan.title}\n\n{picture}{comparison_tables.as_markdown(self.tables(), self.notes())}"

    def to_json(self) -> dict[str, Any]:
        """Plain values: the plan, the costs, every point of every curve, and every line."""
        spots = [{**asdict(spot), "mean": spot.mean, "deviation": spot.deviation} for spot in self.spots()]
        return {
            "plan": asdict(self.plan), "counts": {name: asdict(each) for name, each in self.counts.items()},
            "answers": [asdict(each) for each in self.answers()], "curves": spots, "lines": list(self.lines),
            "missing": self.missing,
        }  # fmt: skip

    def draw(self, path: Path) -> Path:
        """A panel per task and axis: the score against what pre-training cost, with a band of one deviation."""
        check_format(path)
        letters = {"fontfamily": families(), "parse_math": False}
        spots, axes = self.spots(), self.plan.axes
        tasks = list(dict.fromkeys(spot.task for spot in spots)) or [self.plan.tasks[0].name]
        size = (5.2 * len(axes) + 1.8, 3.4 * len(tasks) + 0.6)
        figure = require("matplotlib.figure", "plots").Figure(figsize=size, layout="constrained")
        fields = figure.subplots(len(tasks), len(axes), squeeze=False)
        for row, task in zip(fields, tasks, strict=True):
            for field, axis in zip(row, axes, strict=True):
                field.set_xlabel({"tokens": "tokens", "flops": "FLOPs of pre-training"}[axis], **letters)
                field.set_ylabel(task, **letters)
                field.grid(alpha=0.3)
                self.draw_curves(field, [spot for spot in spots if (spot.task, spot.axis) == (task, axis)])
        handles, labels = fields[0][0].get_legend_handles_labels()
        if handles:
            figure.legend(handles, labels, loc="outside right upper", prop={"family": families()})
        figure.suptitle(self.plan.title, **letters)
        save(figure, path)
        return path

    def draw_curves(self, field: Any, spots: Sequence[Spot]) -> None:
        """The curves of one panel; random weights are a dotted line."""
        for number, objective in enumerate(self.plan.objectives):
            mine = [spot for spot in spots if spot.objective == objective.name]
            color, marker = COLORS[number % len(COLORS)], MARKERS[number % len(MARKERS)]
            for spot in mine:
                if not spot.budget:
                    field.axhline(spot.mean, color=color, linestyle=":", label=f"{objective.name}, not pre-trained")
            mine = sorted((spot for spot in mine if spot.budget), key=lambda spot: spot.budget)
            if not mine:
                continue
            cost = [getattr(spot, spot.axis) for spot in mine]
            means, spreads = [spot.mean for spot in mine], [spot.deviation for spot in mine]
            field.set_xscale("log")
            field.plot(cost, means, color=color, marker=marker, label=objective.name)
            low = [mean - spread for mean, spread in zip(means, spreads, strict=True)]
            high = [mean + spread for mean, spread in zip(means, spreads, strict=True)]
            field.fill_between(cost, low, high, color=color, alpha=0.15, linewidth=0)
            for at, spot in zip(cost, mine, strict=True):
                field.plot([at] * len(spot.scores), list(spot.scores.values()), ".", color=color, alpha=0.5)


def scores_by_seed(spots: Iterable[Spot]) -> dict[tuple[str, int], float]:
    """Scores by task and seed."""
    return {(spot.task, seed): score for spot in spots for seed, score in spot.scores.items()}


def judged(hypothesis: Hypothesis, apart: Sequence[float]) -> Answer:
    """The answer that paired differences, one per seed, give to a hypothesis."""
    if not apart:
        return Answer(hypothesis.says, "not measured", None, None, None, 0)
    mean = statistics.mean(apart)
    if len(apart) < 2:
        return Answer(hypothesis.says, "not settled: one seed", mean, None, None, 1)
    quantile = T[len(apart) - 2] if len(apart) - 2 < len(T) else 1.96
    half = quantile * statistics.stdev(apart) / sqrt(len(apart))
    low, high = mean - half, mean + half
    said = "yes" if low > hypothesis.margin else "no" if high < hypothesis.margin else "not settled"
    return Answer(hypothesis.says, said if said != "not settled" else f"{said} by {len(apart)} seeds", mean, low, high,
                  len(apart))  # fmt: skip


def difference_of(answer: Answer) -> str:
    """A difference with its interval."""
    if answer.difference is None:
        return "–"
    interval = "" if answer.low is None else f" [{answer.low:+.2f}, {answer.high:+.2f}]"
    return f"{answer.difference:+.2f}{interval}"


def write(report: Report, folder: Path) -> list[Path]:
    """The report as Markdown, as an SVG figure and as JSON."""
    from mallang.runs.files import replace_file, to_json

    figure = report.draw(folder / "curves.svg")
    page, values = folder / "report.md", folder / "report.json"
    replace_file(page, report.to_markdown(figure.name).encode("utf-8"))
    replace_file(values, to_json(comparison_tables.finite(report.to_json())))
    return [page, figure, values]
