"""Captions of miniworld's pictures: exact on held-out combinations, and attention in the right box.

python -m benchmarks.pictures --work FOLDER [--seeds 1,2,3] [--write]

Trains the recipe show-attend-tell-miniworld with each seed, unless the folder has the finished run, and scores the test
split. Nothing is chosen but the checkpoint, by exact match on valid.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import report
from benchmarks.report import Result
from benchmarks.understanding_runs import finished

RECIPE, CORPUS = "show-attend-tell-miniworld", "miniworld-pictures"
CHIEF = {"exact match": "exact", "CIDEr-D": "cider", "BLEU-4": "bleu4", "pointing": "pointing"}
"""The scores that go into results/, and what they are called there."""


def main() -> None:
    """Print the scores of every seed; `--write` puts them into results/."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of runs")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    for seed in map(int, asked.seeds.split(",")):
        for name, result in measured(asked.work / f"seed{seed}", seed, asked.device):
            print(f"seed {seed}: {result.metric} {result.value} ({result.protocol})", flush=True)
            if asked.write:
                report.write_result(name, result)


def measured(folder: Path, seed: int, device: str) -> list[tuple[str, Result]]:
    """The scores of a run, with the names of their files."""
    from mallang import load
    from mallang import recipe as recipes
    from mallang.data.corpus import open_corpus
    from mallang.inspection.pointing import pointing_of
    from mallang.tasks.captioning import Task
    from mallang.training.train import Options, train

    built = recipes.read(RECIPE, [f"seed={seed}"]).build()
    info = finished(folder) or train(built, Options(folder=folder, device=device, quiet=True)).info
    model = load(folder, device=device)
    rows = list(open_corpus(built.data, Task.columns).split("test"))
    found = []
    for score in [*model.evaluate(rows)[0], *pointing_of(folder, model, "test", None)]:
        if score.name in CHIEF:
            interval = f", 95 % interval {score.low:.2f} to {score.high:.2f}" if score.low is not None else ""
            result = Result(
                system="show-attend-tell", recipe=RECIPE, corpus=CORPUS, split="test", seed=seed,
                metric=score.name if score.name == "CIDEr-D" else f"{score.name}, %", value=round(score.value, 2),
                protocol=f"beam 5, {len(rows)} pictures of held-out combinations{interval}",
                seconds=info["seconds"], signature=score.signature,
            )  # fmt: skip
            found.append((f"captions-miniworld-{CHIEF[score.name]}-seed{seed}", result))
    return found


if __name__ == "__main__":
    main()
