"""`mallang demo`: two minutes from nothing to a translated sentence and a picture of its attention."""

from __future__ import annotations

import shlex
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mallang.commands.options import Device, Quiet
from mallang.errors import UserError

if TYPE_CHECKING:
    from mallang.tasks.translator import Verbs

EXAMPLES = ("mallang demo", "mallang demo --fresh")
RECIPE = "transformer-miniworld"
Fresh = Annotated[bool, typer.Option("--fresh", help="Train again although there is a model.", show_default=False)]
Runs = Annotated[Path, typer.Option("--runs", metavar="FOLDER", help="Where runs lie.")]


def command(fresh: Fresh = False, runs: Runs = Path("runs"), device: Device = "auto", quiet: Quiet = False) -> None:
    """Train a Korean to English Transformer on miniworld, score it, translate, and draw its attention."""
    from mallang import recipe as recipes
    from mallang.data import miniworld
    from mallang.inspection.outputs import keep, read_rows, stamp_of
    from mallang.loading import load
    from mallang.runs.beginning import differences
    from mallang.runs.folder import Run
    from mallang.runs.own_files import INFO
    from mallang.training.train import Options, train

    folder, recipe = runs / RECIPE, recipes.read(RECIPE).build()
    is_there = (folder / INFO).exists() and not fresh
    is_finished = is_there and Run.open(folder).is_finished
    if is_there and differences(Run.open(folder), recipe, None):
        what, todo = f"{folder} holds a run with other values", "mallang demo --fresh, or --runs ELSEWHERE"
        if not is_finished:
            raise UserError(what, todo=todo)
        typer.echo(f"note: {what}; for the demo's own: {todo}", err=True)
    if not is_finished:
        typer.echo("miniworld: 20,000 Korean sentences with their English. Training a Transformer on them:", err=True)
        train(recipe, Options(folder=folder, device=device, fresh=fresh, quiet=quiet))
    seconds = Run.open(folder).info["seconds"]
    model = load(folder, device)
    rows, name = read_rows(folder, "test", None)
    scores, outputs = model.evaluate(rows)
    keep(folder, name, outputs, scores, {}, stamp_of(Run.open(folder), rows, model.config, {}))
    print(f"\ntrained in {seconds:.0f} s; on {len(rows):,} sentences whose combinations it has never seen:")
    for score in scores:
        print(f"  {score}")
    print("\nfive of them:")
    for text in miniworld.EXAMPLES:
        print(f"  {text}\n    {model.translate(text)}")
    draw(model, miniworld.EXAMPLES[0], folder / "attention.png")
    if sys.stdin.isatty():
        talk(model, folder)
    print(f'\nnext:  {as_typed()} translate {folder} "{miniworld.EXAMPLES[1]}"')


def as_typed() -> str:
    """How this command was started, so that what is printed works as it stands: .venv/bin/mallang, say."""
    started = Path(sys.argv[0])
    if started.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m mallang"
    found = shutil.which(started.name)
    is_on_path = found is not None and Path(found).resolve() == started.resolve()
    if is_on_path or not started.is_file():
        return started.name
    with suppress(ValueError):  # it lies elsewhere
        started = started.absolute().relative_to(Path.cwd())
    return shlex.quote(str(started))


def talk(model: Verbs, folder: Path) -> None:
    """Translate what is typed until a line is empty."""
    print("\ntype a Korean sentence out of this small world; an empty line ends")
    while True:
        try:
            text = input("> ").strip()
        except EOFError:
            return
        if not text:
            return
        result = model.translate(text)
        print(f"  {result}" + (f"  ({result.note})" if result.note else ""))
        draw(model, text, folder / "attention.png")


def draw(model: Any, text: str, path: Path) -> None:
    """Write the picture of one translation's attention; without matplotlib say how to get it."""
    from mallang.inspection.alignment import draw_translation

    try:
        draw_translation(model, text, path)
    except UserError as error:
        print(f"no picture: {error}")
        return
    print(f"  its attention is drawn in {path}")
