"""`mallang data`: which corpora there are, getting them, preparing them, checking them before they are trained on."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mallang.commands.options import Device, Json, Overrides, Quiet, RecipeName, note_renamed, print_json
from mallang.commands.outputs import print_table
from mallang.commands.rewritten import augment_file, filter_file
from mallang.errors import UserError

if TYPE_CHECKING:
    from mallang.data.check import ColumnReport, Report
    from mallang.data.corpus import Corpus
else:  # they bring numpy, which the help does not need
    ColumnReport = Report = Corpus = Any

EXAMPLES = (
    "mallang data list translation",
    "mallang data get multi30k",
    "mallang data prepare transformer-miniworld",
    "mallang data show multi30k --split valid --rows 3",
    "mallang data check train.tsv valid.tsv --columns ko,en",
    "mallang data label-errors reviews.tsv --rows 50",
    "mallang data analyze nsmc --columns document --out nsmc.morphemes.gz",
    "mallang data filter pages.jsonl kept.jsonl --minimum karma=3",
    "mallang data augment few.tsv more.tsv --model runs/bert-masked-lm-nsmc-text --vectors runs/glove-wikitext-2",
)
app = typer.Typer(
    help="List, get, show, prepare, check, analyze, filter and augment corpora; find wrong labels.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("list", epilog="\b\nExample:\n  mallang data list translation")
def list_corpora(
    part: Annotated[str, typer.Argument(metavar="PART", help="Show names and kinds that contain this only.")] = "",
    json: Json = False,
) -> None:
    """Show the corpora that can be named, and where each would come from.

    State: here (on this machine), download, download in part, or own copy (MALLANG_DATA must name a folder with it).
    """
    from mallang.data import registry
    from mallang.data.miniworld_views import VIEWS

    found = [built_in(name) for name in VIEWS]
    for name in registry.names():
        known = registry.entry(name)
        facts = {"name": name, "kind": known.kind, "about": known.about, "columns": list(known.columns)}
        splits = {split: how.rows for split, how in known.splits.items()}
        found.append({**facts, "license": known.license, "state": registry.state(known), "splits": splits})
    found = [row for row in found if part.lower() in row["name"].lower() or part.lower() in row["kind"]]
    if not found:
        raise UserError(f"no corpus has {part!r} in its name or kind", todo="`mallang data list` shows all of them")
    if json:
        print_json(found)
        return
    rows = []
    for row in found:
        counts = ", ".join(f"{split} {count:,}" for split, count in row["splits"].items())
        rows.append([row["name"], row["kind"], " ".join(row["columns"]), counts, row["state"], row["license"]])
    print_table(["name", "kind", "columns", "rows", "state", "license"], rows)


def built_in(name: str) -> dict[str, Any]:
    """What is known of a generated corpus."""
    from mallang.data.miniworld_views import VIEWS

    view = VIEWS[name]
    facts = {"name": name, "kind": view.kind, "about": view.about, "columns": list(view.columns)}
    return {**facts, "license": "Apache-2.0", "state": "built in", "splits": dict(view.rows)}


@app.command(epilog="\b\nExample:\n  mallang data get multi30k")
def get(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Corpora that `mallang data list` shows.")],
    json: Json = False,
) -> None:
    """Download or unpack corpora now, so that training needs no network."""
    got = [fetch(name) for name in names]
    if json:
        print_json(got)
        return
    for one in got:
        print(f"{one['name']}: {len(one['files'])} files in {one['folder'] or 'mallang itself'}")
        print(f"  license: {one['license']}")
        if one["missing"]:
            print(f"  not to be had: {', '.join(one['missing'])}")


@app.command(
    epilog="\b\nExample:\n  mallang data prepare transformer-miniworld data.train=my.tsv data.valid=held-out.tsv"
)
def prepare(recipe: RecipeName, overrides: Overrides = None) -> None:
    """Tokenize what a recipe trains on and keep it in the cache folder, so that training starts at once."""
    from mallang import recipe as recipes

    resolved = recipes.read(recipe, overrides or ())
    note_renamed(resolved)
    checked = resolved.build()
    from mallang.training.defaults import fit_recipe
    from mallang.training.materials import prepare_data  # after the check, for it imports torch

    checked = fit_recipe(checked, print)
    materials = prepare_data(checked, None)
    print(materials.train.account)
    print(materials.valid.account)


@app.command(epilog="\b\nExample:\n  mallang data check train.tsv valid.tsv test.tsv --columns ko,en --strict")
def check(
    targets: Annotated[
        list[str],
        typer.Argument(metavar="NAME|FILE", help="A corpus by name; or files, each a split, or parallel ones."),
    ],
    columns: Annotated[str, typer.Option(help="Which columns, by name or number, with commas between.")] = "",
    source: Annotated[str, typer.Option(help="Ending of the first file of a stem.")] = "ko",
    target: Annotated[str, typer.Option(help="Ending of the second file of a stem.")] = "en",
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if anything is found.")] = False,
    json: Json = False,
) -> None:
    """Look for leaks between splits, repeated rows, broken characters and odd lengths."""
    from mallang.data.check import check as check_corpus

    corpus, are_pairs = open_targets(targets, columns, source, target)
    report = check_corpus(corpus, are_pairs)
    if json:
        print_json(report.to_json())
    else:
        print_report(report, corpus.notes)
    if strict and report.findings:
        raise typer.Exit(1)


@app.command(epilog="\b\nExample:\n  mallang data show multi30k --split valid --rows 3")
def show(
    targets: Annotated[
        list[str], typer.Argument(metavar="NAME|FILE", help="A corpus by name; files, each a split; a recipe or run.")
    ],
    split: Annotated[str, typer.Option(help="Which split; otherwise every one.")] = "",
    text: Annotated[
        list[str] | None, typer.Option(help="Of a recipe: this text. Repeatable.", show_default=False)
    ] = None,
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, help="How many rows of each split.")] = 5,
    columns: Annotated[str, typer.Option(help="Which columns, by name or number, with commas between.")] = "",
    source: Annotated[str, typer.Option(help="Ending of the first file of a stem.")] = "ko",
    target: Annotated[str, typer.Option(help="Ending of the second file of a stem.")] = "en",
    json: Json = False,
) -> None:
    """Print the first rows of a corpus, or of files of your own, as training would read them.

    Of a recipe or a run of a masked language model: its examples, with masks and the classes of pairs.
    """
    if is_recipe(targets):
        from mallang.inspection.training_examples import training_examples

        shown_rows = training_examples(targets[0], split or "train", rows, text or [])
        print_json(shown_rows) if json else print_table(list(shown_rows[0]), [[*row.values()] for row in shown_rows])
        return
    if text:
        raise UserError("--text is for a recipe or a run that masks text", todo="name one in place of a corpus")
    corpus, _ = open_targets(targets, columns, source, target)
    chosen = {split: corpus.split(split)} if split else dict(corpus.splits)
    found = [
        (name, number, dict(zip(each.columns, row, strict=True)))
        for name, each in chosen.items()
        for number, row in enumerate(islice(each, rows), start=1)
    ]
    if json:
        print_json([{"split": name, "row": number, "columns": cells} for name, number, cells in found])
        return
    if not found:
        raise UserError(f"{corpus.name} has no rows")
    head = list(dict.fromkeys(column for _, _, cells in found for column in cells))
    rows_shown = [
        [name, str(number), *(shown(cells.get(column, "")) for column in head)] for name, number, cells in found
    ]
    print_table(["split", "row", *map(str, head)], rows_shown)
    for note in corpus.notes:
        typer.echo(f"note: {note}", err=True)


def is_recipe(targets: list[str]) -> bool:
    """Whether a recipe or a run was named, and no corpus."""
    from mallang import recipe

    return len(targets) == 1 and (targets[0] in recipe.names() or (Path(targets[0]) / "run.json").is_file())


@app.command("label-errors", epilog="\b\nExample:\n  mallang data label-errors reviews.tsv --out suspects.tsv")
def label_errors(
    target: Annotated[str, typer.Argument(metavar="NAME|FILE", help="A corpus by name, or a file of labeled texts.")],
    columns: Annotated[str, typer.Option(help="The text and the label, by name or number.")] = "",
    split: Annotated[str, typer.Option(help="Which split of a corpus.")] = "train",
    folds: Annotated[int, typer.Option(min=2, max=20, help="Into how many parts the rows are divided.")] = 5,
    model: Annotated[
        str, typer.Option(help="characters or words; or a recipe or model, which takes longer.")
    ] = "characters",
    rows: Annotated[int, typer.Option("--rows", "-n", min=0, help="How many rows to show; 0: all.")] = 20,
    device: Device = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show the rows whose label is probably wrong, the likeliest first.

    Every row is predicted by a model that was trained on other rows only (cross-validation). A row is shown if another
    label than its own is confidently more probable (confident learning, Northcutt et al. 2021).
    """
    from mallang.inspection.label_errors import find_label_errors
    from mallang.inspection.labeled_rows import labeled_rows

    chosen = labeled_rows(target, split, [name.strip() for name in columns.split(",")] if columns else None)

    def say(text: str) -> None:
        if not quiet:
            typer.echo(text, err=True)

    found = find_label_errors(chosen, folds=folds, model=model, device=device, say=say)
    for note in found.notes:
        say(f"note: {note}")
    say(str(found))
    print_json(found.to_json(rows)) if json else print_table(*found.table(rows))


