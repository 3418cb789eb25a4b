"""Training runs that the page watches."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mallang.errors import UserError
from mallang.serving.training_runs import TrainingRuns, check_watched


def log(folder: Path, text: str, time: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "metrics.jsonl").open("a") as stream:
        stream.write(text)
    os.utime(folder / "metrics.jsonl", (time, time))


def test_runs_are_listed_the_latest_first_and_grow(tmp_path: Path) -> None:
    watched = TrainingRuns([tmp_path / "runs", tmp_path / "more" / "c"])
    assert watched.listed() == [] and watched.curves("a") is None
    for place, name in enumerate(("runs/a", "runs/b", "more/c", "more/unseen")):
        log(tmp_path / name, '{"step": 1, "loss": 2.5, "kind": "train"}\n', 1000 + place)
    (tmp_path / "runs" / "b" / "run.json").write_text(json.dumps({"status": "training", "model": "gpt", "task": "x"}))
    assert [each["name"] for each in watched.listed()] == ["c", "b", "a"]
    assert watched.listed()[1] == {"name": "b", "status": "training", "model": "gpt", "task": "x", "changed": 1001.0}
    log(
        tmp_path / "runs/a",
        '{"step": 2, "loss": 1.5}\n{"step": 2, "loss": 1.75, "kind": "valid"}\n{"step": 3, "lo',
        2000,
    )
    found = watched.curves("a")
    assert found is not None and watched.listed()[0]["name"] == "a"
    assert found["curves"] == {"train": {"loss": [[1.0, 2.0], [2.5, 1.5]]}, "valid": {"loss": [[2.0], [1.75]]}}


def test_a_damaged_log_is_told_and_its_path_is_not(tmp_path: Path) -> None:
    log(tmp_path / "a", "what\n{}\n", 1000)
    found = TrainingRuns([tmp_path]).curves("a")
    assert found is not None and found["curves"] == {} and found["problem"]
    assert str(tmp_path) not in json.dumps(found)


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no folder"):
        check_watched([tmp_path / "nothing"])
