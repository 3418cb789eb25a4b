"""What a small GPT learns from the examples in its prompt: accuracy by the number of shots, over seeds and sizes.

python -m benchmarks.few_shot                             # trains with seeds 1, 2, 3 and prints tables
python -m benchmarks.few_shot --dims 32,64,128 --write    # and in several sizes; writes results/few-shot-….json
python -m benchmarks.few_shot --trained runs/a runs/b     # runs that are there already

Sentences of miniworld-topics' test set are classified by topic, one of four. Labels are nonsense words that are drawn
again for every prompt, so without examples nothing identifies them: chance is 25 %. The table also has the topics' own
names, which occur in training, and a run that was fine-tuned on all training rows with their own names.

Then k examples are put to both uses (Mosbach et al. 2023, arXiv:2305.16938): the same k sentences, with nonsense labels
that are drawn once and stay, stand in the prompt of the model, or fine-tune it; then its prompt has no examples. There
are equally many of all topics. The learning rate and the number of updates are chosen on the validation split, which is
in favor of fine-tuning: it is more than k examples.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import Result, show, versions, write_result, write_tables

RECIPE = "modern-gpt-miniworld-prompts"
SHOTS = (0, 1, 2, 4, 8)
DRAWS = (1, 2, 3)
"""Seeds of the examples: every text is classified with as many different prompts."""
SAME_SHOTS = (4, 8)
"""Numbers of examples that are prompted with, and fine-tuned on: one or two of each topic."""
TUNED = (("30", "3e-4"), ("30", "1e-3"), ("100", "1e-3"), ("100", "3e-3"))
"""Updates and learning rates of fine-tuning on them, of which the validation split decides."""
PLAIN = ("--template", "{text} → {label}", "--separator", " / ")
"""What the rows of both look like."""


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
    parser.add_argument("--limit", type=int, metavar="N", help="classify the first N texts where examples are shared")
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
    if not arguments.no_tuning:
        shared = same_examples(runs, arguments)
        rows += [(label, statistics.mean(values), spread(values)) for label, values in shared.items()]
    show(f"{system}, {len(runs)} runs: accuracy", [("", "mean", "± over runs"), *rows])
    seconds = round(time.monotonic() - began, 1)
    return {
        f"few-shot-{system}-{arguments.language}-{label.replace(', ', '-').replace(' ', '-')}": Result(
            system=f"{system}, {label}", recipe=RECIPE, corpus="miniworld-topics", direction=arguments.language,
            split="test", metric="accuracy by examples in the prompt, %", value=round(value, 2), seconds=seconds,
            protocol=(
                f"label of the greatest likelihood among 4; mean over {len(runs)} training seeds"
                f"{'' if label.startswith('own') else f' and {len(DRAWS)} draws of examples'}; chance is 25; "
                f"± {deviation:.2f} over all of them"
            ),
            signature=versions("mallang", "torch"),
        )
        for label, value, deviation in rows
    }  # fmt: skip


def same_examples(runs: Sequence[Path], arguments: argparse.Namespace) -> dict[str, list[float]]:
    """Accuracies by label of the row: the same k examples in the prompt, and fine-tuned on."""
    found: dict[str, list[float]] = {}
    for shots in SAME_SHOTS:
        for draw in DRAWS:
            files = write_draw(shots, draw, arguments)
            for run in runs:
                prompted = ask_file(run, files, "test", shots, arguments)
                tuned = ask_file(best_tuned(run, files, shots, draw, arguments), files, "test", 0, arguments)
                found.setdefault(f"same examples, {shots} shots", []).append(prompted)
                found.setdefault(f"same examples, fine-tuned on {shots}", []).append(tuned)
    return found


def write_draw(shots: int, draw: int, arguments: argparse.Namespace) -> dict[str, Path]:
    """The examples of a draw, and both other splits, as files with its labels: a sentence and a nonsense word each."""
    from mallang.data.corpus import Config, open_corpus
    from mallang.data.miniworld_prompts import NAMES, NONSENSE

    language, random = arguments.language, np.random.default_rng(draw)
    words = dict(zip(NAMES[language], random.permutation(NONSENSE[language]).tolist(), strict=False))
    corpus = open_corpus(Config(corpus="miniworld-topics", columns=[language, f"{language}-topic"]), ("text", "label"))
    splits: dict[str, list[tuple[str, str]]] = {
        split: [(text, topic) for text, topic in corpus.split(split)] for split in ("train", "valid", "test")
    }
    splits["train"] = balanced(splits["train"], shots, random)
    files = {}
    for split, rows in splits.items():
        place = arguments.runs / f"few-shot-{language}-{draw}-{shots}-{split}.tsv"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("".join(f"{text}\t{words[topic]}\n" for text, topic in rows), "utf-8")
        files[split] = place.resolve()
    return files


def balanced(rows: Sequence[tuple[str, str]], count: int, random: np.random.Generator) -> list[tuple[str, str]]:
    """So many of the rows in a random order, in turn one of each topic; fewer are the first of more."""
    order = [rows[place] for place in random.permutation(len(rows)).tolist()]
    by_topic = {topic: [row for row in order if row[1] == topic] for topic in sorted({topic for _, topic in rows})}
    return [row for group in zip(*by_topic.values(), strict=False) for row in group][:count]


def best_tuned(run: Path, files: dict[str, Path], shots: int, draw: int, arguments: argparse.Namespace) -> Path:
    """The run fine-tuned on these examples that is best on the validation split; of equals the shortest."""
    lines = files["train"].with_suffix(".txt")
    command = ["prompt", str(run), "--examples", str(files["train"]), "--columns", "1,2", "--completed", str(lines)]
    subprocess.run([sys.executable, "-m", "mallang", *command, *PLAIN[:2], "-q"], check=True)
    scored = []
    for steps, rate in TUNED:
        how = [RECIPE, "--from", str(run), f"data.train={lines}", f"data.valid={lines}", "train.batch_tokens=512"]
        how += [f"train.steps={steps}", f"optimizer.learning_rate={rate}", "schedule.warmup=0", *shape_of(run)]
        how += [f"data.source={arguments.language}", f"seed={draw}"]
        tuned = trained(f"{run.name}-{shots}-of-{draw}-{steps}-{rate}", how, arguments)
        scored.append((-ask_file(tuned, files, "valid", 0, arguments), len(scored), tuned))
    return min(scored)[2]


def ask_file(run: Path, files: dict[str, Path], split: str, shots: int, arguments: argparse.Namespace) -> float:
    """The accuracy on a split with the examples of a draw in the prompt, or without any."""
    command = ["prompt", str(run), "--data", str(files[split]), "--columns", "1,2", *PLAIN, "--json"]
    command += ["--shots", str(shots), "--seed", "1", "--device", arguments.device]
    command += ["--examples", str(files["train"])] if shots else []
    command += [] if arguments.limit is None else ["--limit", str(arguments.limit)]
    said = subprocess.run([sys.executable, "-m", "mallang", *command], check=True, stdout=subprocess.PIPE, text=True)
    return float(json.loads(said.stdout)[0]["scores"][0]["value"])


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
    template = PLAIN if plain else ("--template", "miniworld")
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
    how = [RECIPE, "--from", str(run), f"data.train={lines}", f"data.valid={lines}", *shape_of(run)]
    how += ["train.steps=100", "train.batch_tokens=512", "optimizer.learning_rate=1e-3"]
    return trained(f"{run.name}-tuned", [*how, f"data.source={arguments.language}"], arguments)


def shape_of(run: Path) -> list[str]:
    """The sizes of a run's model, as changes to the recipe."""
    model = tomllib.loads((run / "recipe.toml").read_text("utf-8"))["model"]
    return [f"model.{key}={model[key]}" for key in ("layers", "dim", "heads") if key in model]


def collect(into: dict[int, list[float]], found: list[dict[str, Any]]) -> None:
    """Add the accuracies by shots."""
    for each in found:
        into[each["shots"]].append(each["scores"][0]["value"])


def spread(values: Sequence[float]) -> float:
    """The standard deviation, 0 of a single value."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


if __name__ == "__main__":
    main()
