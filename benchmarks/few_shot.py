"""What a small GPT learns from the examples in its prompt: accuracy by the number of shots, over seeds and sizes.

python -m benchmarks.few_shot                             # trains with seeds 1, 2, 3 and prints tables
python -m benchmarks.few_shot --dims 32,64,128 --write    # and in several sizes; writes results/few-shot-….json
python -m benchmarks.few_shot --trained runs/a runs/b     # runs that are there already

Sentences of miniworld-topics' test set are classified by topic, one of four. Labels are nonsense words that are drawn
again for every prompt, so without examples nothing identifies them: chance is 25 %. The table also has the topics' own
names, which occur in training, and a run that was fine-tuned on the same rows with their own names (labels that change
with every prompt cannot be fine-tuned on).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import Result, show, versions, write_result, write_tables

RECIPE = "modern-gpt-miniworld-prompts"
SHOTS = (0, 1, 2, 4, 8)
DRAWS = (1, 2, 3)
"""Seeds of the examples: every text is classified with as many different prompts."""


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.few_shot", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dims", default="", metavar="32,64", help="sizes besides the recipe's own")
    parser.add_argument("--seeds", default="1,2,3", help="1,2,3 if not given")
    parser.add_argument("--language", choices=("ko", "en"), default="ko")
    parser.add_argument("--trained", nargs="+", type=Path, metavar="RUN", help="measure these and train nothing")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where runs go: runs if not given")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:1")
    parser.add_argument("--no-tuning", action="store_true", help="leave out fine-tuning")
    parser.add_argument("--write", action="store_true", help="write the values into results/")
    arguments = parser.parse_args()
    results: dict[str, Result] = {}
    if arguments.trained:
        results |= measured("given", arguments.trained, arguments)
    else:
        for dim in [None, *filter(None, arguments.dims.split(","))]:
            system = "modern-gpt" if dim is None else f"modern-gpt-{dim}"
            results |= measured(system, [train(system, dim, seed, arguments) for seed in seeds(arguments)], arguments)
    if arguments.write:
        for name, result in results.items():
            print(f"  {write_result(name, result)}")
        write_tables()


def seeds(arguments: argparse.Namespace) -> list[int]:
    """The seeds to train with."""
    return [int(seed) for seed in arguments.seeds.split(",")]


def train(system: str, dim: str | None, seed: int, arguments: argparse.Namespace) -> Path:
    """A run of one size and seed; one that is finished is taken as it is."""
    name = f"few-shot-{system}-{arguments.language}-{seed}"
    changes = [f"seed={seed}", f"data.source={arguments.language}", *([] if dim is None else [f"model.dim={dim}"])]
    return trained(name, [RECIPE, *changes], arguments)


def trained(name: str, how: Sequence[str], arguments: argparse.Namespace) -> Path:
    """The folder of a run, trained if it is not there."""
    folder: Path = arguments.runs / name
    info = folder / "run.json"
    if not info.exists() or json.loads(info.read_text("utf-8"))["status"] != "finished":
        command = ["train", *how, "--name", name, "--runs", str(arguments.runs), "--device", arguments.device]
        subprocess.run([sys.executable, "-m", "mallang", *command], check=True)
    return folder


def measured(system: str, runs: Sequence[Path], arguments: argparse.Namespace) -> dict[str, Result]:
    """The values of one size by file name: means over runs and draws of examples."""
    began = time.monotonic()
    fresh = {shots: [] for shots in SHOTS}  # type: dict[int, list[float]]
    named: dict[int, list[float]] = {0: [], 8: []}
    tuned: list[float] = []
    for run in runs:
        for draw in DRAWS:
            collect(fresh, ask(run, draw, arguments, relabel=True))
        collect(named, ask(run, 1, arguments, relabel=False, shots=(0, 8)))
        if not arguments.no_tuning:
            collect({0: tuned}, ask(tune(run, arguments), 1, arguments, relabel=False, shots=(0,), plain=True))
    rows: list[tuple[str, float, float]] = [
        (f"fresh labels, {shots} shots", statistics.mean(values), spread(values)) for shots, values in fresh.items()
    ]
    rows += [(f"own names, {shots} shots", statistics.mean(values), spread(values)) for shots, values in named.items()]
    rows += [("own names, fine-tuned, 0 shots", statistics.mean(tuned), spread(tuned))] if tuned else []
    show(f"{system}, {len(runs)} runs: accuracy", [("", "mean", "± over runs"), *rows])
    seconds = round(time.monotonic() - began, 1)
    return {
        f"few-shot-{system}-{arguments.language}-{label.replace(', ', '-').replace(' ', '-')}": Result(
            system=f"{system}, {label}", recipe=RECIPE, corpus="miniworld-topics", direction=arguments.language,
            split="test", metric="accuracy by examples in the prompt, %", value=round(value, 2), seconds=seconds,
            protocol=(
                f"label of the greatest likelihood among 4; mean over {len(runs)} training seeds"
                f"{f' and {len(DRAWS)} draws of examples' if label.startswith('fresh') else ''}; chance is 25; "
                f"± {deviation:.2f} over all of them"
            ),
            signature=versions("mallang", "torch"),
        )
        for label, value, deviation in rows
    }  # fmt: skip


def ask(
    run: Path,
    draw: int,
    arguments: argparse.Namespace,
    *,
    relabel: bool,
    shots: Sequence[int] = SHOTS,
    plain: bool = False,
) -> list[dict[str, Any]]:
    """The output of the real command."""
    from mallang.data.miniworld_prompts import NONSENSE

    columns = f"{arguments.language},{arguments.language}-topic"
    template = ["--template", "{text} → {label}", "--separator", " / "] if plain else ["--template", "miniworld"]
    command = ["prompt", str(run), "--corpus", "miniworld-topics", "--columns", columns, *template, "--json"]
    command += ["--shots", ",".join(map(str, shots)), "--seed", str(draw), "--device", arguments.device]
    command += ["--relabel", ",".join(NONSENSE[arguments.language])] if relabel else []
    said = subprocess.run([sys.executable, "-m", "mallang", *command], check=True, stdout=subprocess.PIPE, text=True)
    found: list[dict[str, Any]] = json.loads(said.stdout)
    return found


def tune(run: Path, arguments: argparse.Namespace) -> Path:
    """The run fine-tuned on the rows that examples are drawn from, each followed by its label."""
    lines = (arguments.runs / f"{run.name}-lines.txt").resolve()
    columns = f"{arguments.language},{arguments.language}-topic"
    command = ["prompt", str(run), "--corpus", "miniworld-topics", "--columns", columns, "--completed", str(lines)]
    command += ["--template", "{text} → {label}", "-q"]
    subprocess.run([sys.executable, "-m", "mallang", *command], check=True)
    how = [RECIPE, "--from", str(run), f"data.train={lines}", f"data.valid={lines}"]
    how += ["train.steps=100", "train.batch_tokens=512", "optimizer.learning_rate=1e-3"]
    return trained(f"{run.name}-tuned", [*how, f"data.source={arguments.language}"], arguments)


def collect(into: dict[int, list[float]], found: list[dict[str, Any]]) -> None:
    """Add the accuracies by shots."""
    for each in found:
        into[each["shots"]].append(each["scores"][0]["value"])


def spread(values: Sequence[float]) -> float:
    """The standard deviation, 0 of a single value."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


if __name__ == "__main__":
    main()
