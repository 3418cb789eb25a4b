"""`mallang --help` answers within 0.5 s, and `import mallang` costs less than 0.1 s.

Warm runs, in turn with the bare interpreter, so that what else the machine does slows all of them alike.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.report import Result, show, versions

HELP, IMPORT = 0.5, 0.1
"""Seconds that are claimed to be enough."""
COMMANDS = {
    "bare interpreter": [sys.executable, "-c", "pass"],
    "import mallang": [sys.executable, "-c", "import mallang"],
    "mallang --help": [str(Path(sys.executable).parent / "mallang"), "--help"],
}


def measure(runs: int = 10) -> dict[str, Result]:
    """The median of some runs, each after one that does not count."""
    began = time.monotonic()
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for turn in range(runs + 1):
        for name, command in COMMANDS.items():
            seconds = wall(command)
            if turn:
                taken[name].append(seconds)
    medians = {name: statistics.median(values) for name, values in taken.items()}
    rows = [(name, medians[name], min(taken[name]), max(taken[name])) for name in COMMANDS]
    show(f"seconds of wall clock, {runs} runs", [("command", "median", "least", "most"), *rows])
    above = medians["import mallang"] - medians["bare interpreter"]
    print(f"  help: {verdict(medians['mallang --help'], HELP)}")
    print(f"  import, above the bare interpreter: {verdict(above, IMPORT)}")
    protocol = f"wall clock of a new process, median of {runs} warm runs in turn"
    signature, spent = versions("mallang", "typer"), round(time.monotonic() - began, 1)
    return {
        f"startup-{file}": Result(
            system=system, metric=metric, value=round(value, 4), protocol=protocol + claimed, seconds=spent,
            signature=signature,
        )
        for file, system, metric, value, claimed in (
            ("help", "mallang --help", "start, s", medians["mallang --help"], f"; claimed: below {HELP} s"),
            ("bare", "python -c pass", "start, s", medians["bare interpreter"], ""),
            ("import", "import mallang", "start above the bare interpreter, s", above, f"; claimed: below {IMPORT} s"),
        )
    }  # fmt: skip


def wall(command: list[str]) -> float:
    """How long a command takes."""
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def verdict(value: float, limit: float) -> str:
    """A time beside its bound."""
    return f"{value:.3f} s, {'below' if value < limit else 'NOT below'} {limit} s"
