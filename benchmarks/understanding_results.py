"""Lines of classifiers and taggers: which setting is best on dev, tables, files in results/, and the kept sweep."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from benchmarks import report
from benchmarks.report import Result
from benchmarks.understanding_order import RIGHT, keep_right, order_results, show_order
from benchmarks.understanding_runs import ALL, LABELS, NEW, Line
from mallang.errors import UserError
from mallang.evaluation.bag_of_words import harmonic, precision_and_recall
from mallang.evaluation.score import interval

SWEEP = Path(__file__).with_name("understanding-sweep.jsonl")
SPLITS = {"dev": "valid", ALL: "test", NEW: "test"}
"""The parts of a line that hold scores, and the split of each."""
CHOSEN_BY = {"macro_f1": "macro-f1", "f1": "span-f1", "spearman": "spearman", "pearson": "pearson"}
"""The score that a metric of training is called in lines, where it is not accuracy."""


def read_lines(path: Path) -> list[Line]:
    """The lines of a file; the last one may be cut where the time was over."""
    found: list[Line] = []
    texts = path.read_text("utf-8").splitlines()
    for number, text in enumerate(texts, start=1):
        try:
            found.append(json.loads(text))
        except ValueError as error:
            if number < len(texts):
                raise UserError(f"line {number} is no JSON: {error}", where=str(path)) from error
    return found


def chief(line: Line, part: str = "dev") -> tuple[str, float]:
    """The score of a line that settings are chosen by, and its name."""
    scores = line[part]
    order = (CHOSEN_BY.get(line["metric"], "accuracy"), "role-f1", "answer-f1", "span-f1", "tag-accuracy", "accuracy")
    label = next(label for label in order if label in scores)
    return label, float(scores[label]["value"])


def summary(line: Line) -> str:
    """A line for the terminal."""
    about = f"{line['stage']} {line['system']} {' '.join(line['overrides'])} seed {line['seed']}"
    if "failed" in line:
        return f"{about}: {line['failed']}"
    label, value = chief(line)
    test = f", test {chief(line, ALL)[1]:.2f}, new {chief(line, NEW)[1]:.2f}" if ALL in line else ""
    return f"{about}: dev {label} {value:.2f}{test}, {line['steps']} steps, {line['wall']} s"


def show(files: Sequence[Path]) -> None:
    """Print the sweep by system, and the final runs with their means."""
    lines = [line for path in files for line in read_lines(path)]
    good = [line for line in lines if "failed" not in line]
    for system in dict.fromkeys(line["system"] for line in good if line["stage"] == "sweep"):
        mine = sorted(
            (line for line in good if line["system"] == system and line["stage"] == "sweep"), key=lambda x: -chief(x)[1]
        )
        rows = [(" ".join(line["overrides"]) or "as it is", f"{chief(line)[1]:.2f}", line["wall"]) for line in mine]
        report.show(f"{system}, dev {chief(mine[0])[0]}", [("setting", "score", "seconds"), *rows])
    finals: list[Sequence[object]] = [("system", "dev", "test", "new texts", "seeds", "parameters", "seconds")]
    for system in dict.fromkeys(line["system"] for line in good if line["stage"] == "final"):
        mine = [line for line in good if line["system"] == system and line["stage"] == "final"]
        means = [spread(chief(line, part)[1] for line in mine) if part in mine[0] else "" for part in SPLITS]
        finals.append((system, *means, len(mine), f"{mine[0]['parameters']:,}", mine[0]["wall"]))
    report.show("final runs", finals)
    show_order(good)
    show_gains(good)
    for line in lines:
        if "failed" in line:
            print(summary(line))


def show_gains(lines: Sequence[Line]) -> None:
    """Print by how much each labeler of roles is above the first one of its corpus: F1 of the counts of all seeds."""
    rows = [
        (system, first, f"{value:+.2f}", f"{low:+.2f} to {high:+.2f}")
        for system, first, _, value, low, high in gains(lines)
    ]
    if rows:
        report.show("test, F1 of roles", [("system", "above", "gain", "95 % interval"), *rows])


def gains(lines: Sequence[Line]) -> Iterable[tuple[str, str, list[Line], float, float, float]]:
    """Every labeler of roles but the first of its corpus: the first, its lines, the gain in F1 and its interval."""
    counted = [line for line in lines if "counts" in line]
    for corpus in dict.fromkeys(line["corpus"] for line in counted):
        mine: dict[str, list[Line]] = {}
        for line in counted:
            if line["corpus"] == corpus:
                mine.setdefault(line["system"], []).append(line)
        tables = {system: np.sum([line["counts"] for line in own], axis=0) for system, own in mine.items()}
        first, *others = tables
        for system in others:
            yield system, first, mine[system], *gain(tables[first], tables[system])


def gain(first: np.ndarray, other: np.ndarray) -> tuple[float, float, float]:
    """The gain in F1 on the same sentences, and its interval by a paired bootstrap over sentences."""

    def measure(sums: np.ndarray) -> float:
        return f1_of(sums[3:]) - f1_of(sums[:3])

    joined = np.concatenate((first, other), axis=1)
    return measure(joined.sum(axis=0)), *interval(joined, measure)


def f1_of(sums: np.ndarray) -> float:
    """F1 in percent of right, output and gold counts."""
    return 100 * harmonic(*precision_and_recall(*sums.tolist()))


def spread(values: Iterable[float]) -> str:
    """Mean and standard deviation."""
    numbers = list(values)
    deviation = f" ± {statistics.stdev(numbers):.2f}" if len(numbers) > 1 else ""
    return f"{statistics.mean(numbers):.2f}{deviation}"


def collect(files: Sequence[Path], folder: Path = report.RESULTS, sweep: Path = SWEEP, right: Path = RIGHT) -> None:
    """Write every value of final runs into results/, and add what is new to the kept sweep and right texts."""
    lines = [line for path in files for line in read_lines(path) if "failed" not in line]
    for line in lines:
        if not line["commit"] or line["commit"].endswith("-dirty"):
            raise UserError(f"the runs were made by code of no commit ({line['commit']})", todo="run … --commit SUM")
    finals = [line for line in lines if line["stage"] == "final"]
    values = [each for line in finals for each in results(line)]
    measured = {line["corpus"] for line in finals}
    values += order_results([each for each in keep_right(finals, right) if each["corpus"] in measured])
    values += [result_of_gain(*each) for each in gains(lines)]
    for name, result in values:
        report.write_result(name, result, folder)
    kept = read_lines(sweep) if sweep.exists() else []
    kept += [line for line in lines if line["stage"] == "sweep" and line not in kept]
    sweep.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in kept), "utf-8")
    if folder == report.RESULTS:
        report.write_tables()
    print(f"{len(values)} values written to {folder}, {len(kept)} lines of the sweep in {sweep}")


def results(line: Line) -> list[tuple[str, Result]]:
    """The values of a final run, with the names of their files."""
    names = {label: name for name, label in LABELS.items()}
    found = []
    for part, split in SPLITS.items():
        for label, score in line.get(part, {}).items():
            result = Result(
                system=line["model"].replace("_", "-"),
                recipe=line["recipe"],
                overrides=list(line["overrides"]),
                corpus=line["corpus"],
                split=split,
                protocol=protocol(line, part, score),
                metric=f"{names[label]}{' on new texts' if part == NEW else ''}, %",
                value=round(score["value"], 2),
                seed=line["seed"],
                commit=line["commit"],
                hardware=line["hardware"],
                seconds=line["seconds"],
                signature=score["signature"],
            )
            file = f"{line['system']}-{split}-{label}{'-new' if part == NEW else ''}-seed{line['seed']}"
            found.append((file, result))
    return found


def result_of_gain(
    system: str, first: str, lines: list[Line], value: float, low: float, high: float
) -> tuple[str, Result]:
    """A gain in F1 of roles over another system, with the name of its file."""
    line = lines[0]
    told = f"over {first}, counts of {len(lines)} seeds, paired over sentences, 95 % interval {low:+.2f} to {high:+.2f}"
    return f"{system}-test-gain", Result(
        system=line["model"].replace("_", "-"), recipe=line["recipe"], overrides=list(line["overrides"]),
        corpus=line["corpus"], split="test", metric="gain in role F1, points", value=round(value, 2), protocol=told,
        commit=line["commit"], hardware=line["hardware"],
    )  # fmt: skip


def protocol(line: Line, part: str, score: dict[str, float]) -> str:
    """How a value was measured, in words."""
    which = "texts that are not in the training split" if part == NEW else "texts"
    interval = "" if score["low"] is None else f", 95 % interval {score['low']:.2f} to {score['high']:.2f}"
    size = f", {line['parameters']:,} parameters" if line["parameters"] else ""
    end = "settings chosen on valid" if ALL in line else "there is no test split, and valid chose no setting"
    return f"{score['count']:,} {which}{interval}{size}; {end}"
