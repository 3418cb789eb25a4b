"""How long every cell of the grid of tasks and models takes to train and to be scored: 4 seconds at most, on one core.

python -m benchmarks task_grid --write                    # all cells
python -m benchmarks task_grid --jobs "rating,topics"     # the cells of two jobs

The grid is that of tests/contracts/test_understanding_grid.py, whose tests check what the cells learn, and no time: a
busy machine would fail them. The seconds here are those of the processor, so that other work does not count.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.report import ROOT, Result, show

LIMIT = 4.0
"""Seconds that a cell may take."""


def measure(jobs: str = "") -> dict[str, Result]:
    """The seconds of the slowest cell of every job, with those of all its cells."""
    import torch

    sys.path.insert(0, str(ROOT / "tests"))  # the tests are not installed
    from contracts import test_understanding_grid as grid

    torch.set_num_threads(1)
    asked = [job for job in grid.JOBS if not jobs or job in jobs.split(",")]
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for job, model in grid.CELLS:
            if job not in asked:
                continue
            if job not in found:  # the rows are read once, and imports happen: neither is of a cell
                found[job] = {}
                seconds_of(grid, job, model, Path(folder))
            found[job][model] = seconds_of(grid, job, model, Path(folder))
            print(f"{job}, {model}: {found[job][model]:.1f} s", flush=True)
    table = [(job, *sides(cells)) for job, cells in found.items()]
    show("seconds per cell", [("job", "models", "median", "slowest", "", f"above {LIMIT:g} s"), *table])
    return {f"grid-{job.replace(' ', '-')}": result_of(job, cells) for job, cells in found.items()}


def seconds_of(grid: object, job: str, model: str, folder: Path) -> float:
    """The seconds of one cell, which must learn its task."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        began = time.process_time()
        grid.check(job, model, folder, Path(place), "cpu")  # type: ignore[attr-defined]
        return time.process_time() - began


def sides(cells: Mapping[str, float]) -> tuple[int, str, str, str, str]:
    """How many cells there are, the median, the slowest with its model, and which take too long."""
    ranked = sorted(cells, key=lambda model: cells[model])
    slow = " ".join(model for model in ranked if cells[model] > LIMIT)
    median, slowest = cells[ranked[len(ranked) // 2]], cells[ranked[-1]]
    return len(cells), f"{median:.1f}", f"{slowest:.1f}", ranked[-1], slow


def result_of(job: str, cells: Mapping[str, float]) -> Result:
    """The slowest cell of a job, the others in its protocol."""
    ranked = sorted(cells, key=lambda model: -cells[model])
    others = ", ".join(f"{model} {cells[model]:.1f}" for model in ranked)
    return Result(
        system=ranked[0].replace("_", "-"), corpus="miniworld", metric="training and scoring a cell, s",
        value=round(cells[ranked[0]], 2), protocol=f"{job}: processor seconds on one core; {others}",
    )  # fmt: skip
