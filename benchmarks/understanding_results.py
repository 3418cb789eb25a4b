"""Lines of classifiers and taggers: which setting is best on dev, tables, files in results/, and the kept sweep."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from benchmarks import report
from benchmarks.report import Result
from benchmarks.understanding_runs import ALL, LABELS, NEW, Line, is_right
from mallang.errors import UserError
from mallang.evaluation.score import RESAMPLES, SEED

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
    for line in lines:
        if "failed" in line:
            print(summary(line))


def show_order(lines: Sequence[Line]) -> None:
    """Print the classifiers of every corpus in the order of their accuracy, with how far each is from the first."""
    classified = [line for line in lines if "right" in line]
    for corpus in dict.fromkeys(line["corpus"] for line in classified):
        mine = [line for line in classified if line["corpus"] == corpus]
        found = {system: mean_right([line for line in mine if line["system"] == system]) for system in systems_of(mine)}
        ranked = sorted(found, key=lambda system: -found[system].mean())
        rows = [
            (system, f"{100 * found[system].mean():.2f}", *gap(found[ranked[0]], found[system])) for system in ranked
        ]
        if len(rows) > 1:
            report.show(f"{corpus}, test", [("system", "accuracy", "behind the first", "95 % interval"), *rows])


def systems_of(lines: Sequence[Line]) -> list[str]:
    """The systems of lines, each once."""
    return list(dict.fromkeys(line["system"] for line in lines))


def mean_right(lines: Sequence[Line]) -> np.ndarray:
    """For every test text the share of seeds that are right."""
    shares: np.ndarray = np.mean([is_right(line["right"], line[ALL]["accuracy"]["count"]) for line in lines], axis=0)
    return shares


def gap(first: np.ndarray, other: np.ndarray) -> tuple[str, str]:
    """The difference of two systems on the same texts, and its interval by a paired bootstrap over texts."""
    difference = 100 * (first - other)
    random, count = np.random.default_rng(SEED), len(difference)  # one draw at a time: all of 50,000 texts take 400 MB
    means = [difference[random.integers(count, size=count)].mean() for _ in range(RESAMPLES)]
    low, high = np.quantile(means, (0.025, 0.975))
    return f"{difference.mean():.2f}", f"{low:.2f} to {high:.2f}"


def spread(values: Iterable[float]) -> str:
    """Mean and standard deviation."""
    numbers = list(values)
    deviation = f" ± {statistics.stdev(numbers):.2f}" if len(numbers) > 1 else ""
    return f"{statistics.mean(numbers):.2f}{deviation}"


def collect(files: Sequence[Path], folder: Path = report.RESULTS, sweep: Path = SWEEP) -> None:
    """Write every value of final runs into results/, and add what is new of the sweep to the kept one."""
    lines = [line for path in files for line in read_lines(path) if "failed" not in line]
    for line in lines:
        if not line["commit"] or line["commit"].endswith("-dirty"):
            raise UserError(f"the runs were made by code of no commit ({line['commit']})", todo="run … --commit SUM")
    values = [each for line in lines if line["stage"] == "final" for each in results(line)]
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


def protocol(line: Line, part: str, score: dict[str, float]) -> str:
    """How a value was measured, in words."""
    which = "texts that are not in the training split" if part == NEW else "texts"
    interval = "" if score["low"] is None else f", 95 % interval {score['low']:.2f} to {score['high']:.2f}"
    size = f", {line['parameters']:,} parameters" if line["parameters"] else ""
    end = "settings chosen on valid" if ALL in line else "there is no test split, and valid chose no setting"
    return f"{score['count']:,} {which}{interval}{size}; {end}"
