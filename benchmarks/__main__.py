"""Run the benchmarks: all of them, or one by name.

python -m benchmarks --list
python -m benchmarks --write
python -m benchmarks memory_5m --pairs 200000

A benchmark is a file here with a function `measure`: it prints what it finds and returns values by file name. The
function's arguments, whole numbers or texts, are the options of the command.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
from pathlib import Path
from types import ModuleType

from benchmarks import report


def main() -> None:
    """The command."""
    known = benchmarks()
    arguments = parser(known).parse_args()
    if arguments.list:
        for name, module in known.items():
            print(f"{name:12} {claim(module)}")
        return
    for name in [arguments.name] if arguments.name else known:
        chosen = {option: vars(arguments)[option] for option in options(known[name]) if option in vars(arguments)}
        found = known[name].measure(**chosen)
        for file, result in found.items() if arguments.write else ():
            print(f"  {report.write_result(file, result)}")
    if arguments.write:
        report.write_tables()


def benchmarks() -> dict[str, ModuleType]:
    """Every script here that measures something."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py"))
    modules = {name: importlib.import_module(f"benchmarks.{name}") for name in names if not name.startswith("_")}
    return {name: module for name, module in modules.items() if hasattr(module, "measure")}


def parser(known: dict[str, ModuleType]) -> argparse.ArgumentParser:
    """What may be typed."""
    whole = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    whole.add_argument("--list", action="store_true", help="say which there are, and stop")
    whole.add_argument("--write", action="store_true", help="write the values into results/")
    names = whole.add_subparsers(dest="name", metavar="NAME")
    for name, module in known.items():
        one = names.add_parser(name, help=claim(module), description=module.__doc__)
        one.add_argument("--write", action="store_true", default=argparse.SUPPRESS, help="write into results/")
        for option, default in options(module).items():
            text = f"{default:,}" if isinstance(default, int) else repr(default)
            kind, shown = type(default), "N" if isinstance(default, int) else "TEXT"
            one.add_argument(f"--{option}", type=kind, default=default, metavar=shown, help=f"{text} if not given")
    return whole


def options(module: ModuleType) -> dict[str, int | str]:
    """The arguments of a benchmark and what they are if not given."""
    return {name: each.default for name, each in inspect.signature(module.measure).parameters.items()}


def claim(module: ModuleType) -> str:
    """The first line of its text."""
    return (module.__doc__ or "").splitlines()[0]


if __name__ == "__main__":
    main()
