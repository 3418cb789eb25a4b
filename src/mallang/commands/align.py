"""`mallang align`: word alignment of two texts by a model's attention."""

from __future__ import annotations

import json as json_format
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mallang.commands.inputs import read_pairs
from mallang.commands.options import Device, Json, Pair, PairFile, Plugin, Quiet, RunFolder, add_plugins, print_json
from mallang.errors import UserError

if TYPE_CHECKING:
    from mallang.evaluation.score import Score
    from mallang.inspection.word_alignment import Report, Way

EXAMPLES = (
    'mallang align runs/transformer-miniworld "유나는 지난주에 배를 탔다." "Yuna took the ship last week."',
    "mallang align runs/transformer-miniworld --file pairs.tsv --head 2 --threshold 0.2",
    "mallang align runs/transformer-miniworld --split test",
    "mallang align runs/transformer-miniworld --file pairs.tsv --gold links.txt",
)
Layer = Annotated[
    str | None,
    typer.Option("--layer", metavar="NAME", help="The layer to use; else the last that attends to the source.",
                 show_default=False),
]  # fmt: skip
Head = Annotated[str, typer.Option("--head", metavar="N", help="The head to use, from 1, or their mean.")]
Read = Annotated[
    bool, typer.Option("--read", help="Use the steps that read a word, not those that generate it.", show_default=False)
]
Threshold = Annotated[
    float | None,
    typer.Option("--threshold", min=0.0, max=1.0, show_default=False,
                 help="Links of at least this weight; else one per target word, to its highest weight."),
]  # fmt: skip
Gold = Annotated[
    Path | None,
    typer.Option("--gold", metavar="FILE", show_default=False,
                 help="Gold links, one line per pair: 0-0 2-1 1?2 (source-target, ? is possible). Scores the pairs."),
]  # fmt: skip
Split = Annotated[
    str | None,
    typer.Option("--split", help="Score this split of miniworld; valid chooses how to read.", show_default=False),
]


def command(
    run: RunFolder,
    pair: Pair = None,
    file: PairFile = None,
    layer: Layer = None,
    head: Head = "mean",
    read: Read = False,
    threshold: Threshold = None,
    gold: Gold = None,
    split: Split = None,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Print the word alignment of pairs as source-target indices from 0, or score it against gold links.

    The target is given: the model reads it, and links are extracted from its attention. Words are separated by spaces.
    """
    from mallang.inspection.word_alignment import aligned

    add_plugins(plugin)
    if split is not None:
        if pair or file or gold or layer or head != "mean" or read or threshold is not None:
            raise UserError("--split chooses pairs, gold links and how to read by itself", todo="give --split alone")
        return tell_split(run, split, device, json, quiet)
    if gold is not None and file is None:
        raise UserError("--gold has a line for each pair of a file", todo="add --file PAIRS.tsv")
    pairs = list(read_pairs(pair, file))
    model = load_searching(run, "align", device)
    way = choose_way(model, layer, head, read, threshold)
    found = aligned(model, pairs, way)
    if gold is not None:
        return tell_scores(found, pairs, gold, way, json)
    for (source, target), links in zip(pairs, found, strict=True):
        if json:
            print(json_format.dumps({"source": source, "target": target, "links": sorted(links)}, ensure_ascii=False))
        else:
            print(" ".join(f"{here}-{there}" for here, there in sorted(links)))
    return None


def load_searching(run: Path, verb: str, device: str) -> Any:
    """The model of a run for translation or dialogue; other runs are refused with a message."""
    from mallang.loading import load
    from mallang.tasks import translator

    model = load(run, device)
    if not isinstance(model, translator.Verbs):
        raise UserError(
            f"{run} was trained for {model.task_name}, but `mallang {verb}` needs a run for translation or dialogue",
            todo="give the folder of another run",
        )
    return model


def choose_way(model: Any, layer: str | None, head: str, read: bool, threshold: float | None) -> Way:
    """The rule that extracts links from attention."""
    from mallang.inspection.word_alignment import MEAN, usual_way

    if head != "mean" and not (head.isdecimal() and int(head) > 0):
        raise UserError(f"there is no head {head!r}", todo="give 1 for the first, or mean")
    way = replace(usual_way(model), head=MEAN if head == "mean" else int(head), threshold=threshold)
    return replace(way, layer=layer or way.layer, step="read" if read else "said")


def tell_split(run: Path, split: str, device: str, json: bool, quiet: bool) -> None:
    """Score a run's attention against the gold links of miniworld."""
    from mallang.inspection.word_alignment import evaluate_alignment, miniworld_gold
    from mallang.runs.folder import Run

    data = Run.open(run).recipe().data
    if data.corpus != "miniworld" or data.train is not None or data.corpora is not None:
        raise UserError(f"{run} was not trained on miniworld, which alone has gold links", todo="--file and --gold")
    choosing, judging = (miniworld_gold(name, data.source, data.target) for name in ("valid", split))
    report = evaluate_alignment(load_searching(run, "align", device), choosing, judging)
    if json:
        return print_json(as_json(report, split))
    if not quiet:
        for line in table(report):
            print(line)
    for score in report.scores:
        print(score)
    return None


def table(report: Report) -> list[str]:
    """The AER of every layer and head on the valid split, at the steps that generate words and that read them."""
    single = {(way.layer, way.head, way.step): error for way, error in report.tried.items() if way.threshold is None}
    rows = dict.fromkeys((layer, head) for layer, head, _ in single)
    lines = ["AER on valid                 said   read"]
    for layer, head in rows:
        name = f"{layer} {'mean' if head == 0 else f'head {head}'}"
        lines.append(f"{name:26} {single[layer, head, 'said']:6.1f} {single[layer, head, 'read']:6.1f}")
    return [*lines, f"best: {report.way}", ""]


def as_json(report: Report, split: str) -> dict[str, Any]:
    """The report as JSON values."""
    tried = [{**asdict(way), "aer": error} for way, error in report.tried.items()]
    return {"split": split, "way": asdict(report.way), "scores": [s.to_json() for s in report.scores], "valid": tried}


def tell_scores(
    found: Sequence[set[tuple[int, int]]], pairs: Sequence[tuple[str, str]], gold: Path, way: Way, json: bool
) -> None:
    """Score links against a file of gold links."""
    from mallang.evaluation.alignment import alignment_scores, read_links

    sure, possible = read_links(gold)
    if len(sure) != len(found):
        raise UserError(f"there are {len(found)} pairs, but {len(sure)} lines of links", where=str(gold))
    for line, (links, (source, target)) in enumerate(zip(possible, pairs, strict=True), start=1):
        words = len(source.split()), len(target.split())
        for link in sorted(links):
            if link[0] >= words[0] or link[1] >= words[1]:
                raise UserError(
                    f"the link {link[0]}-{link[1]} names a word that is not there: the pair has {words[0]} source and "
                    f"{words[1]} target words",
                    where=f"{gold}, line {line}",
                    todo="count words from 0, those of the source first",
                )
    scores: list[Score] = alignment_scores(found, sure, None if sure == possible else possible, how=str(way))
    if json:
        return print_json([score.to_json() for score in scores])
    for score in scores:
        print(score)
    return None
