"""What was measured: a JSON file a value in results/, and RESULTS.md, the same as tables.

python -m benchmarks.report       # writes RESULTS.md anew from results/*.json
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
TABLES = ROOT / "RESULTS.md"
BENEATH = ("protocol", "signature", "hardware")
"""Long texts that stand beneath a table, not in it."""
HEAD = """# Results

Every value is a file in `results/`, with the protocol, the commit and the machine it was measured with. This page is
written from them by `python -m benchmarks.report`. Speed and memory: `python -m benchmarks --write`.
"""


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
    """Write a value as `name`.json, with the commit and the machine unless they are told."""
    result = replace(result, commit=result.commit or commit(), hardware=result.hardware or hardware())
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(asdict(result), ensure_ascii=False, indent=1) + "\n", "utf-8")
    return path


def read_results(folder: Path = RESULTS) -> list[dict[str, Any]]:
    """All values, by metric and then by file name."""
    values = [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]
    return sorted(values, key=lambda value: str(value["metric"]))


def tables(values: Sequence[Mapping[str, Any]]) -> str:
    """The page: a table a metric, without the columns that are empty."""
    parts = [HEAD]
    for metric in dict.fromkeys(value["metric"] for value in values):
        rows = [value for value in values if value["metric"] == metric]
        names = [field.name for field in fields(Result) if field.name not in (*BENEATH, "metric")]
        names = [name for name in names if any(row[name] is not None for row in rows)]
        lines = [f"## {metric}", "", f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
        lines += [f"| {' | '.join(cell(row[name]) for name in names)} |" for row in rows]
        told = dict.fromkeys(f"- {name}: {row[name]}" for name in BENEATH for row in rows if row[name] is not None)
        parts.append("\n".join([*lines, *([""] if told else []), *told]) + "\n")
    return "\n".join(parts)


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
    if told := os.environ.get("MALLANG_COMMIT"):
        return told
    head = git("rev-parse", "--short=12", "HEAD")
    return head and head + ("-dirty" if git("status", "--porcelain", "--", "src", "benchmarks") else "")


def git(*arguments: str) -> str | None:
    """What git says of this repository, if it says anything."""
    found = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return found.stdout.strip() or None


def hardware() -> str:
    """This machine, in words, and how many processes wanted it in the last minute, ours among them."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text("utf-8").splitlines() if about.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = f"{os.cpu_count()} × {names[0] if names else platform.machine()}"
    told = f"{cores}, {memory:.0f} GiB, {platform.system()}, load {os.getloadavg()[0]:.1f}"
    return ", ".join([*gpu_names(), told])


def gpu_names() -> list[str]:
    """The GPUs of this machine."""
    try:
        command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return []


def versions(*packages: str) -> str:
    """A signature: Python and the packages that decide."""
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
    """A number with as many digits as say something."""
    return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"


def write_tables() -> None:
    """Write the page anew."""
    TABLES.write_text(tables(read_results()), "utf-8")


if __name__ == "__main__":
    write_tables()
