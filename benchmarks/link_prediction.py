"""TransE on FB15k-237 and WN18RR: settings chosen by MRR on valid, then three seeds on test; or on miniworld's graph.

python -m benchmarks.link_prediction run --work FOLDER --out lines.jsonl --device cuda --seconds 60
python -m benchmarks.link_prediction show lines.jsonl
python -m benchmarks.link_prediction collect lines.jsonl            # results/

Every run ends by its recipe or after `--seconds` of training. The sweep has one run per setting, with seed 1, and looks
at valid alone. Test scores are filtered by all splits, over heads and tails, ties at their mean rank; a triple with an
entity that training never saw counts as last. Every run adds one line to the file at once; what is there is kept.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.report import Result
from benchmarks.understanding_results import read_lines

RECIPES = {"fb15k-237": "transe-fb15k-237", "wn18rr": "transe-wn18rr", "miniworld": "transe-miniworld"}
SETTINGS: dict[str, Sequence[tuple[str, ...]]] = {
    "fb15k-237": (
        (), ("task.negatives=1024",), ("task.negatives=0",),
        ("optimizer.learning_rate=5e-4", "train.batch_tokens=1024", "train.validate_every=2660"),
    ),
    "wn18rr": ((), ("task.negatives=1024",), ("task.negatives=0",), ("optimizer.learning_rate=0.1",)),
    "miniworld": ((),),
}  # fmt: skip
"""Overrides of the recipe to choose from; of equal ones the first is taken."""
PUBLISHED = {
    "fb15k-237": {"MRR": 31.3, "hits@1": 22.1, "hits@3": 34.7, "hits@10": 49.7},
    "wn18rr": {"MRR": 22.8, "hits@1": 5.3, "hits@3": 36.8, "hits@10": 52.0},
}
"""TransE as LibKGE reports it (github.com/uma-pi1/kge)."""
METRICS = ("MRR", "hits@1", "hits@3", "hits@10")


def run(arguments: argparse.Namespace) -> None:
    """Train what is not in the file yet: the sweep, then the seeds with its best setting."""
    for graph in arguments.only:
        if len(SETTINGS[graph]) > 1 and "sweep" in arguments.stages:
            for setting in SETTINGS[graph]:
                do("sweep", graph, setting, 1, arguments)
        if "final" in arguments.stages:
            setting = best(graph, lines_of(arguments.out))
            for seed in arguments.seeds:
                do("final", graph, setting, seed, arguments)


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The lines of a file that may not be there yet."""
    return read_lines(path) if path.exists() else []


