"""The run that training starts from: a run folder, or a model of `transformers`, which is imported first."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from mallang import find
from mallang.commands.options import folder_of_run
from mallang.errors import UserError


def run_to_start_from(source: Path | None, runs: Path, *, quiet: bool = False) -> Path | None:
    """The run folder that `--from` means.

    A folder of `transformers`, or a name in the local cache of the hub, is imported as a run beside the others, once.
    """
    from mallang.interop.huggingface_folder import CONFIG, locate
    from mallang.runs.own_files import INFO

    if source is None or (source / INFO).exists():
        return source
    if source.is_dir():
        if not (source / CONFIG).exists():
            return source  # opening it says what is wrong
    else:
        try:
            locate(source)
        except UserError as error:
            if source.parent.is_dir():  # a name that is misspelled, in a folder that is there
                raise find.no_run(source) from error
            raise
    place = folder_of_run(runs, source.resolve().name)
    if not is_imported(locate(source), place):
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            what = f"{source} is no run yet, and several processes would import it"
            raise UserError(what, todo=f"mallang import {source}")
        from mallang.interop.huggingface_models import import_model

        import_model(source, place)
        if not quiet:
            typer.echo(f"{source} was imported: the run is in {place}", err=True)
    return place


def is_imported(found: Path, place: Path) -> bool:
    """Whether a run folder holds the import of this folder; another run there is refused."""
    from mallang.runs.files import sha256
    from mallang.runs.folder import Run
    from mallang.runs.own_files import INFO

    if not (place / INFO).exists():
        return False
    run = Run.open(place)
    known = run.info.get("imported")
    if run.is_finished and known:
        files = {name: found / name for name in known}
        if all(path.is_file() and sha256(path) == known[name] for name, path in files.items()):
            return True
    raise UserError(
        f"{place} is another run than {found}, which would be imported there",
        todo=f"mallang import {found} --name OTHER, then --from {place.parent}/OTHER",
    )
