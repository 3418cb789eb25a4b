"""`mallang classify`: the label of every text, or the texts most worth labeling next."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mallang.commands.inputs import check_single, note_cut, note_empty, note_long, read_inputs, set_long_texts
from mallang.commands.options import (
    Device,
    Json,
    LongTexts,
    Plugin,
    Quiet,
    RunFolder,
    Texts,
    add_plugins,
    load_for,
    note_none,
)
from mallang.commands.outputs import json_line, print_table
from mallang.errors import UserError, nearest
from mallang.tasks.result_json import as_json

if TYPE_CHECKING:
    from mallang.evaluation.uncertainty import By

EXAMPLES = (
    'mallang classify runs/cnn-miniworld "유나는 지난주에 배를 탔다."',
    "mallang classify runs/cnn-miniworld --file texts.txt --scores",
    "mallang classify runs/cnn-miniworld --file texts.txt --json",
    "mallang classify runs/cnn-miniworld --file unlabeled.txt --uncertain 50 --out to-label.tsv",
    'mallang classify runs/bert-miniworld-pairs "민수는 빵을 먹었다." "민수는 먹었다."',
)
CRITERIA = ("margin", "entropy")
CHUNK = 4096
"""Texts that are read before their labels are printed."""
File = Annotated[Path | None, typer.Option("--file", "-f", help="Take each line of this file.", show_default=False)]
Scores = Annotated[bool, typer.Option("--scores", help="Print the probability before each label.")]
Uncalibrated = Annotated[
    bool,
    typer.Option("--uncalibrated", help="Probabilities without the temperature of the run.", show_default=False),
]
FittedThresholds = Annotated[
    bool,
    typer.Option(
        "--fitted-thresholds", help="Several labels: decide by the thresholds of `mallang evaluate`, not by 0.5.",
        show_default=False,
    ),
]  # fmt: skip
Uncertain = Annotated[
    int | None,
    typer.Option(
        "--uncertain", metavar="N", min=1, help="Print the N texts most worth labeling instead.", show_default=False
    ),
]
Criterion = Annotated[
    str, typer.Option("--by", metavar="margin|entropy", help="--uncertain: how sure the model is of a text.")
]


def command(
    run: RunFolder,
    texts: Texts = None,
    file: File = None,
    scores: Scores = False,
    uncalibrated: Uncalibrated = False,
    fitted_thresholds: FittedThresholds = False,
    uncertain: Uncertain = None,
    by: Criterion = "margin",
    long_texts: LongTexts = None,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Print the label of each text, a line each; with --json also the probability of every label.

    A run for pairs takes a pair as two arguments, or lines with a tab between both texts.

    Where `mallang evaluate` has fitted a temperature on the dev set, probabilities are calibrated by it; labels are the
    same without. --uncertain prints the texts that the model is least sure of, so that labeling them teaches it most:
    none that was in training, and no two that are nearly alike.
    """
    add_plugins(plugin)
    if by not in CRITERIA:
        raise UserError(f"texts cannot be chosen by {by!r}", todo=nearest(by, CRITERIA))
    if by != "margin" and uncertain is None:
        raise UserError("--by has no effect without --uncertain", todo="--uncertain 20")
    if uncertain is not None and (scores or fitted_thresholds):
        option = "--scores" if scores else "--fitted-thresholds"
        raise UserError(f"{option} has no effect with --uncertain", todo="leave it out")
    shows_probabilities = scores or json or uncertain is not None
    if uncalibrated and not shows_probabilities:
        raise UserError(
            "--uncalibrated has no effect: labels are the same without it", todo="leave it out, or --scores"
        )
    model = load_for(run, None, "classify", device)
    set_long_texts(model, long_texts)
    if uncalibrated:
        check_calibration(run, model)
    given = note_none(read_inputs(model, texts, file), "classify", quiet=quiet)
    given = note_empty(given, "label", quiet=quiet or json)
    if shows_probabilities and not uncalibrated and not quiet:
        note_calibration(model)
    if uncertain is not None:
        check_single(model, "--uncertain is", "leave it out")
        print_uncertain(run, model, given, uncertain, by=by, calibrated=not uncalibrated, json=json, quiet=quiet)  # type: ignore[arg-type]
        return
    while chunk := list(itertools.islice(given, CHUNK)):  # so that a file of any size needs little memory
        for found in model.classify(chunk, calibrated=not uncalibrated, fitted_thresholds=fitted_thresholds):
            if json:
                print(json_line(as_json("classify", found)))
            else:
                print(f"{found.probability:.4f}\t{found.label}" if scores else found.label)
        note_cut(model, chunk, quiet=quiet)
        note_long(model, chunk, quiet=quiet)


def check_calibration(run: Path, model: Any) -> None:
    """Refuse --uncalibrated where the run has no temperature that it could leave out."""
    from mallang.tasks.contract import Calibrated

    if not isinstance(model, Calibrated) or model.calibration is None:
        raise UserError(
            f"--uncalibrated has no effect: {run} has no temperature, its probabilities are not calibrated",
            todo=f"leave it out; `mallang evaluate {run}` fits a temperature",
        )


def note_calibration(model: Any) -> None:
    """Say that probabilities are calibrated."""
    from mallang.tasks.contract import Calibrated

    if isinstance(model, Calibrated) and model.calibration is not None:
        temperature = model.calibration.temperature
        typer.echo(
            f"note: probabilities are calibrated with the temperature {temperature:.3g}; --uncalibrated: without",
            err=True,
        )


def print_uncertain(
    run: Path,
    model: Any,
    texts: Iterable[str],
    count: int,
    *,
    by: By,
    calibrated: bool,
    json: bool,
    quiet: bool,
) -> None:
    """The texts most worth labeling: their line, how sure the model is, what it would say, and the text."""
    from mallang.inspection.labeling import texts_to_label

    found = texts_to_label(run, model, list(texts), count, by=by, calibrated=calibrated)
    if not quiet:
        for note in found.notes:
            typer.echo(f"note: {note}", err=True)
    if json:
        for line in found.to_json():
            print(json_line(line))
        return
    print_table(*found.table())
