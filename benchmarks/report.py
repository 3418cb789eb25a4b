"""Measured values, one JSON file each in results/, and the pages that are written from them.

python -m benchmarks.report             # writes RESULTS.md, results/tables/ and what `mallang recipes` shows
python -m benchmarks.report --stale     # results to measure again, with the command of each
python -m benchmarks.report --seeds     # headlines with fewer than three seeds, with the command of the missing ones
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
PAGE = ROOT / "RESULTS.md"
TABLES = RESULTS / "tables"
MEASURED = ROOT / "src" / "mallang" / "recipes" / "measured.json"


@dataclass(frozen=True, kw_only=True)
class Result:
    """One measured value; None where a field does not apply."""

    system: str
    """What was measured: a model, or a library beside ours."""
    recipe: str | None = None
    overrides: Sequence[str] | None = None
    corpus: str | None = None
    direction: str | None = None
    """Such as ko-en."""
    split: str | None = None
    protocol: str | None = None
    """How it was measured, in words."""
    metric: str
    """The name of the value with its unit."""
    value: float
    published: float | None = None
    """What the paper reports."""
    seed: int | None = None
    commit: str | None = None
    hardware: str | None = None
    seconds: float | None = None
    """How long it took to measure."""
    signature: str | None = None
    """Versions and settings that the value depends on."""


def write_result(name: str, result: Result, folder: Path = RESULTS) -> Path:
    """Write a value as `name`.json, with the commit and the machine unless they are given."""
    result = replace(result, commit=result.commit or commit(), hardware=result.hardware or hardware())
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(asdict(result), ensure_ascii=False, indent=1) + "\n", "utf-8")
    return path


def write_results(named: Iterable[tuple[str, Result]], folder: Path = RESULTS) -> None:
    """Write values by the names of their files; then, in results/ itself, what is generated from them."""
    for name, result in named:
        write_result(name, result, folder)
    if folder == RESULTS:
        write_tables()


def read_results(folder: Path = RESULTS) -> list[dict[str, Any]]:
    """All values by file name, which each has as `file`."""
    paths = sorted(folder.glob("*.json"))
    return [{**json.loads(path.read_text("utf-8")), "file": path.stem} for path in paths]


def cell(value: Any) -> str:
    """One value in a table."""
    if value is None:
        return ""
    if isinstance(value, list):
        return " ".join(f"`{each}`" for each in value)
    return str(value).replace("|", "\\|")


def commit() -> str | None:
    """The commit measured, marked where the code differs from it; None outside a repository.

    Where the code is a copy without its history, MALLANG_COMMIT says which commit it is a copy of.
    """
    if given := os.environ.get("MALLANG_COMMIT"):
        return given
    head = git("rev-parse", "--short=12", "HEAD")
    written = f":!{MEASURED.relative_to(ROOT)}"  # by this module, from results/
    return head and head + ("-dirty" if git("status", "--porcelain", "--", "src", "benchmarks", written) else "")


def git(*arguments: str) -> str | None:
    """The output of a git command in this repository; None where there is none."""
    found = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return found.stdout.strip() or None


def hardware() -> str:
    """This machine, in words, and how many processes wanted it in the last minute, ours among them."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text("utf-8").splitlines() if about.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = f"{os.cpu_count()} × {names[0] if names else platform.machine()}"
    machine = f"{cores}, {memory:.0f} GiB, {platform.system()}, load {os.getloadavg()[0]:.1f}"
    return ", ".join([*gpu_names(), machine])


def gpu_names() -> list[str]:
    """The GPUs of this machine."""
    try:
        command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return []


def versions(*packages: str) -> str:
    """A signature: the versions of Python and of these packages."""
    named = [f"{package} {version(package)}" for package in packages]
    return "|".join([f"python {platform.python_version()}", *named])


def show(title: str, rows: Sequence[Sequence[object]]) -> None:
    """Print a table, the first row its head; all but the first column to the right."""
    texts = [[number(each) if isinstance(each, int | float) else str(each) for each in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    print(f"\n{title}")
    for first, *rest in texts:
        others = [text.rjust(width) for text, width in zip(rest, widths[1:], strict=True)]
        print("  ".join(["", first.ljust(widths[0]), *others]))


def number(value: float) -> str:
    """A number with its significant digits."""
    return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"


def do_what_is_asked(parser: argparse.ArgumentParser) -> None:
    """Run the verb of a command line, which its parser names as `do`; a user's mistake ends it with one message."""
    from mallang.errors import UserError  # this module is read without mallang too

    arguments = parser.parse_args()
    try:
        arguments.do(arguments)
    except UserError as error:
        sys.exit(f"{parser.prog.rpartition(' ')[2]}: {error}")


def write_tables() -> None:
    """Write every file that is generated from results/ again."""
    for path, text in written().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    for path in set(TABLES.glob("*.md")) - set(written()):
        path.unlink()


def written() -> dict[Path, str]:
    """Every file that is generated from results/, and its content."""
    from benchmarks import measured, results_page, results_tables  # they import this module

    values = read_results()
    tables = {TABLES / name: text for name, text in results_tables.all_tables(values).items()}
    return {PAGE: results_page.page(values), MEASURED: measured.as_json(values), **tables}


def main() -> None:
    """The command."""
    from benchmarks import to_measure

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stale", action="store_true", help="list results to measure again, and write nothing")
    parser.add_argument("--seeds", action="store_true", help="list headlines with too few seeds, and write nothing")
    arguments = parser.parse_args()
    if arguments.stale:
        print("\n".join(to_measure.stale(read_results())))
    if arguments.seeds:
        print("\n".join(to_measure.seeds(read_results())))
    if not arguments.stale and not arguments.seeds:
        write_tables()


if __name__ == "__main__":
    main()
