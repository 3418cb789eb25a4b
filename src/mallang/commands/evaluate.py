"""`mallang evaluate`: every number with its signature and interval."""

from __future__ import annotations

import json as json_format
from typing import Annotated

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
from mallang.errors import UserError
from mallang.inspection.outputs import keep, read_parts, stamp_of

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
    from mallang.decoding.options import change_search
    from mallang.training.run import Run

    add_plugins(plugin)
    split = choose_split(split, data, usual="test")
    options = read_search(search)
    model = load_for(run, None, "evaluate", device, int8=int8, others=others)
    opened, wanted = Run.open(run), change_search(model.config, options)
    if replace_unknown or lexicon:
        options |= {"replace_unknown": replace_unknown, "lexicon": None if lexicon is None else str(lexicon)}
    asked = {"unknown": replace_unknown, "lexicon": lexicon and str(lexicon), "int8": int8, "with": bool(others)}
    found = {}
    for part in read_parts(run, split, data, corpus):
        chosen = part.domain if domain is None else None if domain == "none" else domain
        scores, outputs = model.evaluate(part.rows, domain=chosen, **options)
        told = options | ({} if chosen is None else {"domain": chosen}) | ({"weights": "int8"} if int8 else {})
        told |= {"with": [str(other) for other in others]} if others else {}
        name = "+".join([part.name, *(other.name for other in others or ())])
        keep(run, name, outputs, scores, told, stamp_of(opened, part.rows, wanted, asked | {"domain": chosen}))
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


def choose_split(split: str | None, data: str | None, *, usual: str) -> str:
    """The split that is asked for, or the usual one; one's own pairs have none."""
    if split is not None and data is not None:
        raise UserError("--split and --data were both given", todo="give one of them: a file of your own has no splits")
    return split or usual
