"""`mallang evaluate`: every number with its signature and interval."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mallang.commands.options import Device, Json, Plugin, Quiet, RunFolder, Search, add_plugins, load_for, read_search
from mallang.errors import UserError

if TYPE_CHECKING:
    from mallang.evaluation.score import Score

EXAMPLES = (
    "mallang evaluate runs/transformer-miniworld",
    "mallang evaluate runs/transformer-miniworld --split valid --search method=greedy",
    "mallang evaluate runs/transformer-miniworld --data mine.tsv --json",
)
Split = Annotated[str, typer.Option("--split", help="The split of the run's corpus.")]
Data = Annotated[
    str | None, typer.Option("--data", metavar="PATH", help="Your own pairs instead of a split.", show_default=False)
]


def command(
    run: RunFolder,
    split: Split = "test",
    data: Data = None,
    search: Search = None,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Score a run on a split of its corpus, or on your own pairs.

    The outputs are written to RUN/outputs and the scores to RUN/scores, as JSON.
    """
    add_plugins(plugin)
    options = read_search(search)
    model = load_for(run, "translation", "evaluate", device)
    rows, name = read_rows(run, split, data)
    scores, outputs = model.evaluate(rows, **options)
    keep(run, name, outputs, scores, options)
    if json:
        print(json_format.dumps([score.to_json() for score in scores], ensure_ascii=False))
        return
    if not quiet:
        typer.echo(f"{len(rows)} pairs of {name}; outputs in {run / 'outputs' / f'{name}.txt'}", err=True)
    for score in scores:
        print(score)


def read_rows(run: Path, split: str, data: str | None) -> tuple[list[tuple[str, ...]], str]:
    """The pairs to score, and what to call them."""
    from dataclasses import replace

    from mallang.data.corpus import open_corpus
    from mallang.find import find
    from mallang.training.run import Run

    opened = Run.open(run)
    config = opened.recipe().data
    columns = find("tasks", opened.task).Task.columns
    if data is not None:
        config = replace(config, corpus=None, train=None, valid=None, test=data)
        return list(open_corpus(config, columns).split("test")), f"data-{Path(data).stem}"
    corpus = open_corpus(config, columns)
    if split not in corpus.splits and split == "test" and corpus.kind == "own":
        raise UserError(
            f"{run} was trained on files without a test split", todo="--data FILE for pairs to test, or --split valid"
        )
    return list(corpus.split(split)), split


def keep(run: Path, name: str, outputs: list[str], scores: list[Score], options: dict[str, Any]) -> None:
    """Write outputs and scores into the run folder."""
    from mallang.training.checkpoint import replace_file, to_json, unwritable

    try:
        for folder in ("outputs", "scores"):
            (run / folder).mkdir(exist_ok=True)
    except OSError as error:
        raise unwritable(run, error) from error
    replace_file(run / "outputs" / f"{name}.txt", "".join(f"{output}\n" for output in outputs).encode())
    kept = {"split": name, "search": options, "scores": [score.to_json() for score in scores]}
    replace_file(run / "scores" / f"{name}.json", to_json(kept))
