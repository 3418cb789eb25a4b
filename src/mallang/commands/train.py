"""`mallang train`: a recipe becomes a run folder."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mallang import recipe as recipes
from mallang.commands.options import (
    Device,
    Overrides,
    Plugin,
    Quiet,
    RecipeName,
    Verbose,
    add_plugins,
    complete_run,
    folder_of_run,
    note_renamed,
)
from mallang.commands.starts import run_to_start_from
from mallang.errors import UserError

if TYPE_CHECKING:
    from mallang.runs.folder import Run

EXAMPLES = (
    "mallang train transformer-miniworld",
    "mallang train transformer-miniworld model.layers=3 train.epochs=5 --name deeper",
    "mallang train transformer data.train=mine.tsv data.valid=held-out.tsv",
    "mallang train lexicon data.train=mine.tsv data.valid=held-out.tsv model.file=words.txt",
    "mallang train transformer-miniworld --seeds 1,2,3",
    "mallang train unsupervised --source korean.txt --target english.txt",
    "mallang train bert --from runs/my-bert data.train=mine.tsv",
    "mallang train bert --from models/bert-base-uncased data.train=mine.tsv task.lora_rank=8",
)
Start = Annotated[
    Path | None,
    typer.Option(
        "--from", metavar="RUN", help="Start from the weights and tokenizer of a run, or of a model of transformers.",
        autocompletion=complete_run, show_default=False,
    ),
]  # fmt: skip
Name = Annotated[
    str | None, typer.Option("--name", help="Name of the run; the recipe's by default.", show_default=False)
]
Runs = Annotated[Path, typer.Option("--runs", metavar="FOLDER", help="Where runs lie.")]
SourceFile = Annotated[
    Path | None,
    typer.Option("--source", metavar="FILE", help="Text of one language, for training without pairs.",
                 show_default=False),
]  # fmt: skip
TargetFile = Annotated[
    Path | None,
    typer.Option("--target", metavar="FILE", help="Text of the other language, not parallel.", show_default=False),
]
Seeds = Annotated[
    str | None,
    typer.Option(
        "--seeds", metavar="1,2,3", help="Train once a seed; mean and spread are written.", show_default=False
    ),
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Remove the run that is there and start over.", show_default=False)
]
Show = Annotated[
    bool, typer.Option("--show", help="Print every value and where it comes from, then stop.", show_default=False)
]


def command(
    recipe: RecipeName,
    overrides: Overrides = None,
    name: Name = None,
    runs: Runs = Path("runs"),
    source: SourceFile = None,
    target: TargetFile = None,
    start: Start = None,
    seeds: Seeds = None,
    fresh: Fresh = False,
    show: Show = False,
    plugin: Plugin = None,
    device: Device = "auto",
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train a recipe. The same command on an unfinished run continues where it stopped.

    Ctrl-C saves and leaves. Several processes: torchrun --nproc-per-node 2 -m mallang train RECIPE
    """
    add_plugins(plugin)
    from mallang.training.defaults import with_defaults

    start = run_to_start_from(start, runs, quiet=quiet)
    given = [*unpaired(source, target), *(overrides or [])]
    resolved, told = with_defaults(recipes.read(recipe, given), start=start)
    note_renamed(resolved, quiet)
    if show:
        print("\n".join(resolved.show()))
        resolved.build()  # says what is wrong with them
        return
    numbers: list[int | None] = [*read_seeds(seeds)]
    if numbers and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError(
            "--seeds trains one run after the other, and torchrun several processes of one run",
            todo="give torchrun one seed: seed=1",
        )
    base = folder_of_run(runs, name or (f"{resolved.name}-from-{start.name}" if start else resolved.name))
    told = [*told, *note_corpus(resolved)]
    if told and not quiet and os.environ.get("RANK", "0") == "0":
        typer.echo("\n".join(told), err=True)
    if verbose:
        typer.echo("\n".join(resolved.show()), err=True)
    from mallang.training.train import Options, train

    trained = []
    for seed in numbers or [None]:
        chosen = resolved if seed is None else resolved.with_overrides([f"seed={seed}"])
        folder = base if seed is None else base.with_name(f"{base.name}-seed{seed}")
        options = Options(folder=folder, device=device, fresh=fresh, start=start, quiet=quiet)
        trained.append(train_or_reuse(train, chosen.build(), options, several=seed is not None))
    if len(trained) > 1:
        write_spread(trained, base.with_name(f"{base.name}-seeds.json"), quiet)
    elif not quiet and os.environ.get("RANK", "0") == "0":  # of several processes one speaks
        typer.echo(f"the run is in {trained[0].folder}", err=True)


