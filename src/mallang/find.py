"""find("models", "bert") is the module of that file name: no list, no registry to edit. Runs are found by folder."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from dataclasses import is_dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from mallang.errors import UserError, nearest

ROOT = Path(__file__).parent
PLUGINS: dict[str, ModuleType] = {}
"""Models of one's own, by name: filled by `add_plugin` alone, never by a run folder."""
CONTRACT = "contract"
"""The file of a stage that says what the files beside it owe; it is none of them."""


def plain(name: str) -> str:
    """The file name behind a name: `-` and `_` are alike, case does not matter."""
    return name.strip().lower().replace("-", "_")


def names(stage: str) -> list[str]:
    """The names that `find` knows in a stage, without importing any of them."""
    folder = ROOT / stage
    files = _files(folder, folder.stat().st_mtime_ns)
    return sorted(files | set(PLUGINS)) if stage == "models" else sorted(files)


@lru_cache
def _files(folder: Path, changed: int) -> frozenset[str]:
    """The modules of a stage; every recipe that is read asks many times, so a folder is listed when it has changed."""
    files = (path.stem for path in folder.glob("*.py"))
    return frozenset(name for name in files if not name.startswith("_") and name != CONTRACT)


def find(stage: str, name: str) -> ModuleType:
    """The module `mallang/<stage>/<name>.py`, or a plugin of that name."""
    file_name = plain(name)
    if stage == "models" and file_name in PLUGINS:
        return PLUGINS[file_name]
    if file_name not in names(stage):
        raise UserError(f"there is no {name!r} among the {stage}", todo=nearest(file_name, names(stage)))
    return importlib.import_module(f"mallang.{stage}.{file_name}")


def add_plugin(path: Path) -> str:
    """Run a model file of the user's own and make it known under its file name."""
    if not path.is_file():
        raise UserError(f"the plugin {path} does not exist", todo="give the path of a Python file")
    name = plain(path.stem)
    spec = importlib.util.spec_from_file_location(f"mallang_plugin_{name}", path)
    if spec is None or spec.loader is None:
        raise UserError(f"the plugin {path} is not a Python file", todo="give a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise failed_plugin(path, error) from error
    missing = [needed for needed in ("Config", "Model") if not hasattr(module, needed)]
    if missing:
        raise UserError(f"the plugin {path} lacks {' and '.join(missing)}", todo="see docs/how-to/plugin.md")
    if not isinstance(module.Model, type) or not is_dataclass(module.Config):
        raise UserError(
            f"the plugin {path} has a Model that is no class, or a Config that is no dataclass",
            todo="see docs/how-to/plugin.md",
        )
    declare(path, module)
    PLUGINS[name] = module
    return name


def declare(path: Path, module: ModuleType) -> None:
    """See that a plugin declares what models/contract.py asks for; TASK and SIZES it may leave to the defaults."""
    if not isinstance(getattr(module.Model, "reads_source", None), bool):
        raise UserError(
            f"the Model of the plugin {path} does not declare whether it reads a source",
            todo="write reads_source = True into the class if it takes a source_vocabulary, else reads_source = False",
        )
    vars(module).setdefault("TASK", "translation" if module.Model.reads_source else "language_modeling")
    vars(module).setdefault("SIZES", {})


def failed_plugin(path: Path, error: BaseException) -> UserError:
    """What to say of a plugin that fails: its own line, not those of Python that ran it."""
    whole = str(path.absolute())
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == whole]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    said = traceback.format_exception_only(error)[-1].strip()
    return UserError(
        f"the plugin {path} fails: {said}",
        where=f"{path}, line {line}" if line else str(path),
        todo="mend the file; `python FILE` shows more",
    )


def runs(place: Path) -> list[Path]:
    """The run folders right below a folder, finished or not."""
    return sorted(path.parent for path in place.glob("*/recipe.toml"))


def no_run(path: Path) -> UserError:
    """What to say of a run folder that is not there: the nearest ones beside it, or below `runs`."""
    places = [Path("runs"), path.parent] if path.parent == Path() else [path.parent]
    known = {run.name: str(run) for place in places for run in runs(place)}
    todo = nearest(path.name, known, known.__getitem__) if known else "train one, or look into runs/"
    return UserError(f"there is no run folder {path}", todo=todo)
