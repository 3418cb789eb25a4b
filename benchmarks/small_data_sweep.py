"""How good can a Transformer become on 500 or 5,000 pairs? 20 configurations drawn by a seed, all trials kept.

python -m benchmarks small_data_sweep --workers 10 --device cuda --out sweep.jsonl    # on a GPU machine: one file
python -m benchmarks small_data_sweep --merge sweep.jsonl --write                     # that file as results/

The pairs are the first lines of Multi30k's training text, English to German; every trial is scored by BLEU on the
validation text with the search of `mallang evaluate`. `benchmarks.small_data` compares the defaults with the best.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import random
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from benchmarks.report import Result, commit, hardware, show

CORPUS = "multi30k"
SIZES = (500, 5000)
SPACE: Mapping[str, Sequence[Any]] = {
    "model.layers": (2, 3, 4),
    "model.dim": (128, 256),
    "model.hidden_dim": (256, 512, 1024),
    "model.dropout": (0.2, 0.3, 0.4, 0.5),
    "text.vocabulary": (1000, 2000, 4000, 8000),
    "train.batch_tokens": (1024, 2048, 4096),
    "train.steps": (1000, 2000, 3000),
    "optimizer.learning_rate": (5e-4, 1e-3, 2e-3, 4e-3),
    "schedule.name": ("inverse-sqrt", "cosine", "linear"),
    "task.label_smoothing": (0.1, 0.2),
    "task.bpe_dropout": (0.0, 0.1),
    "task.r_drop": (0.0, 4.0),
    "train.final": ("best", "last", "average"),
}
"""What is drawn: each value alike, each key by itself. `best` is the checkpoint with the lowest validation loss."""
FIXED = (
    "model.heads=4", "model.norm=pre", "train.workers=0", "train.log_every=500", "train.patience=none",
    "optimizer.max_grad_norm=0.0",
)  # fmt: skip
VALIDATIONS = 20
"""How often a trial validates; `average` is the mean of the last five."""


def measure(
    trials: int = 20, workers: int = 2, device: str = "cpu", out: str = "", merge: str = "", steps: int = 0
) -> dict[str, Result]:
    """Train and score all trials, a JSON line each in `out`; or read those lines from `merge`.

    Trials that `out` holds already are not repeated.
    `steps` cuts every trial short, to see whether all of it works, and scores 20 rows.
    """
    if merge:
        found = read(Path(merge))
    else:
        done = read(Path(out)) if out and Path(out).exists() else []
        missing = [job for job in jobs(trials) if job not in {(trial["pairs"], trial["trial"]) for trial in done}]
        found = [*done, *kept(run_all(missing, workers, device, steps), Path(out) if out else None)]
    for size in sorted({trial["pairs"] for trial in found}):
        ranked = sorted((trial for trial in found if trial["pairs"] == size), key=lambda trial: -trial["bleu"])
        rows = [(f"{trial['trial']:02}: {' '.join(trial['overrides'])}", trial["bleu"]) for trial in ranked]
        show(f"{size:,} pairs, validation BLEU", [("trial", "BLEU"), *rows])
    return {f"small-data-{trial['pairs']}-trial{trial['trial']:02}": result(trial) for trial in found}


def read(path: Path) -> list[dict[str, Any]]:
    """The trials in a file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def drawn(trial: int) -> list[str]:
    """The configuration of a trial, as overrides; the same for every number of pairs."""
    dice = random.Random(f"small data {trial}")
    values = {key: dice.choice(options) for key, options in SPACE.items()}
    steps = int(values["train.steps"])
    follow = [f"train.validate_every={steps // VALIDATIONS}", f"schedule.warmup={steps // 10}"]
    follow += ["train.keep=5"] if values["train.final"] == "average" else []
    return [*(f"{key}={value}" for key, value in values.items()), *follow, *FIXED]


def jobs(trials: int) -> list[tuple[int, int]]:
    """Every trial with every number of pairs, the long ones first so that the workers end together."""
    every = [(size, trial) for size in SIZES for trial in range(1, trials + 1)]
    return sorted(every, key=lambda job: -cost(drawn(job[1])))