def note_corpus(resolved: recipes.Resolved) -> list[str]:
    """What a model is trained on that was named alone, without a recipe or data."""
    from mallang.training.started import is_bare

    data = resolved.resolved()["data"]
    if not is_bare(resolved) or any("corpus" in layer.values.get("data", {}) for layer in resolved.layers):
        return []
    if data["corpus"] is None or data["train"] is not None or data["corpora"] is not None:
        return []
    return [
        f"no data is given: {resolved.name} is trained on {data['corpus']}, a small generated world. Your own text: "
        "data.train=FILE; a corpus of others: data.corpus=NAME (`mallang data list`)"
    ]


def unpaired(source: Path | None, target: Path | None) -> list[str]:
    """The overrides that read two files, each in its own language, without pairs."""
    if source is None and target is None:
        return []
    if source is None or target is None:
        raise UserError("--source and --target need each other", todo="give the text of each language in its own file")
    for path in (source, target):
        if not path.expanduser().is_file():
            raise UserError(f"there is no file {path}", todo="give a text file with a sentence per line")
    if source.expanduser().resolve() == target.expanduser().resolve():
        raise UserError(f"--source and --target are both {source}", todo="give text of two languages")
    files = ", ".join(f"'{path}'" for path in (source, target))
    return [f"data.train=[{files}]", "data.columns=['1', '2']", 'data.unpaired="all"']


def train_or_reuse(train: Any, recipe: recipes.Recipe, options: Any, *, several: bool) -> Run:
    """Train; among several seeds one that is finished already is taken as it is."""
    from mallang.runs.beginning import differences
    from mallang.runs.folder import Run
    from mallang.runs.own_files import INFO

    if several and not options.fresh and (options.folder / INFO).exists():
        run = Run.open(options.folder)
        if run.is_finished and not differences(run, recipe, options.start):
            return run
    result: Run = train(recipe, options)
    return result


def read_seeds(text: str | None) -> list[int]:
    """The seeds in `1,2,3`."""
    if text is None:
        return []
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise UserError(f"--seeds {text!r} is not a list of whole numbers", todo="--seeds 1,2,3") from error
    if min(seeds) < 0:
        raise UserError(f"--seeds {text!r}: a seed should not be negative", todo="--seeds 1,2,3")
    if len(set(seeds)) < len(seeds):
        raise UserError(f"--seeds {text!r} names a seed twice", todo="--seeds 1,2,3")
    return seeds


def write_spread(trained: list[Run], path: Path, quiet: bool) -> None:
    """Mean and standard deviation of the best validation over the seeds; JSON has no infinite numbers: null."""
    import json
    import statistics

    metric = next(key for key in trained[0].info["best"] if key != "step")
    values = {str(run.folder): finite_best(run, metric) for run in trained}
    known = [value for value in values.values() if value is not None]
    has_mean = len(known) == len(values)
    mean, deviation = (statistics.mean(known), statistics.stdev(known)) if has_mean else (None, None)
    spread = {"metric": metric, "runs": values, "mean": mean, "standard_deviation": deviation}
    path.write_text(json.dumps(spread, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    if not quiet:
        endless = f"infinite for {len(values) - len(known)} of them, so there is no mean"
        told = f"{mean:.4f} ± {deviation:.4f}" if has_mean else endless
        typer.echo(f"validation {metric} over {len(values)} seeds: {told}, in {path}", err=True)


def finite_best(run: Run, metric: str) -> float | None:
    """The best validation of a run, or nothing where it is infinite: run.json may say so by null or by Infinity."""
    value = run.info["best"][metric]
    return None if value is None or not math.isfinite(value) else float(value)
