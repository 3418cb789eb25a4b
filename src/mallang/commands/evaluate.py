"""`mallang evaluate`: every number with its signature and interval."""

from __future__ import annotations

import json as json_format
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mallang.commands.options import (
    Device,
    Domain,
    Int8,
    Json,
    Lexicon,
    Plugin,
    Quiet,
    ReplaceUnknown,
    RunFolder,
    Search,
    With,
    add_plugins,
    load_for,
    read_search,
)
from mallang.errors import UserError, nearest

if TYPE_CHECKING:
    from mallang.data.corpus import Rows
    from mallang.evaluation.score import Score

EXAMPLES = (
    "mallang evaluate runs/transformer-miniworld",
    "mallang evaluate runs/transformer-miniworld --split valid --search method=greedy",
    "mallang evaluate runs/transformer-miniworld --data mine.tsv --json",
    "mallang evaluate runs/joint --corpus korean-english/bible --domain none",
    "mallang evaluate runs/a --with runs/b --with runs/c",
)
Split = Annotated[
    str | None, typer.Option("--split", help="The split of the run's corpus; otherwise test.", show_default=False)
]
Data = Annotated[
    str | None, typer.Option("--data", metavar="PATH", help="Your own pairs instead of a split.", show_default=False)
]
Part = Annotated[
    str | None,
    typer.Option("--corpus", metavar="NAME", help="One of the run's corpora, not each of them.", show_default=False),
]


def command(
    run: RunFolder,
    split: Split = None,
    data: Data = None,
    corpus: Part = None,
    domain: Domain = None,
    search: Search = None,
    others: With = None,
    replace_unknown: ReplaceUnknown = False,
    lexicon: Lexicon = None,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
    int8: Int8 = False,
    quiet: Quiet = False,
) -> None:
    """Score a run on a split of its corpus, or on your own pairs.

    Where it was trained on several corpora each is scored by itself, with the tag of its domain; --domain NAME takes
    another, --domain none takes none. The outputs are written to RUN/outputs and the scores to RUN/scores, as JSON;
    those of an ensemble under a name that tells its other runs.
    """
    add_plugins(plugin)
    split = choose_split(split, data, usual="test")
    options = read_search(search)
    if replace_unknown or lexicon:
        options |= {"replace_unknown": replace_unknown, "lexicon": None if lexicon is None else str(lexicon)}
    model = load_for(run, "translation", "evaluate", device, int8=int8, others=others)
    found = {}
    for part in read_parts(run, split, data, corpus):
        chosen = part.domain if domain is None else None if domain == "none" else domain
        scores, outputs = model.evaluate(part.rows, domain=chosen, **options)
        told = options | ({} if chosen is None else {"domain": chosen}) | ({"weights": "int8"} if int8 else {})
        told |= {"with": [str(other) for other in others]} if others else {}
        name = "+".join([part.name, *(other.name for other in others or ())])
        keep(run, name, outputs, scores, told)
        found[part.corpus] = scores
        if not quiet and not json:
            tag = "" if chosen is None else f" as domain {chosen}"
            where = run / "outputs" / f"{name}.txt"
            typer.echo(f"{len(part.rows)} pairs of {part.name}{tag}; outputs in {where}", err=True)
        for score in [] if json else scores:
            print(f"{part.corpus}: {score}" if part.corpus else score)
    if json:
        plain = {name: [score.to_json() for score in scores] for name, scores in found.items()}
        print(json_format.dumps(plain.get("", plain), ensure_ascii=False))


@dataclass(frozen=True)
class Scorable:
    """Pairs to score together: what to call them, the corpus where the run has several, and its domain."""

    name: str
    rows: list[tuple[str, ...]]
    corpus: str = ""
    domain: str | None = None


def choose_split(split: str | None, data: str | None, *, usual: str) -> str:
    """The split that is asked for, or the usual one; one's own pairs have none."""
    if split is not None and data is not None:
        raise UserError("--split and --data were both given", todo="give one of them: a file of your own has no splits")
    return split or usual


def read_parts(run: Path, split: str, data: str | None, corpus: str | None) -> list[Scorable]:
    """The pairs of each corpus of the run, of one of them, or one's own."""
    from mallang.data.corpus import Joined

    rows, name = open_rows(run, split, data)
    members = rows.source.members if isinstance(rows.source, Joined) else ()
    known = [member.name for member in members]
    if corpus is not None and corpus not in known:
        if not known:
            raise UserError(f"--corpus {corpus}: there is only one corpus to score here", todo="leave --corpus out")
        raise UserError(f"the run has no corpus {corpus!r} in its split {split}", todo=nearest(corpus, known))
    if not members:
        return [Scorable(name, list(rows))]
    return [
        Scorable(f"{member.name.replace('/', '-')}-{name}", list(member.rows), member.name, member.domain)
        for member in members
        if corpus in (None, member.name)
    ]


def read_rows(run: Path, split: str, data: str | None) -> tuple[list[tuple[str, ...]], str]:
    """The pairs to score, of all corpora together, and what to call them."""
    rows, name = open_rows(run, split, data)
    return list(rows), name


def open_rows(run: Path, split: str, data: str | None) -> tuple[Rows, str]:
    """The rows to score, not yet read, and what to call them."""
    from dataclasses import replace

    from mallang.data.corpus import open_corpus
    from mallang.find import find
    from mallang.training.run import Run

    opened = Run.open(run)
    config = opened.recipe().data
    columns = find("tasks", opened.task).Task.columns
    if data is not None:
        alone = replace(config, corpora=None, domains=None, untagged=0.0)
        config = replace(alone, corpus=None, train=None, valid=None, test=data)
        return open_corpus(config, columns).split("test"), f"data-{Path(data).stem}"
    corpus = open_corpus(config, columns)
    if split not in corpus.splits and split == "test" and corpus.kind == "own":
        raise UserError(
            f"{run} was trained on files without a test split", todo="--data FILE for pairs to test, or --split valid"
        )
    return corpus.split(split), split


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
