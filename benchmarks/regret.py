"""How good is the advice of `mallang compare --data`? Its regret on eight labeled corpora.

The comparison sees the training rows alone, and recommends a model by rows that it held out of them. The same models
are then scored on the test split. The regret is the accuracy of the best of them on test minus that of the recommended.

python -m benchmarks.regret --seconds 60 --workers 8 --out regret.jsonl    # one line per corpus, as they finish
python -m benchmarks.regret --read regret.jsonl --write                    # the table, and results/
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import Result, commit, hardware, show, write_result
from mallang.inspection.label_comparison import FOLDS

CORPORA: Mapping[str, tuple[str, str, str]] = {
    "nsmc": ("nsmc", "document", "label"),
    "ynat": ("klue/ynat", "title", "label_name"),
    "3i4k": ("korean-small/3i4k", "sentence", "label"),
    "imdb": ("imdb-subset", "text", "label"),
    "agnews": ("agnews-subset", "text", "label"),
    "sst2": ("sst-sentence/sst2", "sentence", "label"),
    "trec": ("trec", "question", "coarse"),
    "bbc": ("bbc-news", "article", "label"),
}
"""The corpus, its column of text, and its column of labels; those that take longest first."""


def measure_one(name: str, seconds: float, device: str) -> dict[str, Any]:
    """Compare on the training rows of one corpus, and score every model on its test rows."""
    import torch

    from mallang.inspection.label_comparison import compare_on

    torch.set_num_threads(1)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        files = {split: write_split(name, split, Path(folder)) for split in ("train", "test")}
        found = compare_on(str(files["train"]), test=str(files["test"]), seconds=seconds, device=device)
    tested = {system.name: system.test for system in found.systems}
    held_out = {system.name: round(system.scores["accuracy"].mean, 2) for system in found.systems}
    crossed = {system.name: system.cross_validated for system in found.systems if system.cross_validated is not None}
    return {
        "corpus": name, "recommended": found.recommended.name, "advice": found.notes[-1], "held out": held_out,
        "test": tested, "rows": found.rows, "folds": found.folds, "budget": seconds, "device": device,
        "cross-validated": {name: round(value, 2) for name, value in crossed.items()},
        "seconds": round(time.monotonic() - began, 1), "commit": commit(), "hardware": hardware(),
        "training": {system.name: round(system.seconds, 1) for system in found.systems},
    }  # fmt: skip


def write_split(name: str, split: str, folder: Path) -> Path:
    """The rows of a split as a file of labeled texts."""
    from mallang.data import corpus as corpora

    corpus, text, label = CORPORA[name]
    rows = corpora.open_corpus(corpora.Config(corpus=corpus, columns=[text, label]), ("text", "label")).split(split)
    path = folder / f"{split}.jsonl"
    lines = (json.dumps({"text": text, "label": label}, ensure_ascii=False) for text, label in rows)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def results_of(lines: Sequence[Mapping[str, Any]]) -> dict[str, Result]:
    """One value per corpus, and a table."""
    table: list[tuple[Any, ...]] = [("corpus", "recommended", "its accuracy on test", "best on test", "regret")]
    found: dict[str, Result] = {}
    for line in lines:
        best = max(line["test"], key=lambda name: line["test"][name])
        mine, regret = line["test"][line["recommended"]], line["test"][best] - line["test"][line["recommended"]]
        table.append((line["corpus"], line["recommended"], mine, f"{best} {line['test'][best]:.2f}", regret))
        scores = ", ".join(f"{name} {value:.2f}" for name, value in line["test"].items())
        why = f"; on the rows held out: {line['recommended']} {line['held out'][line['recommended']]:.2f}"
        why += f", {best} {line['held out'][best]:.2f}" if regret else ""
        if crossed := line.get("cross-validated"):
            told = ", ".join(f"{name} {value:.2f}" for name, value in crossed.items())
            why += f"; by {FOLDS}-fold cross-validation: {told}"
        found[f"regret-{line['corpus']}"] = Result(
            system=line["recommended"], corpus=CORPORA[line["corpus"]][0], split="test",
            metric="regret of compare, points", value=round(regret, 2),
            seconds=line["seconds"], commit=line["commit"], hardware=line["hardware"],
            protocol=f"{line['budget']:g} s of training each on {line['device']}, {line['folds']} folds; {scores}{why}",
        )  # fmt: skip
    show("regret of the recommended model", table)
    return found


def run_all(names: Sequence[str], seconds: float, device: str, workers: int, out: Path) -> None:
    """Every corpus in a process of its own, some at a time; each appends its line when it is done."""
    waiting, running = list(names), list[subprocess.Popen[bytes]]()
    while waiting or running:
        running = [each for each in running if each.poll() is None]
        while waiting and len(running) < workers:
            command = [sys.executable, "-m", "benchmarks.regret", "--one", waiting.pop(0), "--out", str(out)]
            running.append(subprocess.Popen([*command, "--seconds", str(seconds), "--device", device]))
        time.sleep(0.5)


def main() -> None:
    """Measure, or read what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--corpora", default=",".join(CORPORA))
    parser.add_argument("--one", help="this corpus, in this process")
    parser.add_argument("--out", type=Path, default=Path("regret.jsonl"))
    parser.add_argument("--read", type=Path, help="show the lines of this file instead of measuring")
    parser.add_argument("--write", action="store_true", help="with --read: put the values into results/")
    given = parser.parse_args()
    if given.one:
        line = json.dumps(measure_one(given.one, given.seconds, given.device), ensure_ascii=False)
        with given.out.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        return
    if given.read is None:
        run_all(given.corpora.split(","), given.seconds, given.device, given.workers, given.out)
    lines = [json.loads(line) for line in (given.read or given.out).read_text("utf-8").splitlines()]
    for name, result in results_of(lines).items():
        if given.write:
            print(write_result(name, result))


if __name__ == "__main__":
    main()