def shown(cell: Any) -> str:
    """A cell of a row in one line."""
    return str(cell).replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


@app.command(epilog="\b\nExample:\n  mallang data analyze nsmc --columns document --out nsmc.morphemes.gz")
def analyze(
    targets: Annotated[
        list[str], typer.Argument(metavar="NAME|FILE", help="A corpus by name; or files, each a split.")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file to write; packed if it ends in .gz.")],
    columns: Annotated[str, typer.Option(help="Which columns, by name or number, with commas between.")] = "",
    lowercase: Annotated[bool, typer.Option("--lowercase", help="For recipes with text.lowercase=true.")] = False,
    quiet: Quiet = False,
) -> None:
    """Write where the morphemes of Korean text meet, for machines without the analyzer.

    There, MALLANG_MORPHEMES=FILE in the environment makes text.unit=morpheme look texts up. All splits are analyzed.
    """
    from mallang.text import analyzed
    from mallang.text.morphemes import kiwi
    from mallang.text.tokenizer import Config, normalizer_of

    if not out.parent.is_dir():
        raise UserError(f"there is no folder {out.parent} for {out.name}", todo="make it first")
    corpus, _ = open_targets(targets, columns, "ko", "en")
    texts = (cell for rows in corpus.splits.values() for row in rows for cell in row)
    count = analyzed.write(out, texts, normalizer_of(Config(unit="morpheme", lowercase=lowercase)), kiwi())
    if not quiet:
        typer.echo(f"{count:,} texts were analyzed: {out}", err=True)


app.command("filter", epilog="\b\nExample:\n  mallang data filter pages.jsonl kept.jsonl --minimum karma=3")(
    filter_file
)
app.command(
    "augment", epilog="\b\nExample:\n  mallang data augment few.tsv more.tsv --model runs/bert-masked-lm-nsmc-text"
)(augment_file)


def fetch(name: str) -> dict[str, Any]:
    """Bring the files of a corpus, or of a whole set, onto this machine."""
    from mallang.data import registry
    from mallang.data.miniworld_views import VIEWS

    if name in VIEWS:
        return {**built_in(name), "folder": None, "files": [], "missing": []}
    entries = registry.entries(name)
    home = entries[0].home
    wanted = {path.as_posix() for entry in entries for split in entry.splits.values() for path in split.files.paths}
    missing: dict[str, UserError] = {}
    folder = None
    for file in sorted(home.files if name == home.name else wanted):
        if sys.stderr.isatty():
            print(f"{name}: {file}", file=sys.stderr)
        try:
            folder = registry.obtain(home, [file])
        except registry.UnobtainableError as error:
            missing[file] = error
    if folder is None:
        raise next(iter(missing.values()))
    have = sorted((set(home.files) if name == home.name else wanted) - set(missing))
    license = "; ".join(dict.fromkeys(entry.license for entry in entries))
    return {"name": name, "folder": str(folder), "files": have, "missing": list(missing), "license": license}


def open_targets(targets: list[str], columns: str, source: str, target: str) -> tuple[Corpus, bool]:
    """The corpus that was named, or one of these files; and whether its columns are translations of each other."""
    from mallang.data import registry
    from mallang.data.corpus import Config, open_corpus, open_files
    from mallang.data.miniworld_views import VIEWS
    from mallang.data.readers import kind_of

    chosen: list[str | int] | None = [name.strip() for name in columns.split(",")] if columns else None
    first = targets[0]
    if len(targets) == 1 and first in (*VIEWS, *registry.names()) and not Path(first).is_file():
        corpus = open_corpus(Config(corpus=first, columns=chosen), ())
        return corpus, corpus.kind == "translation" and not chosen
    missing = [spec for spec in targets if spec != "-" and not is_there(spec)]
    if missing and len(targets) == 1 and kind_of(Path(first)) is None:
        registry.entry(first)  # says what comes near it
    if missing:
        raise UserError(f"there is no file {missing[0]}", todo="name files that exist, or one corpus")
    splits = splits_of(targets)
    are_stems = any(isinstance(spec, str) and spec != "-" and not Path(spec).exists() for spec in splits.values())
    roles = ("source", "target") if are_stems and not chosen else ()
    corpus = open_files(splits, Config(columns=chosen, source=source, target=target), roles)
    return corpus, all(len(rows.columns) == 2 for rows in corpus.splits.values())


def is_there(spec: str) -> bool:
    """Whether a file of this name exists, or files of this stem."""
    path = Path(spec)
    return path.exists() or (path.parent.is_dir() and any(path.parent.glob(f"{path.name}.*")))


def splits_of(files: Sequence[str]) -> dict[str, str | list[str]]:
    """Files by the split that each is; train.ko and train.en are two columns of the split train."""
    from mallang.data.readers import kind_of

    splits: dict[str, str | list[str]] = {}
    for file in files:
        path = Path(file)
        alike = [other for other in files if Path(other).with_suffix("") == path.with_suffix("")]
        if len(alike) > 1 and kind_of(path) is None and path.suffix:
            splits[str(path.with_suffix(""))] = alike
        else:
            splits[file] = file
    short = {Path(name).name.split(".")[0] or name for name in splits}
    if len(short) < len(splits):  # a/train.tsv and b/train.tsv keep their whole names
        return splits
    return {Path(name).name.split(".")[0] or name: spec for name, spec in splits.items()}


def print_report(report: Report, notes: Iterable[str]) -> None:
    """What was found: a table of all columns, then a line for each thing to look at."""
    for note in notes:
        print(note)
    rows = [
        [split.name, column.name, f"{split.rows:,}", *column_cells(column)]
        for split in report.splits
        for column in split.columns
    ]
    head = ["split", "column", "rows", "repeated", "empty", "broken", "not NFC", "words 50/95/99/100%", "longest row"]
    print_table(head, rows)
    for sentence in report.findings:
        print(f"- {sentence}")
    if not report.findings:
        print("nothing suspicious was found")


def column_cells(column: ColumnReport) -> list[str]:
    """What the table shows of a column."""
    counts = {name: trouble.count for name, trouble in column.troubles.items()}
    broken = sum(counts.get(name, 0) for name in ("invalid", "replacement", "control"))
    repeated = "-" if column.repeated is None else f"{column.repeated:,}"
    words = " ".join(f"{number:,}" for number in column.words.values())
    longest = f"{column.longest:,} ({column.characters['longest']:,} characters)"
    return [repeated, f"{counts.get('empty', 0):,}", f"{broken:,}", f"{counts.get('not_nfc', 0):,}", words, longest]
