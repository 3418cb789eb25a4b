"""`mallang similarity`: how alike two texts are, and how well that agrees with people."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from mallang.commands.inputs import note_cut, note_empty, read_lines, read_pairs, split_lines
from mallang.commands.options import (
    Device,
    Json,
    PairFile,
    Plugin,
    Quiet,
    RunFolder,
    add_plugins,
    has_verb,
    load_for,
    note_none,
    print_json,
)
from mallang.commands.outputs import json_line
from mallang.errors import UserError
from mallang.tasks.result_json import as_json

EXAMPLES = (
    'mallang similarity runs/transformer-encoder-miniworld-similarity "민수는 빵을 먹었다." "민수는 어제 빵을 먹었다."',
    "mallang similarity runs/minilm --file pairs.tsv --json",
    "mallang similarity runs/minilm --corpus glue-small/STS-B --split valid",
    "mallang similarity runs/minilm --data mine.tsv --columns text1,text2,number",
)
CHUNK = 4096
"""Pairs that are read before their scores are printed."""
Pair = Annotated[list[str] | None, typer.Argument(metavar="FIRST SECOND", help="Two texts.", show_default=False)]
Data = Annotated[
    str | None,
    typer.Option("--data", metavar="PATH", help="Correlate with the numbers of this file.", show_default=False),
]
Corpus = Annotated[
    str | None,
    typer.Option("--corpus", metavar="NAME", help="Correlate with the numbers of this corpus.", show_default=False),
]
Split = Annotated[
    str | None, typer.Option("--split", help="The split of --corpus; otherwise test, or valid.", show_default=False)
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns", metavar="FIRST,SECOND,SCORE", help="Columns of --data or --corpus, by name or number.",
        show_default=False,
    ),
]  # fmt: skip


def command(
    run: RunFolder,
    pair: Pair = None,
    file: PairFile = None,
    data: Data = None,
    corpus: Corpus = None,
    split: Split = None,
    columns: Columns = None,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Print how alike the two texts of each pair are, a line each.

    A run for similarity gives the number that it was trained to give. Any other run that has vectors of texts (see
    `mallang embed`) gives their cosine, without any training: what a bi-encoder starts from. With --data or --corpus
    the scores are compared with the numbers there, by Pearson's and Spearman's correlation.
    """
    add_plugins(plugin)
    if data is not None or corpus is not None:
        check_alone(pair, file, data, corpus)
        rows = read_rated(data, corpus, split, columns)
        scores = rate(load_similar(run, device), rows, quiet=quiet)
        if json:
            print_json([each.to_json() for each in scores])
        for each in [] if json else scores:
            print(each)
        return
    for name, value in {"--split": split, "--columns": columns}.items():
        if value is not None:
            raise UserError(f"{name} has no effect without --data or --corpus", todo="leave it out")
    model = load_similar(run, device)
    lines = read_pairs(pair, file) if pair else split_lines(read_lines(file), file or Path("/dev/stdin"), SIDES)
    given = note_empty(note_none(lines, "compare", quiet=quiet), "similarity", quiet=quiet or json)
    while chunk := list(itertools.islice(given, CHUNK)):
        for found in compare(model, chunk):
            print(json_line(as_json("similarity", found)) if json else found)
        note_cut(model, chunk, quiet=quiet)


SIDES = ("first text", "second text")
"""What the texts of a line are called."""


def load_similar(run: Path, device: str) -> Any:
    """A model that scores pairs, or one that gives vectors of texts."""
    from mallang.find import plain
    from mallang.runs.folder import Run
    from mallang.tasks.pair_layout import EmbedsPairs

    compares = has_verb(plain(Run.open(run).task), "similarity")
    model = load_for(run, None, "similarity" if compares else "embed", device, called="similarity")
    if isinstance(model, EmbedsPairs):
        what = f"{run} was trained for pairs: both texts have one vector, so there is nothing to compare"
        raise UserError(what, todo=f"mallang classify {run}")
    return model


def compare(model: Any, pairs: Sequence[tuple[str, str]]) -> list[Any]:
    """The similarity of each pair: as trained, or by the cosine of both vectors."""
    from mallang.tasks.comparer import Verbs, cosines

    return list(model.similarity(pairs) if isinstance(model, Verbs) else cosines(model, pairs))


def check_alone(pair: list[str] | None, file: Path | None, data: str | None, corpus: str | None) -> None:
    """Refuse two kinds of input at once."""
    given = {"FIRST SECOND": pair, "--file": file, "--data": data, "--corpus": corpus}
    names = [name for name, value in given.items() if value]
    if len(names) > 1:
        raise UserError(f"{names[0]} and {names[1]} were both given", todo="give one of them")


def read_rated(data: str | None, corpus: str | None, split: str | None, columns: str | None) -> list[tuple[str, ...]]:
    """Pairs with numbers, of a file or of a split of a corpus."""
    from mallang.data.corpus import Config, open_corpus
    from mallang.tasks.similarity import Task

    if data is not None and split is not None:
        raise UserError("--split has no effect on --data: a file of your own has no splits", todo="leave it out")
    chosen: list[str | int] | None = None if columns is None else [name.strip() for name in columns.split(",")]
    if data is not None:
        return list(open_corpus(Config(corpus=None, test=data, columns=chosen), Task.columns).split("test"))
    opened = open_corpus(Config(corpus=corpus, columns=chosen), Task.columns)
    return list(opened.split(split or ("test" if opened.has("test") else "valid")))


def rate(model: Any, rows: Sequence[tuple[str, ...]], *, quiet: bool) -> list[Any]:
    """How well the scores of pairs agree with the numbers of the rows."""
    from mallang.data.columns import Numbers
    from mallang.evaluation.correlation import correlation_scores
    from mallang.tasks.comparer import Verbs, read_gold

    pairs = [(row[0], row[1]) for row in rows]
    note_cut(model, pairs, quiet=quiet)
    if isinstance(model, Verbs):
        return list(model.evaluate(rows)[0])
    golds = [read_gold(row[2], number, Numbers()) for number, row in enumerate(rows, start=1)]
    scores = correlation_scores([each.score for each in compare(model, pairs)], golds)
    return [*scores.values()]
