"""LitBank in ten folds by document: every document is scored by a model that has not seen it, all counts are pooled.

    MALLANG_DATA=folder python -m benchmarks.coreference_folds run plain.jsonl
    MALLANG_DATA=folder python -m benchmarks.coreference_folds run minilm.jsonl given.features=/runs/minilm
    MALLANG_DATA=folder python -m benchmarks.coreference_folds run elmo.jsonl given.features=/runs/elmo-fold{fold}
    python -m benchmarks.coreference_folds show plain.jsonl minilm.jsonl
    python -m benchmarks.coreference_folds collect plain.jsonl minilm.jsonl        # the same, into results/

`run` trains the recipe e2e-coref-litbank on each fold, with the given overrides, and appends a line per fold; folds
that the file has are skipped, so that it can be stopped and started again. In overrides {fold} is the number of the
fold: novels/fold3 is text for pre-training without the books that fold 3 scores. Settings are chosen on the valid split
of a fold, never on its test split. `show` pools the folds of each file, and gives the difference of the second file
from the first with its 95 % interval: documents are drawn again, the same for both.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.report import Result
from benchmarks.understanding_results import read_lines
from mallang.errors import UserError
from mallang.evaluation.coreference import MEASURES, conll_f1, counts, shares, without_singletons
from mallang.evaluation.score import interval

RECIPE, CORPUS, FOLDS = "e2e-coref-litbank", "litbank-coref/fold{}", 10
SIDES = ("singletons", "without singletons")
"""The clusters that are scored: all of them, or those of two mentions and more."""


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run", help="train and score the folds that FILE has not")
    run.add_argument("file", type=Path)
    run.add_argument("overrides", nargs="*", help="changes to the recipe, such as train.epochs=8")
    run.add_argument("--runs", type=Path, default=Path("runs"), help="where the runs lie")
    run.add_argument("--folds", default=",".join(map(str, range(1, FOLDS + 1))), help="such as 1,2")
    show = verbs.add_parser("show", help="pooled scores, and the difference of the second file from the first")
    show.add_argument("files", type=Path, nargs="+")
    write = verbs.add_parser("collect", help="the same values as files in results/")
    write.add_argument("files", type=Path, nargs="+")
    asked = parser.parse_args()
    if asked.verb != "run":
        show_files(asked.files)
        if asked.verb == "collect":
            collect(asked.files)
        return
    done = {line["fold"] for line in read(asked.file)} if asked.file.exists() else set()
    for fold in map(int, asked.folds.split(",")):
        if fold not in done:
            overrides = [each.replace("{fold}", str(fold)) for each in asked.overrides]
            line = measured(fold, overrides, asked.runs / asked.file.stem)
            with asked.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            show_files([asked.file])


def measured(fold: int, overrides: Sequence[str], folder: Path) -> dict[str, Any]:
    """Train on a fold; the counts of every test document, with and without singletons."""
    import mallang
    from mallang import recipe
    from mallang.data.corpus import open_corpus
    from mallang.tasks.resolver import read_rows
    from mallang.training.train import Options, train

    began = time.monotonic()
    built = recipe.read(RECIPE, [f"data.corpus={CORPUS.format(fold)}", *overrides]).build()
    run = train(built, Options(folder=folder / f"fold{fold}", device="auto"))
    model = mallang.load(run.folder)
    rows = list(open_corpus(built.data, ("document", *model.task.columns)).split("test"))
    documents, golds = read_rows([row[1:] for row in rows])
    found = model.clusters(documents)
    return {
        "fold": fold,
        "overrides": list(overrides),
        "seconds": round(time.monotonic() - began, 1),
        "commit": report.commit(),
        "hardware": report.hardware(),
        "documents": [row[0] for row in rows],
        SIDES[0]: [counts(*each).tolist() for each in zip(found, golds, strict=True)],
        SIDES[1]: [counts(*map(without_singletons, each)).tolist() for each in zip(found, golds, strict=True)],
    }


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a file, in the order of their folds."""
    return sorted(read_lines(path), key=lambda line: int(line["fold"]))


