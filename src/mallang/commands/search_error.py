"""`mallang search-error`: what greedy and beam search miss of the best output that the model knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mallang.commands.inputs import choose_split
from mallang.commands.options import (
    Data,
    Device,
    Domain,
    Json,
    Part,
    Plugin,
    Quiet,
    RunFolder,
    Search,
    Split,
    With,
    add_plugins,
    load_for,
    print_json,
    read_search,
)
from mallang.errors import UserError
from mallang.inspection.outputs import read_parts

if TYPE_CHECKING:
    from mallang.decoding.search_error import SearchError

EXAMPLES = (
    "mallang search-error runs/transformer-miniworld",
    "mallang search-error runs/transformer-miniworld --beams 1,5 --shortest 20 --search length_penalty=none",
    "mallang search-error runs/transformer-miniworld --split valid --expansions 500 --json",
)
Beams = Annotated[str, typer.Option("--beams", metavar="1,2,4", help="Widths to measure; 1 is greedy search.")]
Shortest = Annotated[
    int, typer.Option("--shortest", metavar="N", help="Take the N texts with the fewest source tokens; 0: all.")
]
Expansions = Annotated[
    int, typer.Option("--expansions", metavar="N", help="Beginnings that may be read to find the best of a text.")
]


def command(
    run: RunFolder,
    beams: Beams = "1,2,4,8,16",
    shortest: Shortest = 100,
    expansions: Expansions = 2000,
    split: Split = None,
    data: Data = None,
    corpus: Part = None,
    domain: Domain = None,
    search: Search = None,
    others: With = None,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Measure how often greedy and beam search miss the best output, and by how much.

    The best output of a text is proven by best-first search where --expansions are enough; the others are left out of
    the count. Scores are those that outputs are ranked by, so the length penalty decides what is best.
    """
    add_plugins(plugin)
    split = choose_split(split, data, usual="test")
    widths = read_beams(beams)
    if shortest < 0 or expansions < 1:
        raise UserError(f"--shortest {shortest} --expansions {expansions}: there is nothing to do", todo="give more")
    options = read_search(search)
    for name in ("method", "beam", "nbest", "precision", "max_expansions"):
        if name in options:
            raise UserError(f"--search {name} has no effect here", todo="--beams and --expansions say how to search")
    model = load_for(run, "translation", "search-error", device, others=others)
    found = {}
    for part in read_parts(run, split, data, corpus):
        chosen = part.domain if domain is None else None if domain == "none" else domain
        texts = take_shortest(model, [row[0] for row in part.rows], shortest)
        if not json and not quiet:
            typer.echo(f"{len(texts)} of {len(part.rows)} texts of {part.name}", err=True)
        found[part.corpus] = measure(model, texts, widths, expansions, domain=chosen, **options)
    if json:
        plain = {name: error.to_json() for name, error in found.items()}
        print_json(plain.get("", plain))
    else:
        print("\n".join(f"{name}: {error}" if name else str(error) for name, error in found.items()))


def read_beams(text: str) -> list[int]:
    """The widths in a text such as 1,2,4."""
    try:
        widths = [int(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"--beams {text} holds no numbers with commas", todo="--beams 1,2,4,8,16") from None
    if min(widths) < 1:
        raise UserError(f"--beams {text}: a beam of {min(widths)} holds nothing", todo="--beams 1,2,4,8,16")
    return widths


def take_shortest(model: Any, texts: Sequence[str], count: int) -> list[str]:
    """The texts with the fewest source tokens, the earlier of equals; all of them where the count is 0."""
    lengths = [len(ids) for ids in model.task.source.encode_batch(list(texts))]
    order = sorted(range(len(texts)), key=lambda place: lengths[place])
    return [texts[place] for place in order[: count or None]]


def measure(
    model: Any, texts: Sequence[str], beams: Sequence[int], expansions: int, *, domain: str | None, **options: Any
) -> SearchError:
    """The search error of a trained model on texts."""
    from itertools import islice

    from mallang.decoding.options import change_search
    from mallang.decoding.search_error import search_error

    tags = list(islice(model.tags(domain), len(texts)))
    config = change_search(model.config, options)
    return search_error(lambda wanted: model.search(texts, wanted, tags=tags), config, beams, expansions)