def best(graph: str, lines: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """The setting of the sweep with the highest MRR on valid; the recipe as it is without a sweep."""
    mine = [line for line in lines if (line["stage"], line["graph"]) == ("sweep", graph)]
    return tuple(max(mine, key=lambda line: line["valid"], default={"setting": ()})["setting"])


def do(stage: str, graph: str, setting: Sequence[str], seed: int, arguments: argparse.Namespace) -> None:
    """One run, unless the file has it."""
    from mallang import load
    from mallang import recipe as recipes
    from mallang.data.corpus import open_corpus
    from mallang.tasks.link_prediction import Task
    from mallang.training.train import Options, train

    key = (stage, graph, [*setting], seed, list(arguments.set))
    if any((line["stage"], line["graph"], line["setting"], line["seed"], line["set"]) == key
           for line in lines_of(arguments.out)):  # fmt: skip
        return
    began = time.monotonic()
    limit = [] if arguments.seconds is None else [f"train.seconds={arguments.seconds}"]
    built = recipes.read(RECIPES[graph], [*setting, *limit, *arguments.set, f"seed={seed}"]).build()
    folder = arguments.work / f"{stage}-{graph}-{SETTINGS[graph].index(tuple(setting))}-seed{seed}"
    info = train(built, Options(folder=folder, device=arguments.device, quiet=True, fresh=True)).info
    line: dict[str, Any] = {
        "stage": stage, "graph": graph, "setting": [*setting], "seed": seed, "set": list(arguments.set),
        "valid": info["best"]["MRR"], "best": info["best"], "steps": info.get("steps"),
        "parameters": info.get("parameters"), "trained": info.get("seconds"),
    }  # fmt: skip
    if stage == "final":
        rows = list(open_corpus(built.data, Task.columns).split("test"))
        found = load(folder, device=arguments.device).evaluate(rows)[0]
        line["test"] = {score.name: score.to_json() for score in found}
    line |= {
        "wall": round(time.monotonic() - began, 1), "commit": arguments.commit or report.commit(),
        "hardware": report.hardware(),
    }  # fmt: skip
    with arguments.out.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")
    told = "".join(f", test {name} {line['test'][name]['value']:.2f}" for name in METRICS if "test" in line)
    print(f"{stage} {graph} {' '.join(setting)} seed {seed}: valid MRR {line['valid']:.2f}{told}", flush=True)


def show(arguments: argparse.Namespace) -> None:
    """Print the sweep, and the means over seeds beside what is published."""
    lines = [line for path in arguments.files for line in read_lines(path)]
    for graph in RECIPES:
        swept = [line for line in lines if (line["stage"], line["graph"]) == ("sweep", graph)]
        if swept:
            rows = [
                (" ".join(line["setting"]) or "as it is", line["valid"], line["steps"], line["wall"]) for line in swept
            ]
            report.show(f"{graph}, valid", [("setting", "MRR", "updates", "seconds"), *rows])
        finals = [line for line in lines if (line["stage"], line["graph"]) == ("final", graph)]
        if finals:
            values = {name: [line["test"][name]["value"] for line in finals] for name in METRICS}
            rows = [
                (name, statistics.mean(each), statistics.stdev(each) if len(each) > 1 else 0.0,
                 PUBLISHED.get(graph, {}).get(name, ""))
                for name, each in values.items()
            ]  # fmt: skip
            report.show(f"{graph}, test, {len(finals)} seeds", [("", "mean", "±", "LibKGE"), *rows])


def collect(arguments: argparse.Namespace) -> None:
    """Write results/."""
    lines = (line for path in arguments.files for line in read_lines(path))
    report.write_results(named for line in lines for named in results(line))


def results(line: dict[str, Any]) -> Iterable[tuple[str, Result]]:
    """The test scores of a final run, with the names of their files."""
    for name in METRICS if line["stage"] == "final" else ():
        score = line["test"][name]
        label = name.lower().replace("@", "")
        yield f"link-prediction-{line['graph']}-{label}-seed{line['seed']}", Result(
            system="transe", recipe=RECIPES[line["graph"]], overrides=[*line["setting"], *line["set"]],
            corpus=line["graph"] if line["graph"] != "miniworld" else "miniworld-triples", split="test",
            protocol=f"filtered, heads and tails of {score['count'] // 2:,} triples, ties at the mean rank"
            f", 95 % interval {score['low']:.2f} to {score['high']:.2f}",
            metric=f"{name}, %", value=round(score["value"], 2), published=PUBLISHED.get(line["graph"], {}).get(name),
            seed=line["seed"], commit=line["commit"], hardware=line["hardware"], seconds=line["trained"],
            signature=score["signature"],
        )  # fmt: skip


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("run")
    one.add_argument("--work", type=Path, required=True, help="folder of runs")
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--only", nargs="*", choices=list(RECIPES), default=["fb15k-237", "wn18rr"])
    one.add_argument("--stages", nargs="*", choices=("sweep", "final"), default=["sweep", "final"])
    one.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    one.add_argument("--seconds", type=int, help="of training, for every run")
    one.add_argument("--device", default="auto")
    one.add_argument("--commit", help="the commit of this code, where git cannot tell")
    one.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="recipe values of all runs")
    one.set_defaults(do=run)
    for name, function in (("show", show), ("collect", collect)):
        other = verbs.add_parser(name)
        other.add_argument("files", type=Path, nargs="+")
        other.set_defaults(do=function)
    arguments = parser.parse_args()
    arguments.do(arguments)


if __name__ == "__main__":
    main()