def show_files(files: Sequence[Path]) -> None:
    """Print the pooled scores of each file, and the difference of the second from the first."""
    for side in SIDES:
        tables = [np.array([row for line in read(path) for row in line[side]]) for path in files]
        rows: list[Sequence[object]] = [("file", "documents", "CoNLL F1", *(f"{name} F1" for name in MEASURES))]
        for path, table in zip(files, tables, strict=True):
            sums = table.sum(axis=0)
            values = [f"{100 * shares(sums, place)[2]:.2f}" for place in range(len(MEASURES))]
            rows.append((path.stem, len(table), with_interval(conll_f1(sums), *interval(table, conll_f1)), *values))
        report.show(f"LitBank, {side}", rows)
        if len(files) > 1 and difference_is_fair(files):
            joined = np.concatenate(tables[:2], axis=1)
            gain = gain_of(joined.sum(axis=0))
            print(f"{files[1].stem} − {files[0].stem}: {with_interval(gain, *interval(joined, gain_of))}")


def collect(files: Sequence[Path], folder: Path = report.RESULTS) -> None:
    """Write the pooled scores of each file, and the differences of the others from the first."""
    read_by = {path: read(path) for path in files}
    for path, lines in read_by.items():
        if len(lines) != FOLDS:
            raise UserError(f"{path} has {len(lines)} of {FOLDS} folds", todo=f"run {path} to the end first")
    fair = [path for path in files[1:] if difference_is_fair([files[0], path])]
    report.write_results(
        itertools.chain(
            (named for path in files for side in SIDES for named in results(path.stem, read_by[path], side)),
            (result_of_gain(files[0], path, side) for path in fair for side in SIDES),
        ),
        folder,
    )


def results(system: str, lines: Sequence[dict[str, Any]], side: str) -> Iterable[tuple[str, Result]]:
    """The pooled scores of a file, with the names of their files."""
    table = np.array([row for line in lines for row in line[side]])
    sums, (low, high) = table.sum(axis=0), interval(table, conll_f1)
    values = {"conll": ("CoNLL F1", conll_f1(sums), f", 95 % interval {low:.2f} to {high:.2f}")}
    values |= {name.lower(): (f"{name} F1", 100 * shares(sums, place)[2], "") for place, name in enumerate(MEASURES)}
    for label, (metric, value, told) in values.items():
        yield f"coreference-{system}-{side.replace(' ', '-')}-{label}", Result(
            **about(lines), system=f"e2e-coref ({system})", metric=f"{metric}, {side}", value=round(value, 2),
            protocol=f"10 folds by document, counts of {len(table)} documents pooled, {side}{told}",
        )  # fmt: skip


def result_of_gain(first: Path, other: Path, side: str) -> tuple[str, Result]:
    """How far a file is above the first one in CoNLL F1, with the name of its file."""
    lines = read(other)
    tables = [np.array([row for line in read(path) for row in line[side]]) for path in (first, other)]
    joined = np.concatenate(tables, axis=1)
    low, high = interval(joined, gain_of)
    return f"coreference-{other.stem}-gain-{side.replace(' ', '-')}", Result(
        **about(lines), system=f"e2e-coref ({other.stem})", metric=f"gain in CoNLL F1, {side}, points",
        value=round(gain_of(joined.sum(axis=0)), 2),
        protocol=f"over {first.stem}, paired over {len(joined)} documents, 95 % interval {low:+.2f} to {high:+.2f}",
    )  # fmt: skip


def about(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What all values of a file share."""
    overrides = [each for each in lines[0]["overrides"] if not each.startswith("given.features")]
    return {
        "recipe": RECIPE, "overrides": overrides, "corpus": "litbank-coref", "split": "test",
        "commit": lines[0].get("commit"), "hardware": lines[0].get("hardware"),
        "seconds": round(sum(line["seconds"] for line in lines), 1),
    }  # fmt: skip


def difference_is_fair(files: Sequence[Path]) -> bool:
    """Whether the first two files scored the same documents."""
    first, second = ([name for line in read(path) for name in line["documents"]] for path in files[:2])
    return first == second


def gain_of(sums: np.ndarray) -> float:
    """The CoNLL F1 of the second half of summed counts minus that of the first."""
    one, two = np.split(sums, 2)
    return conll_f1(two) - conll_f1(one)


def with_interval(value: float, low: float, high: float) -> str:
    """A value and its interval."""
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


if __name__ == "__main__":
    main()