def cost(overrides: Sequence[str]) -> float:
    """About how much a trial computes."""
    values = dict(text.split("=") for text in overrides)
    passes = 2 if float(values["task.r_drop"]) else 1
    return float(values["train.steps"]) * int(values["model.layers"]) * passes * int(values["train.batch_tokens"])


def run_all(todo: Sequence[tuple[int, int]], workers: int, device: str, steps: int) -> Iterator[dict[str, Any]]:
    """The trials as they end, several at once."""
    context = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as home,
        ProcessPoolExecutor(workers, mp_context=context, initializer=alone) as pool,
    ):
        waiting = [pool.submit(tried, size, trial, device, home, steps) for size, trial in todo]
        for done in as_completed(waiting):
            yield done.result()


def alone() -> None:
    """A worker computes with one thread: the others want theirs."""
    import torch

    torch.set_num_threads(1)


def kept(found: Iterable[dict[str, Any]], path: Path | None) -> Iterator[dict[str, Any]]:
    """The trials, written to a file as they come."""
    for trial in found:
        print(
            f"  {trial['pairs']:,} pairs, trial {trial['trial']}: BLEU {trial['bleu']}, {trial['seconds']} s",
            flush=True,
        )
        if path is not None:
            with path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(trial) + "\n")
        yield trial


def tried(size: int, trial: int, device: str, home: str, steps: int = 0) -> dict[str, Any]:
    """Train one configuration and score it; one that diverged or cannot be trained has a BLEU of 0 and the reason."""
    from mallang.errors import UserError

    overrides, began = drawn(trial), time.monotonic()
    overrides += [f"train.steps={steps}", f"train.validate_every={steps}"] if steps else []
    about = {"pairs": size, "trial": trial, "overrides": overrides, "commit": commit(), "hardware": hardware()}
    try:
        score, signature = trained(overrides, size, Path(home, f"{size}-{trial}"), device, 20 if steps else None)
    except UserError as error:
        score, signature = 0.0, f"failed: {error}"
    return {**about, "bleu": round(score, 2), "signature": signature, "seconds": round(time.monotonic() - began, 1)}


def trained(
    overrides: Sequence[str], size: int, folder: Path, device: str, most: int | None = None
) -> tuple[float, str]:
    """Validation BLEU of one run, and its signature; of the first `most` rows where that is given."""
    import mallang
    from mallang import recipe as recipes
    from mallang.training.train import Options, train

    files = write_pairs(size, folder.with_name(f"{folder.name}-data"))
    named = [f"data.train={files['train']}", f"data.valid={files['valid']}"]
    recipe = recipes.read("transformer", [*named, *overrides]).build()
    train(recipe, Options(folder=folder, device=device, quiet=True))
    score = bleu(mallang.load(folder, device=device), pairs("valid", most))
    return score.value, score.signature


def bleu(model: Any, rows: list[tuple[str, ...]]) -> Any:
    """The BLEU that `mallang evaluate` reports."""
    scores, _ = model.evaluate(rows)
    return next(score for score in scores if score.name == "BLEU")


def pairs(split: str, most: int | None = None) -> list[tuple[str, ...]]:
    """The first rows of a split, English and German."""
    from mallang.data.corpus import Config, open_corpus

    corpus = open_corpus(Config(corpus=CORPUS, source="en", target="de"), ("source", "target"))
    return list(itertools.islice(corpus.split(split), most))


def write_pairs(size: int, folder: Path) -> dict[str, Path]:
    """The files that a newcomer would have: train.tsv and valid.tsv."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for split, most in (("train", size), ("valid", None)):
        path = folder / f"{split}.tsv"
        path.write_text("".join("\t".join(row) + "\n" for row in pairs(split, most)), "utf-8")
        written[split] = path
    return written


def result(trial: Mapping[str, Any]) -> Result:
    """A trial as a file of results/."""
    return Result(
        system="transformer", recipe="transformer", overrides=trial["overrides"], corpus=CORPUS, direction="en-de",
        split="valid", metric=f"small data, validation BLEU, {trial['pairs']:,} pairs", value=trial["bleu"], seed=1,
        protocol=f"first {trial['pairs']:,} training pairs; drawn configuration {trial['trial']}; beam 5",
        commit=trial["commit"], hardware=trial["hardware"], seconds=trial["seconds"], signature=trial["signature"],
    )  # fmt: skip
