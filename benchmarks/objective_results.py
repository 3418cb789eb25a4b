"""The values of `mallang compare --objectives`, one file each in results/: every score, and every answered hypothesis.

python -m benchmarks.objective_results objectives/miniworld-ko
python -m benchmarks.objective_results objectives/bills --commit 0123456789ab --hardware "NVIDIA H200, …"

The folder is that of --out; its name becomes part of the file names. A score is one model of one seed: pre-trained with
one budget, then fine-tuned on one task. --commit and --hardware say what was measured and where, if not this tree here.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks import report
from benchmarks.report import Result
from mallang.inspection.objective_plan import Axis, Plan, read_plan
from mallang.inspection.objective_report import Answer, Report
from mallang.inspection.objective_runs import Count, Line, Point, points_of, read_lines

EQUAL: dict[Axis, str] = {"tokens": "tokens", "flops": "FLOPs"}
"""What budgets of an axis have in common."""


def read_report(folder: Path) -> Report:
    """What a folder of a comparison knows."""
    plan, counts = read_plan(folder / "plan.toml"), json.loads((folder / "counts.json").read_text("utf-8"))
    return Report(plan, {name: Count(**each) for name, each in counts.items()}, read_lines(folder))


def results_of(found: Report, prefix: str) -> dict[str, Result]:
    """Every value by file name."""
    results: dict[str, Result] = {}
    for point in points_of(found.plan, found.counts):
        for line in found.good:
            if (line["objective"], line["steps"]) == (point.objective, point.steps):
                name = [prefix, named(point.objective), str(point.steps), named(line["task"]), f"seed{line['seed']}"]
                results["-".join(name)] = score_of(found.plan, found.counts, point, line)
    for number, answer in enumerate(found.answers(), start=1):
        if answer.difference is not None:
            results[f"{prefix}-hypothesis{number}"] = difference_of(found.plan, answer)
    return results


def score_of(plan: Plan, counts: Mapping[str, Count], point: Point, line: Line) -> Result:
    """The score of one model."""
    task = next(each for each in plan.tasks if each.name == line["task"])
    count, is_scratch = counts[point.objective], not point.steps
    tokens = 0 if is_scratch else line["tokens"]
    budgets = [f"{budget:,} {plan.reference} tokens" for budget in dict.fromkeys(point.budgets.values())]
    axes = " and ".join(EQUAL[axis] for axis in point.budgets)
    how = "not pre-trained" if is_scratch else f"equal {axes} to {', '.join(budgets)}"
    return Result(
        system=point.objective,
        recipe=plan.objective(point.objective).recipe,
        split=task.split,
        protocol=f"{plan.title}: {how}, then fine-tuned",
        metric=f"{line['metric']} on {task.name}",
        value=round(line["score"], 4),
        seed=line["seed"],
        seconds=round(line["seconds"] + line["fine_tuning_seconds"], 1),
        signature=f"{point.steps:,} updates, {tokens:,.0f} tokens, {tokens * count.flops_per_token:.3g} FLOPs of "
        f"pre-training; {line['parameters']:,} weights; {line['rows']:,} rows scored",
    )


def difference_of(plan: Plan, answer: Answer) -> Result:
    """The paired difference of a hypothesis, in points, at the largest budget."""
    interval = "" if answer.low is None else f"95 % interval {answer.low:+.2f} to {answer.high:+.2f}; "
    assert answer.difference is not None
    return Result(
        system=answer.says,
        protocol=f"{plan.title}: difference in points at the largest budget, paired by seed, {answer.seeds} seeds",
        metric="difference of objectives, points",
        value=round(answer.difference, 4),
        signature=f"{interval}answer: {answer.answer}",
    )


def named(text: str) -> str:
    """A name as part of a file name."""
    return re.sub(r"[^\w]+", "-", text.lower()).strip("-")


def write(folder: Path, results: Path, commit: str | None, hardware: str | None) -> list[Path]:
    """Write all values of a folder; those of the same comparison that were there before are replaced."""
    prefix = f"objectives-{named(folder.resolve().name)}"
    found = results_of(read_report(folder), prefix)
    for old in results.glob(f"{prefix}-*.json"):
        old.unlink()
    return [
        report.write_result(name, replace(each, commit=commit, hardware=hardware), results)
        for name, each in found.items()
    ]


def collect(given: argparse.Namespace) -> None:
    """Write what the folders hold."""
    for folder in given.folders:
        print(f"{folder}: {len(write(folder, report.RESULTS, given.commit, given.hardware))} values")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="objective_results", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--commit", help="the commit that was measured; that of this tree if not given")
    parser.add_argument("--hardware", help="where it was measured; this machine if not given")
    parser.set_defaults(do=collect)
    report.do_what_is_asked(parser)


if __name__ == "__main__":
    main()
