"""LitBank in ten folds by document: every document is scored by a model that has not seen it, all counts are pooled.

    MALLANG_DATA=folder python -m benchmarks.coreference_folds run plain.jsonl
    MALLANG_DATA=folder python -m benchmarks.coreference_folds run minilm.jsonl given.features=/runs/minilm
    python -m benchmarks.coreference_folds show plain.jsonl minilm.jsonl

`run` trains the recipe e2e-coref-litbank on each fold, with the given overrides, and appends a line per fold; folds
that the file has are skipped, so that it can be stopped and started again. Settings are chosen on the valid split of a
fold, never on its test split. `show` pools the folds of each file, and gives the difference of the second file from the
first with its 95 % interval: documents are drawn again, the same for both.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import report
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
    asked = parser.parse_args()
    if asked.verb == "show":
        show_files(asked.files)
        return
    done = {line["fold"] for line in read(asked.file)} if asked.file.exists() else set()
    for fold in map(int, asked.folds.split(",")):
        if fold not in done:
            line = measured(fold, asked.overrides, asked.runs / asked.file.stem)
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
        "documents": [row[0] for row in rows],
        SIDES[0]: [counts(*each).tolist() for each in zip(found, golds, strict=True)],
        SIDES[1]: [counts(*map(without_singletons, each)).tolist() for each in zip(found, golds, strict=True)],
    }


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a file, in the order of their folds."""
    found = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return sorted(found, key=lambda line: int(line["fold"]))


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
