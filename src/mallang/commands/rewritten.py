"""Files that `mallang data` makes of other files: the best of their texts, or copies with other words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from mallang.commands.options import Device, Json, Quiet, load_for, print_json
from mallang.errors import UserError


def filter_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Documents: .txt, a line each, .tsv, .csv or .jsonl.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write what is kept to.")],
    minimum: Annotated[
        list[str] | None,
        typer.Option("--minimum", metavar="COLUMN=N", help="Keep from this number on. Repeatable.", show_default=False),
    ] = None,
    like: Annotated[
        Path | None, typer.Option("--like", metavar="FILE", help="Good texts for a classifier.", show_default=False)
    ] = None,
    unlike: Annotated[
        Path | None,
        typer.Option("--unlike", metavar="FILE", help="Bad texts; otherwise FILE itself.", show_default=False),
    ] = None,
    threshold: Annotated[float | None, typer.Option(help="Keep from this score on.", show_default=False)] = None,
    keep: Annotated[float | None, typer.Option(help="Keep this share, the best.", show_default=False)] = None,
    pareto: Annotated[
        float | None, typer.Option(help="Keep at random, the good more often; GPT-3: 9.", show_default=False)
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of --pareto; otherwise 1.", show_default=False)] = None,
    column: Annotated[str | None, typer.Option(help="The column of the text.", show_default=False)] = None,
    json: Json = False,
) -> None:
    """Select documents by quality: by a number that comes with them, or by a classifier.

    GPT-2 kept pages with 3 karma or more (--minimum karma=3). GPT-3 trained a classifier to tell curated text from raw
    text (--like curated.txt) and kept documents by its score, from 0 to 1. What is dropped is reported with its reason.
    """
    from mallang.data import selection

    if str(out) == "-":
        raise UserError("OUT is -, which is no file", todo="give the name of a file")
    if seed is not None and pareto is None:
        raise UserError(f"--seed {seed} has no effect: only --pareto draws random numbers", todo="--pareto 9")
    bounds = read_minimum(minimum or ())
    rule = None
    if like is not None:
        rule = selection.Rule(threshold=threshold, share=keep, alpha=pareto, seed=1 if seed is None else seed)
    else:
        given = {"--unlike": unlike, "--threshold": threshold, "--keep": keep, "--pareto": pareto}
        for name, value in given.items():
            if value is not None:
                raise UserError(f"{name} has no effect without a classifier", todo="--like FILE with good texts")
        if not bounds:
            raise UserError("nothing says what to keep", todo="--minimum COLUMN=N, or --like FILE with good texts")
    if out.exists():
        raise UserError(f"{out} is there already", todo="give another file, or remove it")
    classifier = selection.learned(like, unlike or file, column) if like is not None else None
    lines, account = selection.select(file, column, bounds, classifier, rule)
    selection.write_lines(out, lines)
    print_json(account.to_json()) if json else print(account)


def read_minimum(given: Sequence[str]) -> dict[str, float]:
    """The bounds in `karma=3`."""
    bounds: dict[str, float] = {}
    for text in given:
        name, _, value = text.partition("=")
        try:
            bounds[name] = float(value)
        except ValueError:
            bounds[name] = float("nan")
        if not name or bounds[name] != bounds[name]:
            raise UserError(f"--minimum {text!r} is not a column and a number", todo="--minimum karma=3")
    return bounds


def augment_file(
    target: Annotated[str, typer.Argument(metavar="NAME|FILE", help="A corpus by name, or a file of labeled texts.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The .tsv file to write to.")],
    model: Annotated[Path, typer.Option(metavar="RUN", help="A masked language model, for words of one token.")],
    vectors: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Word vectors, for all other words.", show_default=False)
    ] = None,
    pairs: Annotated[bool, typer.Option("--pairs", help="Rows are two texts and a label.")] = False,
    columns: Annotated[str, typer.Option(help="The text, or both, and the label, by name or number.")] = "",
    split: Annotated[str, typer.Option(help="Which split of a corpus.")] = "train",
    copies: Annotated[int, typer.Option(min=1, help="Copies of each row.")] = 20,
    share: Annotated[float, typer.Option(help="The probability that a word is replaced.")] = 0.4,
    candidates: Annotated[int, typer.Option(min=1, help="From how many words one is drawn.")] = 15,
    seed: Annotated[int, typer.Option(min=0, help="Sets the random numbers.")] = 1,
    device: Device = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write labeled texts with copies of each in which some words are replaced, as for TinyBERT.

    Words of one token are replaced by words that the masked language model finds probable in their place, other words
    by their neighbors among the word vectors. Labels stay: a student learns from its teacher's predictions for the
    copies, and never from these labels unless task.label_weight says so.
    """
    from mallang.data import selection
    from mallang.inspection.labeled_rows import labeled_rows
    from mallang.tasks.augmentation import Augmenter, Options

    if out.suffix != ".tsv":
        raise UserError(f"{out} is written as a table with tabs", todo=f"{out.with_suffix('.tsv')}")
    if out.exists():
        raise UserError(f"{out} is there already", todo="give another file, or remove it")
    options = Options(copies=copies, share=share, candidates=candidates, seed=seed)
    roles = ("first", "second", "label") if pairs else ("text", "label")
    rows = labeled_rows(target, split, [name.strip() for name in columns.split(",")] if columns else None, roles)
    filler = load_for(model, "masked_lm", "fill", device, called="data augment")
    near = None if vectors is None else load_for(vectors, "word_vectors", "neighbors", device, called="data augment")
    augmenter, lines, read = Augmenter(filler, near, options), [selection.line_of("tsv", roles)], 0
    for read, row in enumerate(rows, start=1):
        texts = row[:-1]
        lines += [selection.line_of("tsv", [in_a_cell(text) for text in (*each, row[-1])])
                  for each in (texts, *augmenter.copies(texts, read))]  # fmt: skip
        if read % 100 == 0 and not quiet:
            typer.echo(f"{read:,} rows read, {len(lines) - 1:,} written", err=True)
    selection.write_lines(out, lines)
    account = {"read": read, "written": len(lines) - 1}
    print_json(account) if json else print(f"{read:,} rows read, {len(lines) - 1:,} written to {out}")


def in_a_cell(text: str) -> str:
    """A text without what ends a cell or a row of a table."""
    return text.translate({ord(each): " " for each in "\t\n\r"})
