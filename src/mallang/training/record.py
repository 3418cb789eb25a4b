"""The log of a training run: `metrics.jsonl` holds all of it, the screen shows the latest line.

One JSON object per line; numbers that JSON does not have are strings: "Infinity", "-Infinity", "NaN". Everything but
the times and `tokens_per_second` is the same whenever a recipe is trained; after a restart the file is truncated to the
checkpoint's step, so no step is in it twice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mallang.console import visible
from mallang.errors import UserError, require
from mallang.runs.files import unwritable

FILE = "metrics.jsonl"
CLOCK = ("seconds", "seconds_waited", "tokens_per_second")
"""The only keys that differ between two equal runs."""
NAMED = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}
"""Numbers that JSON does not have, by their names."""


class Recorder:
    """Writes the metrics of one run and shows them."""

    def __init__(self, folder: Path, *, console: Console, quiet: bool = False, tensorboard: bool = False) -> None:
        self.path = folder / FILE
        self.console, self.quiet = console, quiet
        self.bar: Progress | None = None
        self.board: Any = None
        if tensorboard:
            require("tensorboard", "track")
            self.board = require("torch.utils.tensorboard", "track").SummaryWriter(str(folder / "tensorboard"))

    def write(self, **entry: Any) -> None:
        """Append one line, on disk before the next step starts."""
        try:
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write(line_of(entry) + "\n")
        except OSError as error:
            raise unwritable(self.path.parent, error) from error
        if self.board is not None:
            kind, step = entry.get("kind", "train"), entry.get("step", 0)
            for key, value in entry.items():
                if isinstance(value, int | float) and key != "step":
                    self.board.add_scalar(f"{kind}/{key}", value, step)

    def cut_back(self, step: int) -> None:
        """Remove what was written after this step, including a half-written last line."""
        if not self.path.exists():
            return
        kept = [line_of(entry) for entry in read(self.path) if entry["step"] <= step]
        draft = self.path.with_name(f".draft-{FILE}")
        draft.write_text("".join(line + "\n" for line in kept), encoding="utf-8")
        draft.rename(self.path)

    @contextmanager
    def live(self, total: int, done: int) -> Iterator[None]:
        """Show a progress bar while the block runs; if the output is not a terminal, `show` prints plain lines."""
        if self.quiet or not self.console.is_terminal:
            yield
            return
        columns = (
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self.console) as self.bar:
            self.bar.add_task("starting", total=total, completed=done)
            yield
        self.bar = None

    def show(self, step: int, text: str) -> None:
        """Show the progress of the training run."""
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=step, description=visible(text))
        elif not self.quiet:
            self.console.print(f"step {step}  {visible(text)}", highlight=False, markup=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """Print a line that stays on the screen."""
        if not self.quiet:
            self.console.print(visible(text), highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        """Close the TensorBoard writer."""
        if self.board is not None:
            self.board.close()


def line_of(entry: Mapping[str, Any]) -> str:
    """An entry as strict JSON."""
    return json.dumps(named(entry), ensure_ascii=False, allow_nan=False)


def named(value: Any) -> Any:
    """A value with names in place of numbers that JSON does not have."""
    if isinstance(value, Mapping):
        return {key: named(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [named(each) for each in value]
    return json.dumps(value) if isinstance(value, float) and not math.isfinite(value) else value


def read(path: Path) -> list[dict[str, Any]]:
    """The entries of a metrics file; a last line that was cut off by a kill is left out."""
    entries = []
    lines = path.read_text("utf-8", errors="replace").split("\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            entry = json.loads(line, object_hook=numbered)
            if not isinstance(entry, dict):
                raise ValueError("it is not a JSON object")
            if "step" not in entry:
                raise ValueError("it has no step")
            for key in ("step", "loss", "nll"):
                if not isinstance(entry.get(key, 0), int | float):
                    raise ValueError(f"its {key} is not a number")
            entries.append(entry)
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                break
            raise UserError(f"{path} is damaged", where=f"line {number}", todo="remove that line") from error
    return entries


def numbered(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry with numbers in place of the names that `named` gave them."""
    return {key: NAMED.get(value, value) if isinstance(value, str) else value for key, value in entry.items()}


def without_clock(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry without the keys that depend on the machine's speed."""
    return {key: value for key, value in entry.items() if key not in CLOCK}
